"""A task and what was found for it, as a report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsearch.spec import Application
from mlsearch.summary import TaskSummary
from mlsearch.task import Task
from mlsearch.tune.finals import Winner
from mlsearch.tune.trials import Baseline, SearchResult


def summarize_task(
    task: Task,
    baseline: Baseline | None,
    result: SearchResult | None,
    winner: Winner | None,
    *,
    kept: bool = False,
    applied: Application | None = None,
    not_tunable: str | None = None,
    note: str = "",
) -> TaskSummary:
    """`kept`: the winner is in the spec; otherwise the untuned build is what the spec leaves in place."""
    workload = task.workload
    chosen = winner if kept else None
    best_us = chosen.speedup.tuned_us if chosen else baseline.time_us if baseline else None
    return TaskSummary(
        id=task.id,
        workload=workload.key if workload else "",
        label=task.label,
        op_kind=workload.op_kind if workload else "unknown",
        dims=workload.dims if workload else {},
        element_types=tuple(dict.fromkeys(o.element_type for o in workload.operands)) if workload else (),
        fused=workload.fused if workload else (),
        sites=task.sites,
        flops=workload.flops if workload else 0,
        bytes=workload.bytes if workload else 0,
        not_tunable=not_tunable,
        baseline_us=chosen.speedup.baseline_us if chosen else baseline.time_us if baseline else None,
        best_us=best_us,
        speedup=chosen.speedup.speedup if chosen else 1.0 if baseline else None,
        speedup_ci95=chosen.speedup.ci95 if chosen else None,
        gflops=workload.flops / best_us / 1e3 if workload and best_us else None,
        applied=task.entry_name in applied.functions if chosen and applied else None,
        numerics=chosen.numerics if chosen else None,
        template=chosen.candidate.template if chosen else None,
        assignment=chosen.candidate.knobs if chosen else None,
        outcomes=result.outcomes if result else {},
        trials=result.trials if result else 0,
        note=note,
    )


@dataclass(frozen=True)
class TaskSum:
    """Tasks by their number of sites, for a payload that can't run as a whole."""

    baseline_us: float
    tuned_us: float

    @property
    def speedup(self) -> float:
        return self.baseline_us / self.tuned_us


def sum_of_tasks(tasks: Sequence[TaskSummary]) -> TaskSum | None:
    """None if no task was timed."""
    timed = [
        (task.sites * task.baseline_us, task.sites * task.best_us)
        for task in tasks
        if task.baseline_us is not None and task.best_us is not None
    ]
    return TaskSum(sum(before for before, _ in timed), sum(after for _, after in timed)) if timed else None

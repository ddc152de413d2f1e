"""Candidates for every task of a payload, compiled here to be measured elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsearch import target as targets
from mlsearch.bundle.archive import BundledCandidate, BundledTask, write_bundle
from mlsearch.candidate import Built, CacheState
from mlsearch.errors import BundleError, TaskError
from mlsearch.events import Step, Warn, Watcher
from mlsearch.payload import load_payload
from mlsearch.records.store import Store
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.task import Task, cut
from mlsearch.tune.trials import build_untuned, compile_limit_s
from mlsearch.tune.unmeasured import CARRIED, SearchOptions, UnmeasuredSearch, Waiting
from mlsearch.workbench import Workbench, open_workbench


@dataclass(frozen=True)
class ExportOptions:
    payload: Path
    target: str
    threads: int
    trials: int
    """Candidates asked for per task."""
    seed: int
    function: str | None
    store: str
    study: str | None
    """As in `TuneOptions`."""
    sampler: str
    templates: Path | None
    jobs: int | None
    output: Path
    cache: CacheState = "warm"


@dataclass(frozen=True)
class ExportedTask:
    id: str
    label: str
    asked: int
    bundled: int
    """New candidates in the bundle."""
    carried: int
    """Fastest ones of earlier measurements, which are measured again beside the new ones."""
    outcomes: dict[str, int]
    """How those ended that are not in it: they don't compile, spill, or their time is known."""
    note: str = ""
    """Why nothing of it is in the bundle."""


@dataclass(frozen=True)
class Exported:
    tasks: tuple[ExportedTask, ...]
    bytes: int
    """Of the bundle."""


def export_bundle(options: ExportOptions, watch: Watcher) -> Exported:
    """Ask for candidates, compile them, write the bundle; nothing is run.

    All become records in the store, so that none is built or shipped again: those that compiled wait there until
    `intake` brings their measurements home. The fastest that were measured so far come along, so that new ones are
    measured beside them. Raises MlsearchError.
    """
    target = targets.resolve(options.target, options.threads)
    templates = templates_for(target, options.templates)
    store = Store.open(options.store)
    with open_workbench(target, watch, jobs=options.jobs, seed=options.seed, cache=options.cache) as bench:
        watch(Step("cutting the payload into tasks"))
        tasks = cut(load_payload(options.payload, target, bench.workdir, options.function), target, bench.workdir)
        bundled: list[BundledTask] = []
        told: list[ExportedTask] = []
        for task in tasks:
            space = space_of(task, templates, target)
            if isinstance(space, str):
                told.append(ExportedTask(task.id, task.label, 0, 0, 0, {}, space))
                continue
            if space.note:
                watch(Warn(space.note))
            watch(Step(f"compiling {options.trials} candidates of {task.id} ({task.label})"))
            try:
                built, summary = _export_task(bench, store, options, task, space)
            except TaskError as reason:
                told.append(ExportedTask(task.id, task.label, 0, 0, 0, {}, str(reason)))
                continue
            bundled.append(built)
            told.append(summary)
        if not bundled:
            reasons = "; ".join(f"{each.id}: {each.note}" for each in told) or "it has none"
            raise BundleError(f"no task of {options.payload} can be tuned: {reasons}")
        watch(Step("writing the bundle"))
        write_bundle(options.output, target, bundled, bench.plan())
    return Exported(tuple(told), options.output.stat().st_size)


def _export_task(
    bench: Workbench, store: Store, options: ExportOptions, task: Task, space: Space
) -> tuple[BundledTask, ExportedTask]:
    assert task.workload is not None and task.signature is not None
    untuned = build_untuned(bench, task)
    limit_s = compile_limit_s(untuned)
    asked = SearchOptions(options.study, options.sampler, options.seed, True, options.jobs, limit_s)
    search = UnmeasuredSearch(bench, store, asked, task, space)
    shipped = {each.candidate.key for each in search.waiting()}
    spent = search.run(options.trials)
    fresh = [each for each in search.waiting() if each.candidate.key not in shipped]
    carried = search.fastest(CARRIED)
    ready = search.with_artifacts([*carried, *fresh], lambda sha256: None)
    outcomes = {name: count for name, count in spent.outcomes.items() if name != "Unmeasured"}
    if spent.pruned:
        outcomes["Pruned"] = spent.pruned
    bundled = BundledTask(
        task.id, task.workload.key, task.workload.label, task.signature, untuned, bundled_candidates(ready)
    )
    return bundled, ExportedTask(task.id, task.label, spent.asked, len(fresh), len(carried), outcomes)


def bundled_candidates(ready: Sequence[Waiting]) -> tuple[BundledCandidate, ...]:
    """Candidates with an artifact, in their order, as a bundle takes them."""
    return tuple(
        BundledCandidate(each.candidate, Built(each.artifact, each.artifact_digest, each.compile_s), each.predicted)
        for each in ready
        if each.artifact is not None
    )

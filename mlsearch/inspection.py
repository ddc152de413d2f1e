"""Look at a payload without tuning it: its tasks, and the space of one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlsearch import target as targets
from mlsearch.candidate import KnobValue
from mlsearch.errors import PayloadError, RunnerError, TargetError, TaskError
from mlsearch.events import Step, Warn, Watcher
from mlsearch.payload import load_payload
from mlsearch.space.emitted import derived_texts
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.space.template_space import TemplateSpace
from mlsearch.space.terms import described
from mlsearch.target import Target, require_device
from mlsearch.task import Task, cut
from mlsearch.tune.trials import measure_baseline
from mlsearch.variant import variant_named
from mlsearch.workbench import open_workbench


@dataclass(frozen=True)
class InspectedTask:
    id: str
    label: str
    workload: str
    """Key of the workload, empty for a dispatch that can't be read."""
    op_kind: str
    dims: dict[str, int]
    element_types: tuple[str, ...]
    fused: tuple[str, ...]
    flops: int
    bytes: int
    sites: int
    share: float | None
    """Of the time of all tasks that could be timed, from 0 to 1."""
    baseline_us: float | None
    templates: tuple[str, ...]
    space_size: int
    not_tunable: str | None


@dataclass(frozen=True)
class Inspection:
    payload: str
    target: str
    functions: tuple[str, ...]
    tasks: tuple[InspectedTask, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_payload(
    payload: Path, target: str, threads: int, templates: Path | None, variant: str, watch: Watcher
) -> Inspection:
    """Cut a variant of a payload into tasks, time each one untuned, and size its space. Raises MlsearchError."""
    plain = targets.resolve(target, threads)
    chosen = variant_named(plain, templates, variant)
    resolved = chosen.on(plain)
    known = templates_for(resolved, templates)
    with open_workbench(resolved, watch) as bench:
        watch(Step("compiling the payload to dispatches"))
        loaded = load_payload(payload, resolved, bench.workdir, variant=chosen)
        tasks = cut(loaded, resolved, bench.workdir)
        times_us: dict[str, float] = {}
        problems: dict[str, str] = {}
        absent = _absent_device(resolved)
        if absent:
            watch(Warn(f"nothing is timed: {absent}"))
        for task in tasks:
            if task.module is None or absent:
                continue
            watch(Step(f"measuring {task.id} ({task.label}) untuned"))
            try:
                times_us[task.id] = measure_baseline(bench, task).time_us
            except (RunnerError, TaskError) as error:
                problems[task.id] = str(error)
        total_us = sum(task.sites * times_us.get(task.id, 0.0) for task in tasks)
        inspected = []
        for task in tasks:
            space = problems.get(task.id) or space_of(task, known, resolved)
            if isinstance(space, Space) and space.note:
                watch(Warn(space.note))
            inspected.append(_inspected(task, space, times_us.get(task.id), total_us))
    return Inspection(str(payload), resolved.backend, tuple(entry.name for entry in loaded.functions), tuple(inspected))


def _absent_device(target: Target) -> str:
    """Why the target can't be timed here; empty if it can."""
    try:
        require_device(target)
    except TargetError as reason:
        return str(reason)
    return ""


def _inspected(task: Task, space: Space | str, time_us: float | None, total_us: float) -> InspectedTask:
    workload = task.workload
    return InspectedTask(
        id=task.id,
        label=task.label,
        workload=workload.key if workload else "",
        op_kind=workload.op_kind if workload else "unknown",
        dims=workload.dims if workload else {},
        element_types=tuple(dict.fromkeys(o.element_type for o in workload.operands)) if workload else (),
        fused=workload.fused if workload else (),
        flops=workload.flops if workload else 0,
        bytes=workload.bytes if workload else 0,
        sites=task.sites,
        share=task.sites * time_us / total_us if time_us is not None and total_us else None,
        baseline_us=time_us,
        templates=() if isinstance(space, str) else tuple(space.parts),
        space_size=0 if isinstance(space, str) else space.size,
        not_tunable=space if isinstance(space, str) else None,
    )


@dataclass(frozen=True)
class KnobDescription:
    name: str
    values: tuple[KnobValue, ...]
    """What the workload leaves of the template's domain."""
    default: KnobValue


@dataclass(frozen=True)
class TemplateDescription:
    id: str
    path: str
    knobs: tuple[KnobDescription, ...]
    constraints: tuple[str, ...]
    valid: int
    """Assignments that satisfy all constraints."""
    total: int
    """All assignments."""
    derived: dict[str, str]
    """Knobs that follow from the others, with how."""


@dataclass(frozen=True)
class SpaceDescription:
    task: str
    label: str
    size: int
    templates: tuple[TemplateDescription, ...]
    priors: tuple[dict[str, KnobValue], ...]
    """Assignments that a search tries first."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def describe_space(
    payload: Path, task_id: str, target: str, threads: int, templates: Path | None, variant: str, watch: Watcher
) -> SpaceDescription:
    """The space of one task. Raises PayloadError for a task that is not there or can't be tuned."""
    plain = targets.resolve(target, threads)
    chosen = variant_named(plain, templates, variant)
    resolved = chosen.on(plain)
    known = templates_for(resolved, templates)
    with open_workbench(resolved, watch) as bench:
        tasks = cut(load_payload(payload, resolved, bench.workdir, variant=chosen), resolved, bench.workdir)
        task = _find(tasks, task_id, payload)
        space = space_of(task, known, resolved)
    if isinstance(space, str):
        raise PayloadError(f"task {task_id} ({task.label}) can't be tuned: {space}")
    if space.note:
        watch(Warn(space.note))
    return SpaceDescription(
        task.id,
        task.label,
        space.size,
        tuple(_described(part) for part in space.parts.values()),
        tuple({"template": prior.template, **prior.knobs} for prior in space.priors()),
    )


def _find(tasks: Sequence[Task], task_id: str, payload: Path) -> Task:
    for task in tasks:
        if task.id == task_id:
            return task
    ids = ", ".join(task.id for task in tasks) or "none"
    raise PayloadError(f"--task {task_id}: {payload} has no such task; it has {ids}")


def _described(part: TemplateSpace) -> TemplateDescription:
    return TemplateDescription(
        id=part.template.id,
        path=str(part.template.path),
        knobs=tuple(KnobDescription(knob.name, knob.values, knob.default) for knob in part.knobs),
        constraints=tuple(described(assertion, part.dims) for assertion in part.template.declarations.assertions),
        valid=part.size,
        total=part.total,
        derived=derived_texts(part.template),
    )

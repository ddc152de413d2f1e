"""Build candidates for a device that isn't here, and rank them by what their code tells.

What is built can be measured elsewhere: the artifacts and how to call them go to a `BundleWriter`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mlsearch import target as targets
from mlsearch.candidate import (
    BuildFailed,
    BuildOutcome,
    BuildRequest,
    BuildTimeout,
    Built,
    Candidate,
    KnobValue,
    OverLimits,
    Spilled,
    median,
)
from mlsearch.cuda.chips import Chip
from mlsearch.cuda.cost import Estimate, estimate
from mlsearch.cuda.statics import StaticFeatures, Statics, examine
from mlsearch.errors import MlsearchError, TargetError
from mlsearch.events import CandidateBuilt, Step, Warn, Watcher
from mlsearch.files import write_atomically
from mlsearch.ir.dispatch import configured_levels
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.task import Task, cut
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.trials import build_request
from mlsearch.workbench import Workbench, open_workbench

COMPILE_LIMIT_S = 60.0
"""Of one candidate. Code that spills takes up to half of it; nothing else comes near."""


@dataclass(frozen=True)
class BuiltCandidate:
    """A candidate that compiled, and that the chip can run."""

    candidate: Candidate
    artifact: Path
    artifact_digest: str
    compile_s: float
    features: StaticFeatures | None
    """None where the artifact has no kernel to read."""
    estimate: Estimate | None


@dataclass(frozen=True)
class BuiltTask:
    """A task with what was built for it."""

    task: Task
    untuned: BuiltCandidate
    ranked: tuple[BuiltCandidate, ...]
    """By estimate, fastest first; those without an estimate last. Without the untuned one."""
    space_size: int
    outcomes: dict[str, int]
    """Count of each outcome, `Built` among them, the untuned one not counted."""
    compile_s: float
    """Sum over all asked candidates."""
    spilling_s: float
    """What of it went to candidates that turned out to spill."""
    wall_s: float

    @property
    def asked(self) -> int:
        return sum(self.outcomes.values())

    @property
    def compiled(self) -> int:
        return sum(self.outcomes.get(name, 0) for name in ("Built", "Spilled", "OverLimits"))


class BundleWriter(Protocol):
    def __call__(self, options: TuneOptions, target: targets.Target, built: Sequence[BuiltTask]) -> Path:
        """Write what is needed to measure these elsewhere; gives the file's path."""


@dataclass(frozen=True)
class AheadSummary:
    payload: str
    target: str
    hardware: str
    target_fingerprint: str
    seed: int
    tasks: tuple[BuiltTask, ...]
    not_tunable: tuple[tuple[str, str], ...]
    """(task, reason)."""
    ranking: Path
    bundle: Path | None
    missing: str
    """What could not be found out of the code, and why; empty if nothing."""

    def to_json(self) -> dict[str, Any]:
        return {
            "payload": self.payload,
            "target": self.target,
            "hardware": self.hardware,
            "target_fingerprint": self.target_fingerprint,
            "seed": self.seed,
            "missing": self.missing,
            "bundle": None if self.bundle is None else str(self.bundle),
            "not_tunable": [{"task": task, "reason": reason} for task, reason in self.not_tunable],
            "tasks": [_task_json(built) for built in self.tasks],
        }


def build_ahead(options: TuneOptions, watch: Watcher, write_bundle: BundleWriter | None = None) -> AheadSummary:
    """Build `options.trials` candidates of each task for a GPU, the untuned one among them, and rank them.

    Writes the ranking beside `options.output`, as JSON; no spec, since nothing is measured. Raises MlsearchError.
    """
    target = targets.resolve(options.target, options.threads)
    if target.chip is None:
        raise TargetError(f"--no-device is for GPU targets; {options.target} is measured here")
    templates = templates_for(target, options.templates)
    with open_workbench(target, watch, jobs=options.jobs, seed=options.seed, workdir=options.workdir) as bench:
        watch(Step("compiling the payload to dispatches"))
        with bench.compiling():
            payload = load_payload(options.payload, target, bench.workdir, options.function)
            watch(Step("cutting the payload into tasks"))
            tasks = cut(payload, target, bench.workdir)
        built: list[BuiltTask] = []
        idle: list[tuple[str, str]] = []
        for task in tasks:
            watch(Step(f"laying out the space of {task.id} ({task.label})"))
            space = space_of(task, templates, target)
            try:
                if isinstance(space, str):
                    raise MlsearchError(space)
                if space.note:
                    watch(Warn(space.note))
                built.append(_build_task(bench, task, space, target.chip, options))
            except MlsearchError as reason:
                idle.append((task.id, str(reason)))
        bundle = write_bundle(options, target, built) if write_bundle and built else None
        missing = next((each.untuned.features.missing for each in built if each.untuned.features), "")
        if missing:
            watch(Warn(missing))
        summary = AheadSummary(
            payload=str(options.payload),
            target=options.target,
            hardware=target.hardware.name,
            target_fingerprint=target.fingerprint,
            seed=options.seed,
            tasks=tuple(built),
            not_tunable=tuple(idle),
            ranking=options.output.with_suffix(".ranking.json"),
            bundle=bundle,
            missing=missing,
        )
    write_atomically(summary.ranking, json.dumps(summary.to_json(), indent=1) + "\n")
    return summary


def _build_task(bench: Workbench, task: Task, space: Space, chip: Chip, options: TuneOptions) -> BuiltTask:
    assert task.module is not None
    untuned_request = BuildRequest(
        f"{task.id}-untuned", task.module, None, (), bench.target.compile_flags, 10 * COMPILE_LIMIT_S
    )
    untuned = bench.build_one(untuned_request)
    if not isinstance(untuned, Built):
        raise MlsearchError(f"it does not compile alone: {getattr(untuned, 'message', type(untuned).__name__)}")
    count = (options.trials_per_task or 1) - 1
    candidates = {f"{task.id}-{each.key}": each for each in chosen(space, count, options.seed)}
    requests = [build_request(bench, task, space, each, COMPILE_LIMIT_S) for each in candidates.values()]
    began = bench.stopwatch.wall_s
    outcomes: Counter[str] = Counter()
    compile_s = spilling_s = 0.0
    ranked: list[BuiltCandidate] = []
    for request, outcome in bench.build(requests):
        candidate = candidates[request.key]
        seconds = _seconds(outcome)
        compile_s += seconds
        statics = _statics(outcome, chip)
        name = type(statics if isinstance(statics, Spilled | OverLimits) else outcome).__name__
        outcomes[name] += 1
        if isinstance(statics, Spilled):
            spilling_s += seconds
        elif isinstance(outcome, Built) and not isinstance(statics, OverLimits):
            ranked.append(_ranked(task, candidate, outcome, statics, space.block_tile(candidate), chip))
        assignment = " ".join(f"{knob}={value}" for knob, value in candidate.assignment)
        done = sum(outcomes.values())
        bench.watch(CandidateBuilt(task.id, done, len(requests), name, seconds, assignment))
    return BuiltTask(
        task=task,
        untuned=_ranked(task, Candidate.untuned(), untuned, _statics(untuned, chip), _untuned_tile(task), chip),
        ranked=tuple(sorted(ranked, key=_order)),
        space_size=space.size,
        outcomes=dict(outcomes),
        compile_s=compile_s,
        spilling_s=spilling_s,
        wall_s=bench.stopwatch.wall_s - began,
    )


def chosen(space: Space, count: int, seed: int) -> list[Candidate]:
    """What to build: the templates' own suggestions first, then uniformly drawn ones, all distinct."""
    found = {each.key: each for each in space.priors()[: count // 4]}
    rng = np.random.default_rng(seed)
    while len(found) < min(count, space.size):
        before = len(found)
        found |= {each.key: each for each in space.sample(rng, count - len(found))}
        if len(found) == before:
            break
    return list(found.values())


def _statics(outcome: BuildOutcome, chip: Chip) -> Statics | None:
    return examine(outcome.artifact.read_bytes(), chip, outcome.compile_s) if isinstance(outcome, Built) else None


def _seconds(outcome: BuildOutcome) -> float:
    match outcome:
        case BuildTimeout(timeout_s=seconds):
            return seconds
        case Built(compile_s=seconds) | BuildFailed(compile_s=seconds):
            return seconds
        case _:
            return outcome.compile_s


def _ranked(
    task: Task,
    candidate: Candidate,
    built: Built,
    statics: Statics | None,
    block_tile: Sequence[int] | None,
    chip: Chip,
) -> BuiltCandidate:
    features = statics if isinstance(statics, StaticFeatures) else None
    assert task.workload is not None
    guess = estimate(task.workload, block_tile, features, chip) if features and block_tile else None
    return BuiltCandidate(candidate, built.artifact, built.artifact_digest, built.compile_s, features, guess)


def _untuned_tile(task: Task) -> tuple[int, ...] | None:
    """A workgroup's tile as IREE chooses it, if its op still has the loops of the task's."""
    assert task.workload is not None
    tile = configured_levels(task.late_view).get("workgroup") if task.late_view else None
    return tile if tile and len(tile) == len(task.workload.loops) else None


def _order(built: BuiltCandidate) -> tuple[float, str]:
    return (built.estimate.time_us if built.estimate else float("inf"), built.candidate.key)


def _task_json(built: BuiltTask) -> dict[str, Any]:
    return {
        "task": built.task.id,
        "label": built.task.label,
        "space_size": built.space_size,
        "outcomes": built.outcomes,
        "compile_s": built.compile_s,
        "spilling_s": built.spilling_s,
        "wall_s": built.wall_s,
        "median_compile_s": median(tuple(each.compile_s for each in built.ranked)) if built.ranked else None,
        "untuned": _candidate_json(built.untuned),
        "ranking": [_candidate_json(each) for each in built.ranked],
    }


def _candidate_json(built: BuiltCandidate) -> dict[str, Any]:
    knobs: dict[str, KnobValue] = built.candidate.knobs
    return {
        "template": built.candidate.template,
        "assignment": knobs,
        "key": built.candidate.key,
        "artifact_digest": built.artifact_digest,
        "compile_s": built.compile_s,
        "estimate": asdict(built.estimate) if built.estimate else None,
        "features": asdict(built.features) if built.features else None,
    }

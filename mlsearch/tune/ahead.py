"""Build candidates for a device that isn't here, and rank them by what their code tells.

What is built can be measured elsewhere: the artifacts and how to call them go to a `BundleWriter`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from mlsearch import target as targets
from mlsearch.candidate import BuildRequest, Built, Candidate, KnobValue, median
from mlsearch.code_features import StaticFeatures
from mlsearch.cuda.chips import Chip
from mlsearch.cuda.cost import Estimate, estimate
from mlsearch.cuda.statics import examine
from mlsearch.errors import MlsearchError, TargetError, TaskError
from mlsearch.events import Step, Warn, Watcher
from mlsearch.files import write_atomically
from mlsearch.ir.dispatch import configured_levels
from mlsearch.payload import load_payload
from mlsearch.records.store import Store
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.task import Task, cut
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.unmeasured import CARRIED, FindArtifact, SearchOptions, Spent, UnmeasuredSearch, Waiting
from mlsearch.variant import EVERY, variants_for
from mlsearch.workbench import Workbench, open_workbench

COMPILE_LIMIT_S = 60.0
"""Of one candidate. Code that spills takes up to half of it; nothing else comes near."""


@dataclass(frozen=True)
class BuiltCandidate:
    """A candidate that compiled, and that the chip can run."""

    waiting: Waiting
    estimate: Estimate | None

    @property
    def candidate(self) -> Candidate:
        return self.waiting.candidate

    @property
    def features(self) -> StaticFeatures | None:
        """None where the artifact has no kernel to read."""
        return self.waiting.features

    @property
    def compile_s(self) -> float:
        return self.waiting.compile_s


@dataclass(frozen=True)
class BuiltTask:
    """A task with what was built for it."""

    task: Task
    untuned: BuiltCandidate
    carried: tuple[BuiltCandidate, ...]
    """The fastest of those that were measured on the device: to be measured again beside the others."""
    ranked: tuple[BuiltCandidate, ...]
    """Those that wait to be measured, by estimate, fastest first; those without an estimate last."""
    space_size: int
    known: int
    """Candidates that earlier runs have tried: these are not compiled again."""
    spent: Spent
    wall_s: float
    interrupted: bool

    @property
    def asked(self) -> int:
        return self.spent.asked

    @property
    def compiled(self) -> int:
        return sum(self.spent.outcomes.get(name, 0) for name in ("Unmeasured", "Spilled", "OverLimits", "Measured"))


class BundleWriter(Protocol):
    def __call__(self, options: TuneOptions, target: targets.Target, built: Sequence[BuiltTask]) -> Path:
        """Write what is needed to measure these elsewhere; gives the file's path."""


class ArtifactKeeper(Protocol):
    def __call__(self, folder: Path) -> FindArtifact:
        """Finds artifacts that an earlier run has kept, and puts them into the folder."""


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
    spec: Path
    """Where one is to go, once the bundle was measured."""
    ranking: Path
    bundle: Path | None
    missing: str
    """What could not be found out of the code, and why; empty if nothing."""
    interrupted: bool

    def to_json(self) -> dict[str, Any]:
        return {
            "payload": self.payload,
            "target": self.target,
            "hardware": self.hardware,
            "target_fingerprint": self.target_fingerprint,
            "seed": self.seed,
            "missing": self.missing,
            "interrupted": self.interrupted,
            "bundle": None if self.bundle is None else str(self.bundle),
            "not_tunable": [{"task": task, "reason": reason} for task, reason in self.not_tunable],
            "tasks": [_task_json(built) for built in self.tasks],
        }


def build_ahead(
    options: TuneOptions,
    watch: Watcher,
    write_bundle: BundleWriter | None = None,
    kept: ArtifactKeeper | None = None,
) -> AheadSummary:
    """Build `options.trials` candidates of each task for a GPU, the untuned one and those of earlier runs among them,
    or as many as `options.max_time_s` allows, and rank them. What was learned goes into the store. Ctrl-C ends the
    search: what was built until then is ranked and bundled, of the tasks after it what earlier runs have built.

    Writes the ranking beside `options.output`, as JSON; no spec, since nothing is measured. Raises MlsearchError.
    """
    target = targets.resolve(options.target, options.threads)
    if target.chip is None:
        raise TargetError(f"--no-device is for GPU targets; {options.target} is measured here")
    templates = templates_for(target, options.templates)
    if options.variants != EVERY and len(variants_for(target, options.templates, options.variants)) > 1:
        raise MlsearchError(f"--variants {options.variants!r}: with --no-device the payload is built as it is")
    store = Store.open(options.store)
    with open_workbench(
        target, watch, jobs=options.jobs, seed=options.seed, cache=options.cache, workdir=options.workdir
    ) as bench:
        watch(Step("compiling the payload to dispatches"))
        with bench.compiling():
            payload = load_payload(options.payload, target, bench.workdir, options.function)
            watch(Step("cutting the payload into tasks"))
            tasks = cut(payload, target, bench.workdir)
        built: list[BuiltTask] = []
        idle: list[tuple[str, str]] = []
        budget = _Budget(options.trials_per_task, options.max_time_s, sum(task.module is not None for task in tasks))
        for task in tasks:
            watch(Step(f"laying out the space of {task.id} ({task.label})"))
            space = space_of(task, templates, target)
            try:
                if isinstance(space, str):
                    raise TaskError(space)
                if space.note:
                    watch(Warn(space.note))
                keeps = (kept or _nothing_kept) if write_bundle else None
                done = _build_task(bench, store, task, space, target.chip, options, budget, keeps)
                built.append(done)
                budget = budget.after(done)
            except TaskError as reason:
                idle.append((task.id, str(reason)))
                budget = budget.after(None) if task.module is not None else budget
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
            spec=options.output,
            ranking=ranking_path(options),
            bundle=bundle,
            missing=missing,
            interrupted=any(each.interrupted for each in built),
        )
    write_atomically(summary.ranking, json.dumps(summary.to_json(), indent=1) + "\n")
    return summary


def ranking_path(options: TuneOptions) -> Path:
    return options.output.with_suffix(".ranking.json")


@dataclass(frozen=True)
class _Budget:
    """What is left for the tasks that are left. How long they take untuned is not known, so they have equal shares."""

    trials: int | None
    """Per task, the untuned build among them."""
    seconds: float | None
    tasks: int

    @property
    def seconds_of_next(self) -> float | None:
        return None if self.seconds is None else max(0.0, self.seconds) / max(1, self.tasks)

    def after(self, built: BuiltTask | None) -> _Budget:
        """After the next one; an interrupted one leaves nothing."""
        if built is not None and built.interrupted:
            return _Budget(0, None, self.tasks - 1)
        spent = built.spent.search_s if built else 0.0
        return _Budget(self.trials, None if self.seconds is None else self.seconds - spent, self.tasks - 1)


def _nothing_kept(folder: Path) -> FindArtifact:
    return lambda sha256: None


def _build_task(
    bench: Workbench,
    store: Store,
    task: Task,
    space: Space,
    chip: Chip,
    options: TuneOptions,
    budget: _Budget,
    keeps: ArtifactKeeper | None,
) -> BuiltTask:
    assert task.module is not None
    untuned_request = BuildRequest(
        f"{task.id}-untuned", task.module, None, (), bench.target.compile_flags, 10 * COMPILE_LIMIT_S
    )
    untuned = bench.build_one(untuned_request)
    if not isinstance(untuned, Built):
        raise TaskError(f"it does not compile alone: {getattr(untuned, 'message', type(untuned).__name__)}")
    asked = SearchOptions(
        options.study, options.sampler, options.seed, options.surrogate, options.jobs, COMPILE_LIMIT_S
    )
    search = UnmeasuredSearch(bench, store, asked, task, space)
    known = search.tried
    began = bench.stopwatch.wall_s
    interrupted = False
    try:
        search.run(
            None if budget.trials is None else max(0, budget.trials - 1 - known),
            budget.seconds_of_next,
        )
    except KeyboardInterrupt:
        interrupted = True
    wall_s = bench.stopwatch.wall_s - began
    waiting = [_ranked(task, each, space.block_tile(each.candidate), chip) for each in search.waiting()]
    carried = [_ranked(task, each, space.block_tile(each.candidate), chip) for each in search.fastest(CARRIED)]
    ready = {}
    if keeps is not None:
        find = keeps(bench.workdir)
        ready = {
            each.candidate.key: each
            for each in search.with_artifacts([each.waiting for each in (*carried, *waiting)], find)
        }
    ranked = tuple(sorted((_with_artifact(each, ready) for each in waiting), key=_order))
    told = _statics(untuned, chip)
    own = Waiting(Candidate.untuned(), untuned.artifact_digest, untuned.compile_s, told, None, untuned.artifact)
    return BuiltTask(
        task=task,
        untuned=_ranked(task, own, _untuned_tile(task), chip),
        carried=tuple(_with_artifact(each, ready) for each in carried),
        ranked=ranked,
        space_size=space.size,
        known=known,
        spent=search.spent(),
        wall_s=wall_s,
        interrupted=interrupted,
    )


def _with_artifact(built: BuiltCandidate, ready: Mapping[str, Waiting]) -> BuiltCandidate:
    return replace(built, waiting=ready.get(built.candidate.key, built.waiting))


def _statics(outcome: Built, chip: Chip) -> StaticFeatures | None:
    told = examine(outcome.artifact.read_bytes(), chip, outcome.compile_s)
    return told if isinstance(told, StaticFeatures) else None


def _ranked(task: Task, waiting: Waiting, block_tile: Sequence[int] | None, chip: Chip) -> BuiltCandidate:
    assert task.workload is not None
    features = waiting.features
    guess = estimate(task.workload, block_tile, features, chip) if features and block_tile else None
    return BuiltCandidate(waiting, guess)


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
        "known": built.known,
        "outcomes": built.spent.outcomes,
        "reasons": built.spent.reasons,
        "pruned": built.spent.pruned,
        "compile_s": built.spent.compile_s,
        "spilling_s": built.spent.spilling_s,
        "wall_s": built.wall_s,
        "median_compile_s": median(tuple(each.compile_s for each in built.ranked)) if built.ranked else None,
        "untuned": _candidate_json(built.untuned),
        "carried": [_candidate_json(each) for each in built.carried],
        "ranking": [_candidate_json(each) for each in built.ranked],
    }


def _candidate_json(built: BuiltCandidate) -> dict[str, Any]:
    knobs: dict[str, KnobValue] = built.candidate.knobs
    return {
        "template": built.candidate.template,
        "assignment": knobs,
        "key": built.candidate.key,
        "artifact_digest": built.waiting.artifact_digest,
        "compile_s": built.compile_s,
        "estimate": asdict(built.estimate) if built.estimate else None,
        "features": asdict(built.features) if built.features else None,
    }

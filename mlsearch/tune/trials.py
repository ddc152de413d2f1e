"""The search of one task: ask, build, run, tell, refit, until trials or time are used up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mlsearch.candidate import (
    BuildFailed,
    BuildRequest,
    BuildTimeout,
    Built,
    CacheState,
    Candidate,
    Measured,
    Record,
    RunRequest,
    TrialOutcome,
    Unmeasured,
    digest,
    reason,
)
from mlsearch.errors import TaskError, TemplateError
from mlsearch.events import SurrogateState, TaskStarted, TrialDone
from mlsearch.ir.library import library_text
from mlsearch.records import codec
from mlsearch.records.store import Store
from mlsearch.search.base import Asked, CandidateFilter, KeepFirst, Proposer
from mlsearch.search.make import make_proposer
from mlsearch.space.space import Space
from mlsearch.surrogate.base import Extractor
from mlsearch.surrogate.features import FeatureExtractor, options_in
from mlsearch.surrogate.gate import Gate
from mlsearch.surrogate.gpu_features import GpuFeatureExtractor
from mlsearch.surrogate.trees import TreeSurrogate
from mlsearch.target import Target, compiler_version, host_cores
from mlsearch.task import Task
from mlsearch.tune.options import TuneOptions
from mlsearch.workbench import Workbench
from mlsearch.workload import Tiling, Workload

LONG_CALL_US = 100_000.0
"""A program that takes longer is called as seldom as possible: what noise there is in it is small beside it."""
GIVE_UP_FACTOR = 5.0
"""A candidate whose first run takes so many times the best is timed once and let go."""
FINALISTS_KEPT = 6
"""Artifacts of so many of the best candidates stay on disk for the paired runs."""
REFIT_GROWTH = 1.1
"""The model is fitted anew once there are so many times the trials: at first after each batch, later every few, when
fitting takes longer and tells less that is new."""
_SAMPLED_FOR_OPTIONS = 128
_SEARCHED = "mlsearch:searched_s"


@dataclass(frozen=True)
class Baseline:
    """The untuned build of a task."""

    artifact: Path
    artifact_digest: str
    compile_s: float
    measured: Measured

    @property
    def time_us(self) -> float:
        return self.measured.time_us


@dataclass(frozen=True)
class Found:
    """A measured candidate; `artifact` is None where it has to be built again."""

    candidate: Candidate
    time_us: float
    artifact: Path | None
    artifact_digest: str | None


@dataclass(frozen=True)
class SearchResult:
    best: tuple[Found, ...]
    """The fastest ones, the untuned one left out, fastest first."""
    outcomes: dict[str, int]
    trials: int
    baseline_samples_us: tuple[float, ...]
    """Of the untuned build, taken between the candidates."""
    searched_s: float
    """Spent on this study's search, earlier runs included."""


@dataclass(frozen=True)
class Limits:
    trials: int | None
    """Of the study, earlier runs included."""
    seconds: float | None
    """Of this study's search, earlier runs included."""


def build_request(
    bench: Workbench, task: Task, space: Space, candidate: Candidate, timeout_s: float
) -> BuildRequest | BuildFailed:
    """What makes a candidate an artifact, through the same library that a spec is made of."""
    assert task.module is not None
    try:
        library = library_text([space.entry(task.entry_name, candidate)])
    except TemplateError as reason:
        # The compiler does not turn every assignment of its own spaces into a configuration.
        return BuildFailed("library", str(reason), None, (), 0.0)
    return BuildRequest(
        key=f"{task.id}-{candidate.key}",
        module=task.module,
        library=library,
        entries=(task.entry_name,),
        flags=bench.target.compile_flags,
        timeout_s=timeout_s,
    )


def compile_limit_s(baseline: Baseline | Built) -> float:
    """A candidate that compiles so much longer than the untuned build is not worth waiting for."""
    return max(20.0, 20.0 * baseline.compile_s)


class TaskSearch:
    """One task's study, from where it stands to where its limits are reached."""

    def __init__(
        self,
        bench: Workbench,
        store: Store,
        options: TuneOptions,
        task: Task,
        space: Space,
        baseline: Baseline,
    ) -> None:
        assert task.workload is not None and task.signature is not None
        self._bench, self._task, self._space, self._baseline = bench, task, space, baseline
        self._workload, self._signature = task.workload, task.signature
        self._store, self._options = store, options
        self._study = store.study(
            study_name(bench.target, options.study, task, space, bench.cache),
            identity={"workload": task.workload.key, "target": bench.target.fingerprint},
            notes={"label": task.workload.label, "compiler": compiler_version()},
        )
        self._gate = _gate_for(bench, options, self._workload, space)
        gate: CandidateFilter = self._gate or KeepFirst()
        self._proposer: Proposer = make_proposer(options.sampler, space, self._study, options.seed, gate)
        self._best: list[Found] = []
        self._outcomes: Counter[str] = Counter()
        self._trials = self._fitted_at = 0
        self._has_untuned = False
        self._best_us = baseline.time_us
        self._baseline_samples: list[float] = list(baseline.measured.samples_us)
        self._searched_before_s = float(self._study.user_attrs.get(_SEARCHED, 0.0))
        self._began: float | None = None
        """On the clock, while `run` is at it."""
        self._trials_before = 0
        self._is_taken_up = self._is_exhausted = False

    def run(self, limits: Limits, position: int, of: int) -> SearchResult:
        """Search until a limit is reached or the space is exhausted; Ctrl-C goes through, with all that ended
        before it kept (see `result`). The task is number `position` of `of`. With wider limits it goes on where it
        ended."""
        if self.has_reached(limits):
            return self.result()  # nothing to announce
        self._take_up()
        self._began, self._trials_before = time.monotonic(), self._trials
        try:
            self._search(limits, position, of)
        finally:
            self._searched_before_s = self._searched_s()
            self._began = None
        return self.result()

    def _search(self, limits: Limits, position: int, of: int) -> None:
        self._bench.watch(
            TaskStarted(
                self._task.id,
                self._task.label,
                position,
                of,
                self._baseline.time_us,
                None if limits.trials is None else max(0, limits.trials - self._trials),
                self._trials,
                self._space.size,
            )
        )
        while (count := self._batch_size(limits)) > 0:
            asked = self._proposer.ask(count)
            if not asked:
                self._is_exhausted = True
                break
            self._try(asked, limits)
            self._study.set_user_attr(_SEARCHED, self._searched_s())
            if self._gate is not None:
                if self._trials >= REFIT_GROWTH * self._fitted_at:
                    self._gate.refit()
                    self._fitted_at = self._trials
                self._bench.watch(SurrogateState(self._task.id, self._gate.is_active, self._gate.rank_skill))

    def has_reached(self, limits: Limits) -> bool:
        """`run` would do nothing more; false before the first one."""
        return self._is_taken_up and self._batch_size(limits) <= 0

    def result(self) -> SearchResult:
        outcomes = dict(self._outcomes)
        if self._gate is not None and self._gate.pruned_count:
            outcomes["Pruned"] = self._gate.pruned_count
        return SearchResult(
            tuple(self._best), outcomes, self._trials, tuple(self._baseline_samples), self._searched_s()
        )

    # ------------------------------------------------------------------------------------ one batch

    def _batch_size(self, limits: Limits) -> int:
        if self._is_exhausted:
            return 0
        if limits.seconds is not None and self._searched_s() >= limits.seconds:
            return 0
        # Enough to keep the compile processes busy, few enough to learn from what has ended.
        size = max(4, 2 * (self._options.jobs or host_cores()))
        return size if limits.trials is None else min(size, limits.trials - self._trials)

    def _try(self, asked: Sequence[Asked], limits: Limits) -> None:
        """Each asked trial is told how it ended, or withdrawn if something breaks in between."""
        open_trials = {each.candidate.key: each for each in asked}
        try:
            built: list[tuple[Asked, Built]] = []
            requests = []
            for each in asked:
                known = self._known(each.candidate)
                if known is not None:
                    self._end(open_trials.pop(each.candidate.key), known, limits, reused=True)
                    continue
                request = self._request(each.candidate)
                if isinstance(request, BuildFailed):
                    del open_trials[each.candidate.key]
                    self._end(each, self._record(each, request, request.compile_s, None), limits)
                    continue
                requests.append(request)
            by_key = {f"{self._task.id}-{key}": each for key, each in open_trials.items()}
            for request, outcome in self._bench.build(requests):
                each = by_key[request.key]
                if isinstance(outcome, Built):
                    built.append((each, outcome))
                    continue
                compile_s = outcome.timeout_s if isinstance(outcome, BuildTimeout) else outcome.compile_s
                del open_trials[each.candidate.key]
                self._end(each, self._record(each, outcome, compile_s, None), limits)
            for each, artifact in built:
                if (unfit := self._bench.unfit(artifact)) is not None:
                    del open_trials[each.candidate.key]
                    record = self._record(each, unfit, artifact.compile_s, artifact.artifact_digest)
                    self._end(each, record, limits, artifact.artifact)
                    continue
                record, reused = self._measure(each, artifact)
                del open_trials[each.candidate.key]
                self._end(each, record, limits, artifact.artifact, reused)
        finally:
            for each in open_trials.values():
                self._proposer.withdraw(each)

    def _request(self, candidate: Candidate) -> BuildRequest | BuildFailed:
        return build_request(self._bench, self._task, self._space, candidate, compile_limit_s(self._baseline))

    def _measure(self, asked: Asked, built: Built) -> tuple[Record, bool]:
        """The record of a built candidate, and whether its time comes from an equal artifact."""
        target = self._bench.target
        twin = self._store.find_artifact(
            built.artifact_digest, self._workload.key, target.fingerprint, target.threads, self._bench.cache
        )
        if twin is not None:
            return self._record(asked, twin.outcome, built.compile_s, built.artifact_digest), True
        slowest_s = 1e-6 * max(self._baseline.time_us, self._best_us)
        plan = self._bench.plan(
            give_up_us=GIVE_UP_FACTOR * self._best_us,
            # Two checked runs, a warm-up, and the samples up to the point of giving up.
            timeout_s=10.0 + 20.0 * slowest_s,
            **fewer_calls(self._baseline.time_us),
        )
        request = RunRequest(built.artifact, self._baseline.artifact, self._signature, plan)
        outcome = self._bench.run(request)
        return self._record(asked, outcome, built.compile_s, built.artifact_digest), False

    def _record(self, asked: Asked, outcome: TrialOutcome, compile_s: float, artifact: str | None) -> Record:
        provenance = self._bench.provenance(self._workload.key)
        return Record(asked.candidate, outcome, compile_s, artifact, provenance, asked.predicted)

    def _end(
        self,
        asked: Asked,
        record: Record,
        limits: Limits,
        artifact: Path | None = None,
        reused: bool = False,
    ) -> None:
        """Store a trial's end, then let everyone learn from it."""
        record = replace(record, predicted=asked.predicted)
        self._proposer.tell(asked, record.time_us, codec.to_attributes(record))
        self._learn(record, artifact)
        if isinstance(record.outcome, Measured) and not reused:
            self._baseline_samples += record.outcome.baseline_us
        self._bench.watch(
            TrialDone(
                self._task.id,
                asked.number,
                record.outcome_name,
                record.time_us,
                self._best_us,
                self._baseline.time_us,
                " ".join(f"{name}={value}" for name, value in asked.candidate.assignment),
                reused,
                self._seconds_left(limits),
            )
        )

    def _learn(self, record: Record, artifact: Path | None) -> None:
        self._trials += 1
        self._outcomes[record.outcome_name] += 1
        if self._gate is not None:
            self._gate.observe(record)
        if record.time_us is None or record.candidate.is_untuned:
            return
        self._best_us = min(self._best_us, record.time_us)
        if record.artifact_digest is not None and any(f.artifact_digest == record.artifact_digest for f in self._best):
            return  # the same code under another assignment: it would only take a finalist's place
        self._best.append(Found(record.candidate, record.time_us, artifact, record.artifact_digest))
        self._best.sort(key=lambda found: found.time_us)
        for dropped in self._best[FINALISTS_KEPT:]:
            if dropped.artifact is not None and not self._bench.keeps_files:
                dropped.artifact.unlink(missing_ok=True)
        del self._best[FINALISTS_KEPT:]

    # ------------------------------------------------------------------------------ earlier trials

    def _take_up(self) -> None:
        """What earlier runs have left in this study, and the untuned build."""
        if not self._is_taken_up:
            self._take_up_earlier()
            self._add_untuned()
            self._is_taken_up = True

    def _take_up_earlier(self) -> None:
        """Learn from what earlier runs have left in this study."""
        for stored in self._store.records(study=self._study.study_name):
            if isinstance(stored.record.outcome, Unmeasured):  # compiled where the device was not: no trial yet
                if self._gate is not None:
                    self._gate.observe(stored.record)
                continue
            self._learn(stored.record, None)
            self._has_untuned |= stored.record.candidate.is_untuned
        if self._trials and self._gate is not None:
            self._gate.refit()
            self._fitted_at = self._trials

    def _add_untuned(self) -> None:
        """The untuned build is a trial of the study, as a rule its first; later runs measure it anew but add none."""
        if self._has_untuned:
            return
        measured = self._baseline.measured
        record = Record(
            Candidate.untuned(),
            measured,
            self._baseline.compile_s,
            self._baseline.artifact_digest,
            self._bench.provenance(self._workload.key),
        )
        self._proposer.add_finished(record.candidate, measured.time_us, codec.to_attributes(record))
        self._learn(record, None)

    def _known(self, candidate: Candidate) -> Record | None:
        target = self._bench.target
        return self._store.find(
            candidate.key,
            self._workload.key,
            target.fingerprint,
            compiler_version(),
            target.threads,
            self._bench.cache,
        )

    # --------------------------------------------------------------------------------------- time

    def _searched_s(self) -> float:
        return self._searched_before_s + self._spent_s()

    def _spent_s(self) -> float:
        """By this call of `run`."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def _seconds_left(self, limits: Limits) -> float | None:
        spent = self._spent_s()
        by_time = None if limits.seconds is None else max(0.0, limits.seconds - self._searched_s())
        if limits.trials is None or self._trials < 2:
            return by_time
        tried = max(1, self._trials - self._trials_before)
        by_trials = spent / tried * (limits.trials - self._trials)
        return by_trials if by_time is None else min(by_time, by_trials)


def study_name(target: Target, study: str | None, task: Task, space: Space, cache: CacheState = "warm") -> str:
    """One study per task; another target, another set of templates or another state of the caches is another study.
    `study`: the user's prefix."""
    assert task.workload is not None
    templates = sorted(part.template.digest for part in space.parts.values())
    content = digest([target.fingerprint, templates, *([cache] if cache != "warm" else [])])
    prefix = f"{study}/" if study else ""
    return f"{prefix}{task.entry_name}-{content[:6]}"


def _gate_for(bench: Workbench, options: TuneOptions, workload: Workload, space: Space) -> Gate | None:
    return make_gate(bench.target, workload, space, options.seed) if options.surrogate else None


def make_gate(target: Target, workload: Workload, space: Space, seed: int) -> Gate:
    """A gate that has learned nothing yet."""
    # What no candidate of the sample shows gets no column of its own.
    seen = [*space.priors(), *space.sample(np.random.default_rng(seed), _SAMPLED_FOR_OPTIONS)]
    sample = [_described(space, candidate) for candidate in seen]
    extractor: Extractor
    if target.chip is not None:
        extractor = GpuFeatureExtractor(workload, target.chip, options_in(sample))
    else:
        extractor = FeatureExtractor(workload, target.hardware, threads=target.threads, options=options_in(sample))
    return Gate(
        lambda candidate: None if candidate.is_untuned else _described(space, candidate),
        extractor,
        TreeSurrogate(seed),
        seed=seed,
        # On a CPU hardly anything fails to compile, and nothing else is known before a run.
        screens=target.chip is not None,
    )


def _described(space: Space, candidate: Candidate) -> Tiling:
    """How a candidate cuts its loops, and by which template: equal tiles of two templates are other code."""
    tiling = space.tiling(candidate)
    if len(space.parts) == 1:
        return tiling
    return replace(tiling, options=(*tiling.options, ("template", candidate.template)))


def fewer_calls(time_us: float) -> dict[str, int]:
    """What changes in the plan for a program of this time. Candidates that are fast are sampled as often as ever: a
    sample more or less is for the interval of the median to say."""
    return {"warmup": 1, "min_samples": 2} if time_us > LONG_CALL_US else {}


def measure_baseline(bench: Workbench, task: Task) -> Baseline:
    """Build and time a task untuned. Raises TaskError if it does not compile or its numbers differ from run to run;
    RunnerError if it does not run."""
    assert task.signature is not None
    built = build_untuned(bench, task)
    # A call of more than the seconds of a measurement is over after two samples; others get six at the least, because
    # fewer have no interval.
    plan = bench.plan(timeout_s=300.0, max_seconds=0.6, warmup=1, min_samples=2)
    outcome = bench.run(RunRequest(built.artifact, built.artifact, task.signature, plan))
    if not isinstance(outcome, Measured):
        raise TaskError(f"task {task.id} ({task.label}) does not run untuned: {reason(outcome)}")
    return Baseline(built.artifact, built.artifact_digest, built.compile_s, outcome)


def build_untuned(bench: Workbench, task: Task) -> Built:
    """Raises TaskError if the task does not compile alone."""
    assert task.module is not None
    request = BuildRequest(
        key=f"{task.id}-untuned",
        module=task.module,
        library=None,
        entries=(),
        flags=bench.target.compile_flags,
        timeout_s=600.0,
    )
    built = bench.build_one(request)
    if not isinstance(built, Built):
        raise TaskError(f"task {task.id} ({task.label}) does not compile alone: {reason(built)}")
    return built

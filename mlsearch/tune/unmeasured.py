"""The search of a task whose device is elsewhere: ask, build, look at the code, keep what was learned.

Times come in later, by `bundle import`, into the same study. Until then a candidate that compiled waits: its trial is
given back untried, with a record of what its code tells, so that nothing is compiled twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from mlsearch.candidate import (
    BuildFailed,
    BuildRequest,
    BuildTimeout,
    Built,
    Candidate,
    OverLimits,
    Record,
    Spilled,
    TrialOutcome,
    Unmeasured,
)
from mlsearch.code_features import StaticFeatures
from mlsearch.cuda.statics import examine
from mlsearch.events import CandidateBuilt
from mlsearch.records import codec
from mlsearch.records.store import Store
from mlsearch.search.base import Asked, CandidateFilter, KeepFirst
from mlsearch.search.make import make_proposer
from mlsearch.space.space import Space
from mlsearch.target import compiler_version, host_cores
from mlsearch.task import Task
from mlsearch.tune.trials import REFIT_GROWTH, build_request, make_gate, study_name
from mlsearch.workbench import Workbench

FindArtifact = Callable[[str], Path | None]
"""An artifact by its SHA-256, where one was kept."""

CARRIED = 2
"""So many of the fastest that were measured are measured again beside new ones: the times of single trials are noisy,
so the second fastest may be the fastest."""
_FEWEST_AT_A_TIME = 16
_BUILDING = "mlsearch:building_s"
"""Attribute of a study: seconds that its runs without the device have taken, beside those of its searches."""


@dataclass(frozen=True)
class SearchOptions:
    study: str | None
    """Prefix of the study's name."""
    sampler: str
    seed: int
    surrogate: bool
    jobs: int | None
    """Compile processes; None: all cores."""
    compile_limit_s: float


@dataclass(frozen=True)
class Waiting:
    """A candidate that compiled and may run, but has no time yet."""

    candidate: Candidate
    artifact_digest: str
    compile_s: float
    features: StaticFeatures | None
    predicted: float | None
    artifact: Path | None
    """None where an earlier run built it."""


@dataclass(frozen=True)
class Spent:
    """How this run's builds went."""

    outcomes: dict[str, int]
    """Of what was asked for in this run; `Unmeasured` ones wait."""
    reasons: dict[str, str]
    """Of outcomes with a reason, the first one's."""
    pruned: int
    """Candidates that the model passed over."""
    compile_s: float
    """Sum over all of them."""
    spilling_s: float
    """What of it went to candidates that turned out to spill."""
    search_s: float
    """All that the search took, earlier runs included."""

    @property
    def asked(self) -> int:
        return sum(self.outcomes.values())


class UnmeasuredSearch:
    """One task's study, the one that `tune` uses where the device is."""

    def __init__(self, bench: Workbench, store: Store, options: SearchOptions, task: Task, space: Space) -> None:
        assert task.workload is not None
        self._bench, self._store, self._options = bench, store, options
        self._task, self._space, self._workload = task, space, task.workload
        study = store.study(
            study_name(bench.target, options.study, task, space, bench.cache),
            identity={"workload": task.workload.key, "target": bench.target.fingerprint},
            notes={"label": task.workload.label, "compiler": compiler_version()},
        )
        self._known: dict[str, Record] = {}
        for stored in store.records(study=study.study_name):
            record = stored.record
            # Whatever came later, a time or a reason why there is none says more than that it compiles.
            if record.candidate.key not in self._known or not isinstance(record.outcome, Unmeasured):
                self._known[record.candidate.key] = record
        self._gate = make_gate(bench.target, task.workload, space, options.seed) if options.surrogate else None
        if self._gate is not None:
            for record in self._known.values():
                self._gate.observe(record)
            self._gate.refit()
        self._fitted_at = len(self._known)
        chooses: CandidateFilter = self._gate or KeepFirst()
        waiting = [key for key, record in self._known.items() if isinstance(record.outcome, Unmeasured)]
        self._proposer = make_proposer(options.sampler, space, study, options.seed, chooses, waiting)
        self._artifacts: dict[str, Path] = {}
        self._outcomes: Counter[str] = Counter()
        self._reasons: dict[str, str] = {}
        self._compile_s = self._spilling_s = 0.0
        self._study = study
        self._built_before_s = float(study.user_attrs.get(_BUILDING, 0.0))

    @property
    def tried(self) -> int:
        """Candidates that the study knows, the untuned one left out."""
        return sum(not record.candidate.is_untuned for record in self._known.values())

    def run(self, count: int | None, seconds: float | None = None) -> Spent:
        """Ask for `count` new candidates and build them, until `seconds` are over, those of earlier runs included;
        fewer if the space has no more. Ctrl-C goes through, with all that ended before it kept (see `spent`)."""
        jobs, began = self._options.jobs or host_cores(), monotonic()
        # What is being built when time is up is waited for, so there is less of it at a time.
        at_a_time = max(_FEWEST_AT_A_TIME, 8 * jobs) if seconds is None else 2 * jobs
        done = 0
        try:
            while count is None or done < count:
                if seconds is not None and self._built_before_s + monotonic() - began >= seconds:
                    break
                asked = self._proposer.ask(at_a_time if count is None else min(count - done, at_a_time))
                if not asked:
                    break
                self._build(asked, done, count)
                done += len(asked)
                if self._gate is not None and len(self._known) >= REFIT_GROWTH * self._fitted_at:
                    self._gate.refit()
                    self._fitted_at = len(self._known)
        finally:
            self._built_before_s += monotonic() - began
            self._study.set_user_attr(_BUILDING, self._built_before_s)
        return self.spent()

    def spent(self) -> Spent:
        """What this run came to so far, also if it was interrupted."""
        pruned = self._gate.pruned_count if self._gate is not None else 0
        return Spent(
            outcomes=dict(self._outcomes),
            reasons=dict(self._reasons),
            pruned=pruned,
            compile_s=self._compile_s,
            spilling_s=self._spilling_s,
            search_s=self._built_before_s,
        )

    def waiting(self) -> list[Waiting]:
        """All that compiled and have no time yet, those of earlier runs first."""
        return [self._waiting(record) for record in self._known.values() if isinstance(record.outcome, Unmeasured)]

    def fastest(self, count: int) -> list[Waiting]:
        """The fastest that were measured, fastest first: to be measured again beside new ones. Equal code once."""
        timed = [(record.time_us, record) for record in self._known.values() if record.time_us is not None]
        ranked = [record for _, record in sorted(timed, key=lambda each: each[0]) if not record.candidate.is_untuned]
        distinct = {record.artifact_digest: record for record in reversed(ranked)}
        return [self._waiting(record) for record in ranked if distinct[record.artifact_digest] is record][:count]

    def with_artifacts(self, wanted: Sequence[Waiting], find: FindArtifact) -> list[Waiting]:
        """Those with something to run, in the same order; what an earlier run built and nobody kept is built again."""
        found = {
            each.candidate.key: each if each.artifact else replace(each, artifact=find(each.artifact_digest))
            for each in wanted
        }
        requests = {}
        for each in found.values():
            if each.artifact is None:
                request = self._request(each.candidate)
                if isinstance(request, BuildRequest):
                    requests[request.key] = (request, each)
        for request, outcome in self._bench.build([request for request, _ in requests.values()]):
            each = requests[request.key][1]
            if isinstance(outcome, Built):
                found[each.candidate.key] = replace(
                    each, artifact=outcome.artifact, artifact_digest=outcome.artifact_digest
                )
        return [each for each in found.values() if each.artifact is not None]

    # -------------------------------------------------------------------------------------- one batch

    def _build(self, asked: Sequence[Asked], done: int, of: int | None) -> None:
        """Every trial is told how it ended, or given back."""
        open_trials = {each.candidate.key: each for each in asked}
        number = done
        try:
            requests: dict[str, tuple[BuildRequest, Asked]] = {}
            for each in asked:
                request = self._known_elsewhere(each) or self._request(each.candidate)
                if isinstance(request, BuildRequest):
                    requests[request.key] = (request, each)
                    continue
                number += 1
                del open_trials[each.candidate.key]
                record = request if isinstance(request, Record) else self._record(each, request, 0.0, None)
                self._end(each, record, number, of)
            for request, outcome in self._bench.build([request for request, _ in requests.values()]):
                each = requests[request.key][1]
                compile_s = outcome.timeout_s if isinstance(outcome, BuildTimeout) else outcome.compile_s
                if isinstance(outcome, Built):
                    record = self._record_of_built(each, outcome)
                else:
                    record = self._record(each, outcome, compile_s, None)
                number += 1
                del open_trials[each.candidate.key]
                self._compile_s += compile_s
                self._spilling_s += compile_s if isinstance(record.outcome, Spilled) else 0.0
                self._end(each, record, number, of)
        finally:
            for each in open_trials.values():
                self._proposer.withdraw(each)

    def _end(self, asked: Asked, record: Record, number: int, of: int | None) -> None:
        """Store a trial's end, or that it waits."""
        attributes = codec.to_attributes(record)
        if isinstance(record.outcome, Unmeasured):
            self._proposer.withdraw(asked, attributes)
        else:
            self._proposer.tell(asked, record.time_us, attributes)
        self._known[record.candidate.key] = record
        self._outcomes[record.outcome_name] += 1
        if isinstance(record.outcome, BuildFailed | OverLimits):
            self._reasons.setdefault(record.outcome_name, record.outcome.message)
        if self._gate is not None:
            self._gate.observe(record)
        knobs = " ".join(f"{name}={value}" for name, value in record.candidate.assignment)
        told = CandidateBuilt(self._task.id, number, of, record.outcome_name, record.compile_s, knobs)
        self._bench.watch(told)

    def _request(self, candidate: Candidate) -> BuildRequest | BuildFailed:
        return build_request(self._bench, self._task, self._space, candidate, self._options.compile_limit_s)

    def _known_elsewhere(self, asked: Asked) -> Record | None:
        """What another study holds of the same candidate."""
        target, key = self._bench.target, asked.candidate.key
        found = self._store.find(
            key, self._workload.key, target.fingerprint, compiler_version(), target.threads, self._bench.cache
        )
        return None if found is None else replace(found, predicted=asked.predicted)

    def _record_of_built(self, asked: Asked, built: Built) -> Record:
        """It waits, unless its code says that it need not, or an equal artifact was measured before."""
        self._artifacts[built.artifact_digest] = built.artifact
        target = self._bench.target
        twin = self._store.find_artifact(
            built.artifact_digest, self._workload.key, target.fingerprint, target.threads, self._bench.cache
        )
        outcome = self._examined(built) if twin is None else twin.outcome
        return self._record(asked, outcome, built.compile_s, built.artifact_digest)

    def _examined(self, built: Built) -> Spilled | OverLimits | Unmeasured:
        chip = self._bench.target.chip
        told = None if chip is None else examine(built.artifact.read_bytes(), chip, built.compile_s)
        return told if isinstance(told, Spilled | OverLimits) else Unmeasured(told, built.compile_s)

    def _record(self, asked: Asked, outcome: TrialOutcome, compile_s: float, artifact: str | None) -> Record:
        provenance = self._bench.provenance(self._workload.key)
        return Record(asked.candidate, outcome, compile_s, artifact, provenance, asked.predicted)

    def _waiting(self, record: Record) -> Waiting:
        assert record.artifact_digest is not None
        features = record.outcome.features if isinstance(record.outcome, Unmeasured) else None
        digest = record.artifact_digest
        return Waiting(
            record.candidate, digest, record.compile_s, features, record.predicted, self._artifacts.get(digest)
        )

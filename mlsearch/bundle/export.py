"""Candidates for every task of a payload, compiled here to be measured elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsearch import target as targets
from mlsearch.bundle.archive import BundledCandidate, BundledTask, write_bundle
from mlsearch.candidate import Built, Record, TrialOutcome
from mlsearch.errors import BundleError, MlsearchError
from mlsearch.events import Step, Watcher
from mlsearch.payload import load_payload
from mlsearch.records import codec
from mlsearch.records.store import Store
from mlsearch.search.base import Asked, Proposer
from mlsearch.search.make import make_proposer
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import compiler_version
from mlsearch.task import Task, cut
from mlsearch.tune.trials import build_request, build_untuned, compile_limit_s, make_gate, study_name
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


@dataclass(frozen=True)
class ExportedTask:
    id: str
    label: str
    asked: int
    bundled: int
    """Candidates in the bundle."""
    outcomes: dict[str, int]
    """How those ended that are not in it: they don't compile, or their time is known. These are in the store."""
    note: str = ""
    """Why nothing of it is in the bundle."""


@dataclass(frozen=True)
class Exported:
    tasks: tuple[ExportedTask, ...]
    bytes: int
    """Of the bundle."""


def export_bundle(options: ExportOptions, watch: Watcher) -> Exported:
    """Ask for candidates, compile them, write the bundle; nothing is run.

    What does not compile becomes a record in the store. What does is given back to the study untried, so another
    export may ask for the same unless `intake` has brought the measurements home. Raises MlsearchError.
    """
    target = targets.resolve(options.target, options.threads)
    templates = templates_for(target, options.templates)
    store = Store.open(options.store)
    with open_workbench(target, watch, jobs=options.jobs, seed=options.seed) as bench:
        watch(Step("cutting the payload into tasks"))
        tasks = cut(load_payload(options.payload, target, bench.workdir, options.function), target, bench.workdir)
        bundled: list[BundledTask] = []
        told: list[ExportedTask] = []
        for task in tasks:
            space = space_of(task, templates, target)
            if isinstance(space, str):
                told.append(ExportedTask(task.id, task.label, 0, 0, {}, space))
                continue
            watch(Step(f"compiling {options.trials} candidates of {task.id} ({task.label})"))
            try:
                built, summary = _TaskExport(bench, store, options, task, space).run()
            except BundleError:
                raise
            except MlsearchError as reason:
                told.append(ExportedTask(task.id, task.label, 0, 0, {}, str(reason)))
                continue
            bundled.append(built)
            told.append(summary)
        if not bundled:
            reasons = "; ".join(f"{each.id}: {each.note}" for each in told) or "it has none"
            raise BundleError(f"no task of {options.payload} can be tuned: {reasons}")
        watch(Step("writing the bundle"))
        write_bundle(options.output, target, bundled, bench.plan())
    return Exported(tuple(told), options.output.stat().st_size)


class _TaskExport:
    def __init__(self, bench: Workbench, store: Store, options: ExportOptions, task: Task, space: Space) -> None:
        assert task.workload is not None
        self._bench, self._store, self._options, self._task, self._space = bench, store, options, task, space
        self._workload = task.workload
        self._outcomes: Counter[str] = Counter()

    def run(self) -> tuple[BundledTask, ExportedTask]:
        task = self._task
        assert task.signature is not None
        untuned = build_untuned(self._bench, task)
        proposer = self._proposer()
        asked = proposer.ask(self._options.trials)
        candidates = self._build(proposer, asked, untuned)
        return (
            BundledTask(task.id, self._workload.key, task.label, task.signature, untuned, tuple(candidates)),
            ExportedTask(task.id, task.label, len(asked), len(candidates), dict(self._outcomes)),
        )

    def _proposer(self) -> Proposer:
        """On the study that `tune` uses, so that its surrogate picks once it has learned from measurements."""
        options, target = self._options, self._bench.target
        study = self._store.study(
            study_name(target, options.study, self._task, self._space),
            identity={"workload": self._workload.key, "target": target.fingerprint},
            notes={"label": self._workload.label, "compiler": compiler_version()},
        )
        if target.chip is not None:  # the features know the levels of CPU pipelines only
            return make_proposer(options.sampler, self._space, study, options.seed)
        gate = make_gate(target, self._workload, self._space, options.seed)
        known = list(self._store.records(study=study.study_name))
        for stored in known:
            gate.observe(stored.record)
        if known:
            gate.refit()
        return make_proposer(options.sampler, self._space, study, options.seed, gate)

    def _build(self, proposer: Proposer, asked: Sequence[Asked], untuned: Built) -> list[BundledCandidate]:
        """In the order asked for. Every trial is told how it ended, or withdrawn."""
        open_trials = {each.candidate.key: each for each in asked}
        built: dict[str, Built] = {}
        try:
            limit_s = compile_limit_s(untuned)
            by_request = {}
            for each in asked:
                known = self._known(each)
                if known is not None:
                    self._tell(proposer, open_trials.pop(each.candidate.key), known)
                    continue
                request = build_request(self._bench, self._task, self._space, each.candidate, limit_s)
                by_request[request.key] = (each, request)
            for request, outcome in self._bench.build([request for _, request in by_request.values()]):
                each, _ = by_request[request.key]
                if isinstance(outcome, Built):
                    record = self._twin(each, outcome)
                else:
                    compile_s = getattr(outcome, "compile_s", request.timeout_s)
                    record = self._record(each, outcome, compile_s, None)
                if record is None:
                    assert isinstance(outcome, Built)
                    built[each.candidate.key] = outcome
                else:
                    self._tell(proposer, open_trials.pop(each.candidate.key), record)
        finally:
            for each in open_trials.values():
                proposer.withdraw(each)
        return [
            BundledCandidate(each.candidate, built[each.candidate.key], each.predicted)
            for each in asked
            if each.candidate.key in built
        ]

    def _tell(self, proposer: Proposer, asked: Asked, record: Record) -> None:
        self._outcomes[record.outcome_name] += 1
        proposer.tell(asked, record.time_us, codec.to_attributes(record))

    def _known(self, asked: Asked) -> Record | None:
        """What another study holds of the same candidate."""
        target = self._bench.target
        key = asked.candidate.key
        return self._store.find(key, self._workload.key, target.fingerprint, compiler_version(), target.threads)

    def _twin(self, asked: Asked, built: Built) -> Record | None:
        """The record of a candidate whose artifact was measured before."""
        target = self._bench.target
        twin = self._store.find_artifact(built.artifact_digest, self._workload.key, target.fingerprint, target.threads)
        return None if twin is None else self._record(asked, twin.outcome, built.compile_s, built.artifact_digest)

    def _record(self, asked: Asked, outcome: TrialOutcome, compile_s: float, artifact: str | None) -> Record:
        provenance = self._bench.provenance(self._workload.key)
        return Record(asked.candidate, outcome, compile_s, artifact, provenance, asked.predicted)

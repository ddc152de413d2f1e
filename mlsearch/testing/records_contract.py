"""What every record store keeps to. Subclass `StoreContract` in a test module and say where the store is."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from abc import ABC, abstractmethod
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState, create_trial

from mlsearch.candidate import (
    BuildFailed,
    BuildTimeout,
    Candidate,
    Measured,
    NotApplied,
    Numerics,
    OverLimits,
    Provenance,
    Pruned,
    Record,
    Rejected,
    RunFailed,
    RunTimeout,
    Spilled,
    TrialOutcome,
    Unmeasured,
    WrongResult,
)
from mlsearch.code_features import Occupancy, PtxCounts, StaticFeatures
from mlsearch.errors import StoreError
from mlsearch.records import codec
from mlsearch.records.store import Store, StoredRecord
from mlsearch.trial_attributes import ABANDONED, OWNER, Owner

NUMERICS = Numerics(True, 1e-6, 0.1 + 0.2, 1e-4, 0, 512)
FEATURES = StaticFeatures(
    kernel="task_dispatch_0",
    threads=128,
    shared_bytes=4096,
    counts=PtxCounts("sm_90", 900, 64, 262144, 16, 8, 2, 0, 4, 4, 8, 16, 8, 8, 0, 400),
    registers=96,
    occupancy=Occupancy(5, 20, 20 / 64, "registers"),
    missing="",
)

EVERY_OUTCOME: tuple[TrialOutcome, ...] = (
    Rejected(("tile_m * tile_n <= 4096", 'footprint "L1"')),
    Pruned(3.25),
    BuildFailed("compile", "error: µ\n  second line", Path("/tmp/a b.log"), ("iree-compile", "--x=$y"), 0.5),
    BuildFailed("crash", "", None, (), 0.0),
    BuildTimeout(12.0, ("iree-compile",)),
    NotApplied(("__entry_0",), 1.25),
    Spilled(516, 255, 0.9),
    OverLimits("204800 bytes of shared memory > 166912", 1.5),
    Unmeasured(None, 0.8),
    Unmeasured(FEATURES, 0.8),
    RunFailed("killed by signal SIGSEGV", None),
    RunTimeout(30.0),
    WrongResult(replace(NUMERICS, agrees=False, max_abs_error=float("inf"), max_rel_error=float("inf"))),
    Measured((1.1, 2.2, 1 / 3), (4.4, 5.5), NUMERICS, cut_short=False),
    Measured((9e9,), (), NUMERICS, cut_short=True),
)


def record_of(outcome: TrialOutcome | None = None, **changes: object) -> Record:
    """A record like those of a real run. A name that `Provenance` has changes that, others the record."""
    provenance = Provenance(
        workload="w" * 16,
        target="t" * 16,
        compiler="3.13.0",
        runtime="3.13.0",
        mlsearch="0.1.0",
        seed=7,
        threads=1,
        when="2026-01-02T03:04:05+00:00",
    )
    inner = {name: changes.pop(name) for name in list(changes) if hasattr(provenance, name)}
    record = Record(
        candidate=Candidate.of("cpu/contraction", "d" * 16, {"tile_m": 8, "order": "m, n"}),
        outcome=outcome or Measured((2.0, 3.0, 4.0), (8.0,), NUMERICS, cut_short=False),
        compile_s=0.75,
        artifact_digest="a" * 64,
        provenance=replace(provenance, **inner),  # type: ignore[arg-type]
        predicted=None,
    )
    return replace(record, **changes)  # type: ignore[arg-type]


def put(study: optuna.Study, record: Record) -> None:
    """As a proposer does it: attribute by attribute on a running trial, which then ends."""
    trial = study.ask()
    for name, value in codec.to_attributes(record).items():
        trial.set_user_attr(name, value)
    if record.time_us is None:
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, record.time_us)


class StoreContract(ABC):
    @abstractmethod
    def location(self, folder: Path) -> str:
        """Where a store within `folder` is: a path or a URL. The same folder gives the same store."""

    @pytest.fixture
    def place(self, tmp_path: Path) -> str:
        return self.location(tmp_path)

    def test_records_come_back_equal_whatever_the_outcome(self, place: str) -> None:
        records = [record_of(outcome) for outcome in EVERY_OUTCOME]
        study = Store.open(place).study("s")
        for record in records:
            put(study, record)
        found = list(Store.open(place).records())
        assert [stored.record for stored in found] == records
        assert [stored.number for stored in found] == list(range(len(records)))

    def test_records_are_chosen_by_study_workload_and_target(self, place: str) -> None:
        store = Store.open(place)
        one, other = record_of(workload="w1", target="t1"), record_of(workload="w2", target="t2")
        put(store.study("a"), one)
        put(store.study("b"), other)
        assert list(store.records()) == [StoredRecord("a", 0, one), StoredRecord("b", 0, other)]
        assert [stored.record for stored in store.records(study="b")] == [other]
        assert [stored.record for stored in store.records(workload="w1")] == [one]
        assert [stored.record for stored in store.records(target="t2")] == [other]
        assert list(store.records(workload="w1", target="t2")) == []

    def test_an_unknown_study_is_told_with_those_that_there_are(self, place: str) -> None:
        store = Store.open(place)
        store.study("mm")
        with pytest.raises(StoreError, match=r"no study 'conv' in .*it holds: mm"):
            list(store.records(study="conv"))

    def test_find_looks_in_all_studies_and_at_all_that_makes_a_time_comparable(self, place: str) -> None:
        record = record_of()
        put(Store.open(place).study("another run"), record)
        store = Store.open(place)
        key = record.candidate.key
        same = {"workload": "w" * 16, "target": "t" * 16, "compiler": "3.13.0", "threads": 1}
        assert store.find(key, **same) == record  # type: ignore[arg-type]
        other = {"workload": "v", "target": "u", "compiler": "3.14.0", "threads": 2}
        for name, value in other.items():
            assert store.find(key, **{**same, name: value}) is None  # type: ignore[arg-type]
        assert store.find("0" * 16, **same) is None  # type: ignore[arg-type]

    def test_a_time_is_found_for_its_state_of_the_caches_only(self, place: str) -> None:
        store = Store.open(place)
        study = store.study("s")
        warm, cold = record_of(artifact_digest="b" * 64), record_of(artifact_digest="b" * 64, cache="cold")
        put(study, warm)
        put(study, cold)
        content = (warm.candidate.key, "w" * 16, "t" * 16, "3.13.0", 1)
        assert store.find(*content) == warm
        assert store.find(*content, cache="cold") == cold
        assert store.find_artifact("b" * 64, "w" * 16, "t" * 16, 1, "cold") == cold

    def test_what_was_never_run_is_found_for_any_state_of_the_caches(self, place: str) -> None:
        store = Store.open(place)
        spilled = record_of(Spilled(8, 255, 1.0))
        put(store.study("s"), spilled)
        assert store.find(spilled.candidate.key, "w" * 16, "t" * 16, "3.13.0", 1, "cold") == spilled

    def test_what_waits_to_be_measured_is_not_found(self, place: str) -> None:
        store = Store.open(place)
        waiting = record_of(Unmeasured(FEATURES, 1.0), artifact_digest="b" * 64)
        put(store.study("s"), waiting)
        assert store.find(waiting.candidate.key, "w" * 16, "t" * 16, "3.13.0", 1) is None
        assert [stored.record for stored in store.records()] == [waiting]

    @pytest.mark.parametrize("outcome", [BuildTimeout(12.0, ("iree-compile",)), RunTimeout(3.0)])
    def test_what_ran_out_of_time_is_not_found_and_does_not_hide_a_time(
        self, place: str, outcome: BuildTimeout | RunTimeout
    ) -> None:
        store = Store.open(place)
        late, timed = record_of(outcome), record_of()
        content = (timed.candidate.key, "w" * 16, "t" * 16, "3.13.0", 1)
        put(store.study("a busy machine"), late)
        assert store.find(*content) is None
        put(store.study("s"), timed)
        put(store.study("a busy machine"), late)
        assert store.find(*content) == timed

    def test_find_sees_what_was_added_since_the_store_was_opened(self, place: str) -> None:
        store = Store.open(place)
        study = store.study("s")
        record = record_of()
        assert store.find(record.candidate.key, "w" * 16, "t" * 16, "3.13.0", 1) is None
        put(study, record)
        assert store.find(record.candidate.key, "w" * 16, "t" * 16, "3.13.0", 1) == record

    def test_an_equal_artifact_is_found_by_its_digest_if_it_was_measured(self, place: str) -> None:
        store = Store.open(place)
        study = store.study("s")
        measured = record_of(artifact_digest="b" * 64)
        put(study, measured)
        put(study, record_of(RunTimeout(1.0), artifact_digest="c" * 64))
        assert store.find_artifact("b" * 64, "w" * 16, "t" * 16, 1) == measured
        assert store.find_artifact("b" * 64, "w" * 16, "t" * 16, 2) is None
        assert store.find_artifact("c" * 64, "w" * 16, "t" * 16, 1) is None

    def test_an_added_record_is_a_finished_trial(self, place: str) -> None:
        store = Store.open(place)
        study = store.study("s")
        good, bad = record_of(), record_of(RunTimeout(1.0))
        store.add(study, good)
        store.add(study, bad)
        assert [stored.record for stored in store.records()] == [good, bad]
        assert [trial.state for trial in study.trials] == [TrialState.COMPLETE, TrialState.FAIL]
        assert study.best_value == good.time_us

    def test_a_study_keeps_what_it_is_for(self, place: str) -> None:
        store = Store.open(place)
        store.study("s", {"workload": "w1"}, {"version": "0.1"})
        study = Store.open(place).study("s", {"workload": "w1"}, {"version": "0.2"})
        assert study.user_attrs == {"mlsearch:workload": "w1", "mlsearch:version": "0.2"}
        with pytest.raises(StoreError, match="study 's' is for workload w1, not w2"):
            store.study("s", {"workload": "w2"})

    def test_a_study_that_maximizes_is_refused(self, place: str) -> None:
        store = Store.open(place)
        optuna.create_study(study_name="theirs", storage=store.storage, direction="maximize")
        with pytest.raises(StoreError, match=r"study 'theirs' in .* is not one of mlsearch's"):
            store.study("theirs")

    def test_trials_of_a_killed_process_are_failed_and_those_of_a_living_one_are_not(self, place: str) -> None:
        study = Store.open(place).study("s")
        owners = [_killed_process(), Owner.this_process(), replace(_killed_process(), host="another")]
        for owner in owners:
            study.add_trial(create_trial(state=TrialState.RUNNING, user_attrs={OWNER: owner.to_attribute()}))
        study.add_trial(create_trial(state=TrialState.RUNNING))
        trials = Store.open(place).study("s").trials
        states = [trial.state for trial in trials]
        assert states == [TrialState.FAIL, TrialState.RUNNING, TrialState.RUNNING, TrialState.RUNNING]
        assert trials[0].user_attrs[ABANDONED] is True

    def test_a_record_of_a_newer_schema_is_refused_and_says_what_to_do(self, place: str) -> None:
        store = Store.open(place)
        trial = store.study("s").ask()
        trial.set_user_attr(codec.RECORD, '{"schema": 99}')
        with pytest.raises(StoreError, match=r"study 's', trial 0: .*newer mlsearch \(schema 99"):
            list(store.records())

    def test_two_processes_add_to_one_store_at_once(self, place: str) -> None:
        Store.open(place).study("s")
        command = [sys.executable, "-c", _WRITER, place]
        writers = [subprocess.Popen([*command, str(i)]) for i in range(2)]
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
        records = [stored.record for stored in Store.open(place).records()]
        assert sorted(record.provenance.seed for record in records) == list(range(40))

    def test_opening_and_making_studies_leaves_the_logging_of_the_program_alone(self, place: str) -> None:
        optuna.logging.set_verbosity(optuna.logging.INFO)
        messages: list[str] = []
        handler = _Listing(messages)
        optuna.logging.get_logger("optuna").addHandler(handler)
        try:
            Store.open(place).study("s")
            Store.open(place).study("s")
        finally:
            optuna.logging.get_logger("optuna").removeHandler(handler)
        assert messages == []
        assert optuna.logging.get_verbosity() == optuna.logging.INFO


_WRITER = """
import sys
from mlsearch.records.store import Store
from mlsearch.testing.records_contract import put, record_of
study = Store.open(sys.argv[1]).study("s")
for i in range(20):
    put(study, record_of(seed=20 * int(sys.argv[2]) + i))
"""


def _killed_process() -> Owner:
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import json; from mlsearch.trial_attributes import Owner;"
            "print(json.dumps(Owner.this_process().to_attribute()), flush=True); import time; time.sleep(60)",
        ],
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    owner = Owner.of(json.loads(process.stdout.readline()))
    assert owner is not None and not owner.is_gone()
    process.kill()
    process.wait()
    process.stdout.close()
    return owner


class _Listing(logging.Handler):
    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self._messages.append(record.getMessage())

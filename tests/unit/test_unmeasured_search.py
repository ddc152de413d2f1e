"""The search of a task whose device is elsewhere: nothing is compiled twice, what waits waits, what is known guides."""

from __future__ import annotations

from collections import Counter
from itertools import count
from pathlib import Path

import pytest
from loop_harness import Machine, key_of, search, small_task

from mlsearch.candidate import BuildFailed, Candidate, Unmeasured
from mlsearch.errors import TemplateError
from mlsearch.records.store import Store
from mlsearch.space.space import Space
from mlsearch.task import Task
from mlsearch.testing.records_contract import record_of
from mlsearch.testing.runners import measured
from mlsearch.tune import unmeasured
from mlsearch.tune.unmeasured import SearchOptions, UnmeasuredSearch

SIZE = 11
"""Of the small task's space."""
FAILED = BuildFailed("compile", "no", None, ("iree-compile",), 0.3)


@pytest.fixture
def case(tmp_path: Path) -> tuple[Task, Space, Machine]:
    task, space = small_task(tmp_path)
    return task, space, Machine(tmp_path / "work")


def begin(case: tuple[Task, Space, Machine], folder: Path, sampler: str = "random") -> UnmeasuredSearch:
    task, space, machine = case
    options = SearchOptions(None, sampler, 0, surrogate=False, jobs=1, compile_limit_s=20.0)
    return UnmeasuredSearch(machine.bench, Store.open(folder / "store.journal"), options, task, space)


def test_what_compiles_waits_and_what_does_not_is_known(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    _, space, machine = case
    bad = next(iter(space))
    machine.build_answers[key_of(bad)] = FAILED
    first = begin(case, tmp_path)
    spent = first.run(100)
    assert spent.outcomes == {"Unmeasured": SIZE - 1, "BuildFailed": 1}
    assert spent.reasons == {"BuildFailed": "no"}
    assert len(first.waiting()) == SIZE - 1 and first.tried == SIZE
    assert machine.run == Counter()


def test_no_candidate_is_built_twice_by_one_run_or_the_next(
    case: tuple[Task, Space, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = case[2]
    monkeypatch.setattr(unmeasured, "_FEWEST_AT_A_TIME", 1)  # batches of eight
    begin(case, tmp_path).run(8)
    again = begin(case, tmp_path)
    assert again.tried == 8
    assert again.run(100).asked == SIZE - 8
    assert len(machine.built) == len(set(machine.built)) == SIZE
    assert begin(case, tmp_path).run(5).asked == 0


def test_time_ends_a_search_and_that_of_earlier_runs_counts(
    case: tuple[Task, Space, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look at the clock is a second later, two candidates are built at a time."""
    clock = count()
    monkeypatch.setattr(unmeasured, "monotonic", lambda: float(next(clock)))
    first = begin(case, tmp_path).run(None, seconds=4.0)
    assert (first.asked, first.search_s) == (6, 5.0)
    assert begin(case, tmp_path).run(None, seconds=4.0).asked == 0
    assert begin(case, tmp_path).run(1, seconds=100.0).asked == 1
    assert begin(case, tmp_path).run(None, seconds=100.0).asked == SIZE - 7


def test_what_waits_is_no_trial_where_the_device_is(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    begin(case, tmp_path).run(6)
    result = search(machine, task, space, tmp_path, trials=SIZE + 1)
    # The untuned build and all others, those that wait among them.
    assert (result.trials, result.outcomes) == (SIZE + 1, {"Measured": SIZE + 1})


def test_once_it_is_measured_it_no_longer_waits(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    begin(case, tmp_path).run(SIZE)
    search(machine, task, space, tmp_path, trials=5)
    assert len(begin(case, tmp_path).waiting()) == SIZE - 4


def test_the_fastest_that_were_measured_are_told_equal_code_once(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    order = [key_of(candidate) for candidate in space]
    machine.time_us = lambda key: 100.0 + order.index(key)
    machine.digests = {order[0]: "same", order[1]: "same"}
    search(machine, task, space, tmp_path, trials=SIZE + 1)
    fastest = begin(case, tmp_path).fastest(2)
    assert key_of(fastest[0].candidate) in order[:2]
    assert key_of(fastest[1].candidate) == order[2]


def test_artifacts_that_somebody_kept_are_not_built_again(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    machine = case[2]
    begin(case, tmp_path).run(3)
    kept = tmp_path / "kept"
    kept.write_text("kept")
    later = begin(case, tmp_path)
    one, two, three = later.waiting()
    before = len(machine.built)
    ready = later.with_artifacts([three, one, two], lambda sha256: kept if sha256 == one.artifact_digest else None)
    assert [each.candidate for each in ready] == [three.candidate, one.candidate, two.candidate]
    assert ready[1].artifact == kept
    assert sorted(machine.built[before:]) == sorted([key_of(two.candidate), key_of(three.candidate)])


def test_an_assignment_that_the_compiler_refuses_is_an_outcome(
    case: tuple[Task, Space, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = case[1]
    bad, entry = next(iter(space)), space.entry

    def refusing(name: str, candidate: Candidate) -> object:
        if candidate == bad:
            raise TemplateError("the compiler does not materialize it")
        return entry(name, candidate)

    monkeypatch.setattr(space, "entry", refusing)
    assert begin(case, tmp_path).run(100).outcomes == {"Unmeasured": SIZE - 1, "BuildFailed": 1}


def test_an_interrupt_keeps_what_was_built(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    machine = case[2]

    def stop(event: object) -> None:
        machine.events.append(event)  # type: ignore[arg-type]
        if len(machine.events) == 3:
            raise KeyboardInterrupt

    object.__setattr__(machine.bench, "watch", stop)
    with pytest.raises(KeyboardInterrupt):
        begin(case, tmp_path).run(8)
    object.__setattr__(machine.bench, "watch", machine.events.append)
    assert begin(case, tmp_path).tried == 3


def test_a_measurement_says_more_than_that_it_compiles_whichever_came_first(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    search_ = begin(case, tmp_path)
    search_.run(1)
    [waiting] = search_.waiting()
    store = Store.open(tmp_path / "store.journal")
    [name] = store.study_names()
    study = store.study(name)
    for outcome in (measured(5.0), Unmeasured(None, 0.5)):
        store.add(study, record_of(outcome, candidate=waiting.candidate))
    assert begin(case, tmp_path).waiting() == []

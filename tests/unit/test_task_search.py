"""The search of one task, on a machine that only pretends."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from loop_harness import BASELINE_US, Machine, key_of, new_search, search, small_task, times_by_candidate

from mlsearch.candidate import (
    BuildFailed,
    BuildTimeout,
    Candidate,
    Measured,
    NotApplied,
    Numerics,
    RunFailed,
    RunTimeout,
    WrongResult,
)
from mlsearch.errors import MlsearchError, TemplateError
from mlsearch.events import TaskStarted, TrialDone
from mlsearch.records.store import Store
from mlsearch.space.space import Space
from mlsearch.task import Task
from mlsearch.testing.runners import measured
from mlsearch.tune.trials import Limits, measure_baseline

WRONG = Numerics(agrees=False, max_abs_error=1.0, max_rel_error=1.0, tolerance=1e-5, unwritten=3, elements=9)
FAILURES = {
    "BuildFailed": BuildFailed("compile", "x.mlir:1: error: no", None, ("iree-compile",), 0.3),
    "BuildTimeout": BuildTimeout(20.0, ("iree-compile",)),
    "NotApplied": NotApplied(("e",), 0.3),
    "RunFailed": RunFailed("it crashed", None),
    "RunTimeout": RunTimeout(10.0),
    "WrongResult": WrongResult(WRONG),
}


@pytest.fixture
def case(tmp_path: Path) -> tuple[Task, Space, Machine]:
    task, space = small_task(tmp_path)
    return task, space, Machine(tmp_path / "work")


def records(folder: Path) -> list[tuple[Candidate, str]]:
    return [
        (each.record.candidate, each.record.outcome_name) for each in Store.open(folder / "store.journal").records()
    ]


def test_the_untuned_build_is_trial_0(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    search(case[2], case[0], case[1], tmp_path, trials=4)
    stored = list(Store.open(tmp_path / "store.journal").records())
    assert (stored[0].number, stored[0].record.candidate) == (0, Candidate.untuned())
    assert stored[0].record.time_us == BASELINE_US
    assert [each.number for each in stored] == [0, 1, 2, 3]


def test_the_whole_space_is_tried_once_and_then_it_ends(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    result = search(machine, task, space, tmp_path, trials=1000)
    assert result.trials == 1 + space.size
    assert sorted(machine.built) == sorted(["t0-untuned", *(key_of(each) for each in space)])
    assert result.outcomes == {"Measured": 1 + space.size}


def test_the_fastest_come_first_and_keep_their_artifacts(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.time_us = times_by_candidate(space, 900.0, {3: 200.0, 9: 300.0})
    result = search(machine, task, space, tmp_path)
    assert [found.time_us for found in result.best[:3]] == [200.0, 300.0, 900.0]
    assert result.best[0].candidate == list(space)[3]
    assert all(found.artifact is not None and found.artifact.exists() for found in result.best)
    # The others' files are gone: a search of hundreds of trials must not fill the disk.
    assert len(list(machine.folder.glob("*.vmfb"))) == len(result.best) + 1


def test_a_known_candidate_is_not_built_again(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    search(machine, task, space, tmp_path, study="one")
    again = Machine(tmp_path / "again")
    result = search(again, task, space, tmp_path, study="other")
    assert again.built == ["t0-untuned"]
    assert result.outcomes == {"Measured": 1 + space.size}
    assert all(event.reused for event in again.events if isinstance(event, TrialDone))
    assert again.run == {"t0-untuned": 1}


def test_equal_artifacts_are_not_run_twice(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.digests = {key_of(each): "the same" for each in space}
    result = search(machine, task, space, tmp_path)
    assert sum(machine.run.values()) == 2  # the untuned one, and one for all of them
    assert result.outcomes == {"Measured": 1 + space.size}


def test_an_artifact_equal_to_the_untuned_one_has_its_time(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.digests = {key_of(each): "t0-untuned" for each in space}
    result = search(machine, task, space, tmp_path)
    assert machine.run == {"t0-untuned": 1}
    assert {found.time_us for found in result.best} == {BASELINE_US}


def test_every_kind_of_failure_is_counted_and_stored_and_the_search_goes_on(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    bad = {name: each for name, each in zip(FAILURES, space, strict=False)}
    for name, each in bad.items():
        place = machine.build_answers if name.startswith(("Build", "Not")) else machine.run_answers
        place[key_of(each)] = FAILURES[name]  # type: ignore[assignment]
    result = search(machine, task, space, tmp_path)
    assert result.outcomes == {"Measured": 1 + space.size - len(FAILURES), **dict.fromkeys(FAILURES, 1)}
    stored = dict(records(tmp_path))
    assert {name: stored[each] for name, each in bad.items()} == {name: name for name in FAILURES}
    assert not {found.candidate for found in result.best} & set(bad.values())


def test_an_assignment_that_the_compiler_refuses_is_an_outcome(
    case: tuple[Task, Space, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, space, machine = case
    bad, entry = next(iter(space)), space.entry

    def refusing(name: str, candidate: Candidate) -> object:
        if candidate == bad:
            raise TemplateError("the compiler does not materialize it")
        return entry(name, candidate)

    monkeypatch.setattr(space, "entry", refusing)
    assert search(machine, task, space, tmp_path).outcomes["BuildFailed"] == 1


def test_a_failure_is_not_tried_again(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.build_answers = {key_of(each): FAILURES["BuildFailed"] for each in space}  # type: ignore[misc]
    search(machine, task, space, tmp_path)
    again = Machine(tmp_path / "again")
    result = search(again, task, space, tmp_path, study="other")
    assert again.built == ["t0-untuned"]
    assert result.outcomes == {"Measured": 1, "BuildFailed": space.size}


def test_a_resumed_search_uses_what_is_left_of_the_budget(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    search(machine, task, space, tmp_path, trials=5)
    again = Machine(tmp_path / "again")
    result = search(again, task, space, tmp_path, trials=8)
    assert result.trials == 8
    assert len(again.built) == 1 + 3
    assert not set(again.built[1:]) & set(machine.built)
    [started] = [event for event in again.events if isinstance(event, TaskStarted)]
    assert (started.planned, started.done) == (3, 5)
    finished = Machine(tmp_path / "finished")
    assert search(finished, task, space, tmp_path, trials=8).trials == 8
    assert finished.built == ["t0-untuned"]


def test_a_resumed_search_knows_the_best_of_before(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.time_us = lambda key: 100.0
    search(machine, task, space, tmp_path, trials=3)
    again = Machine(tmp_path / "again")
    result = search(again, task, space, tmp_path, trials=4)
    assert [found.time_us for found in result.best] == [100.0, 100.0, 500.0]
    assert [found.artifact is None for found in result.best] == [True, True, False]


def test_time_is_a_limit_as_well_and_that_of_earlier_runs_counts(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    one, _ = new_search(machine, task, space, tmp_path)
    assert one.run(Limits(None, 1e-9), 1, 1).trials == 1
    two, _ = new_search(Machine(tmp_path / "again"), task, space, tmp_path)
    assert two.run(Limits(None, 30.0), 1, 1).trials == 1 + space.size


def test_an_interrupt_keeps_what_has_ended_and_gives_the_rest_back(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    running, _ = new_search(machine, task, space, tmp_path)
    calls = iter(range(100))

    def interrupt() -> None:
        if next(calls) == 2:
            raise KeyboardInterrupt

    machine.before_run = interrupt
    with pytest.raises(KeyboardInterrupt):
        running.run(Limits(100, None), 1, 1)
    assert running.result().trials == 3
    assert len(records(tmp_path)) == 3
    result = search(Machine(tmp_path / "again"), task, space, tmp_path)
    assert result.trials == 1 + space.size, "a withdrawn candidate is lost"


def test_a_slow_first_run_is_given_up_relative_to_the_best(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.time_us = lambda key: 100.0
    search(machine, task, space, tmp_path)
    limits = [request.plan.give_up_us for request in machine.runner.requests[1:]]
    assert limits[0] == 5 * BASELINE_US
    assert limits[-1] == 5 * 100.0


def test_what_the_surrogate_passes_over_is_counted_and_not_stored(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    running, _ = new_search(machine, task, space, tmp_path, surrogate=True)
    assert running._gate is not None
    running._gate.pruned_count = 17
    result = running.run(Limits(4, None), 1, 1)
    assert result.outcomes == {"Measured": 4, "Pruned": 17}
    assert result.trials == 4
    assert {name for _, name in records(tmp_path)} == {"Measured"}


def test_knobs_are_the_studys_parameters(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    search(case[2], case[0], case[1], tmp_path, trials=3)
    store = Store.open(tmp_path / "store.journal")
    [name] = store.study_names()
    trials = store.study(name).trials
    assert trials[0].params == {}
    assert set(trials[1].params) == {"tile", "count", "peel"}
    assert trials[1].value == BASELINE_US / 2
    assert trials[1].user_attrs["mlsearch:outcome"] == "Measured"


def test_a_baseline_that_does_not_compile_or_run_is_told(case: tuple[Task, Space, Machine]) -> None:
    task, _, machine = case
    machine.run_answers["t0-untuned"] = RunFailed("no device", None)
    with pytest.raises(MlsearchError, match="does not run untuned: no device"):
        measure_baseline(machine.bench, task)
    machine.build_answers["t0-untuned"] = FAILURES["BuildFailed"]  # type: ignore[assignment]
    with pytest.raises(MlsearchError, match=r"does not compile alone: x\.mlir:1: error: no"):
        measure_baseline(machine.bench, task)


def test_a_measurement_that_was_cut_short_counts_like_any_other(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    slow = Measured((9000.0,), (), RIGHT_NUMERICS, cut_short=True)
    machine.run_answers = {key_of(each): slow for each in space}
    assert search(machine, task, space, tmp_path).best[0].time_us == 9000.0


RIGHT_NUMERICS = Numerics(True, 0.0, 0.0, 1e-5, 0, 64)


def test_equal_artifacts_take_one_place_among_the_finalists(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    machine.digests = {key_of(each): "the same" for each in space}
    assert len(search(machine, task, space, tmp_path).best) == 1


def test_a_search_goes_on_where_it_ended(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    once, _ = new_search(machine, task, space, tmp_path)
    first = once.run(Limits(4, None), 1, 1)
    second = once.run(Limits(7, None), 1, 1)
    assert (first.trials, second.trials) == (4, 7)
    assert len(set(machine.built)) == len(machine.built) == 1 + 3 + 3, "nothing is built again"
    assert second.searched_s >= first.searched_s > 0
    assert all(found.artifact is not None for found in second.best)
    assert [event.done for event in machine.events if isinstance(event, TaskStarted)] == [1, 4]


def test_a_search_that_has_reached_its_limits_says_nothing_more(
    case: tuple[Task, Space, Machine], tmp_path: Path
) -> None:
    task, space, machine = case
    once, _ = new_search(machine, task, space, tmp_path)
    once.run(Limits(100, None), 1, 1)
    said = len(machine.events)
    assert once.run(Limits(200, None), 1, 1).trials == 1 + space.size, "the space is exhausted"
    assert len(machine.events) == said


def test_time_between_two_stretches_of_a_search_is_not_search_time(
    case: tuple[Task, Space, Machine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, space, machine = case
    once, _ = new_search(machine, task, space, tmp_path)
    before = once.run(Limits(4, None), 1, 1).searched_s
    real = time.monotonic
    monkeypatch.setattr("mlsearch.tune.trials.time.monotonic", lambda: real() + 1000.0)
    result = once.run(Limits(7, before + 500.0), 1, 1)
    assert result.trials == 7
    assert result.searched_s < before + 500.0


def test_long_calls_are_made_as_seldom_as_a_time_needs(case: tuple[Task, Space, Machine], tmp_path: Path) -> None:
    task, space, machine = case
    search(machine, task, space, tmp_path, trials=2)
    assert machine.runner.requests[-1].plan.min_samples == 5
    slow = Machine(tmp_path / "slow")
    slow.run_answers["t0-untuned"] = measured(1e6)
    search(slow, task, space, tmp_path / "slow", trials=2)
    plan = slow.runner.requests[-1].plan
    assert (plan.warmup, plan.min_samples) == (1, 2)

"""Finalists against the untuned build, on a machine that only pretends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from loop_harness import BASELINE_US, Machine, key_of, new_search, search, small_task, times_by_candidate
from test_task_search import WRONG

from mlsearch.candidate import BuildTimeout, Compared, CompareOutcome, CompareRequest, RunFailed
from mlsearch.space.space import Space
from mlsearch.task import Task
from mlsearch.testing.runners import RIGHT, measured
from mlsearch.tune.finals import FINALISTS, SECONDS, Winner, decide, pair_plan
from mlsearch.tune.rounds import rounds_for
from mlsearch.tune.trials import Baseline, Found, measure_baseline


@pytest.fixture
def case(tmp_path: Path) -> tuple[Task, Space, Machine, Baseline]:
    task, space = small_task(tmp_path)
    machine = Machine(tmp_path / "work")
    machine.time_us = times_by_candidate(space, 390.0, {3: 200.0, 9: 300.0})
    return task, space, machine, measure_baseline(machine.bench, task)


def found_by(machine: Machine, task: Task, space: Space, folder: Path) -> tuple[Found, ...]:
    return search(machine, task, space, folder).best


def always(
    times_us: Sequence[float], right: Sequence[bool] | None = None
) -> Callable[[CompareRequest], CompareOutcome]:
    """A comparison with these times in every round."""

    def answer(request: CompareRequest) -> CompareOutcome:
        assert len(request.artifacts) == len(times_us)
        numerics = tuple(RIGHT if ok else WRONG for ok in right or [True] * len(times_us))
        return Compared(tuple((time_us,) * request.rounds for time_us in times_us), numerics)

    return answer


def test_the_fastest_in_paired_runs_wins_and_is_measured_once_more_alone(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    # In pairs the second of the search is the faster one, and looks even better than it is.
    machine.compare_answers = [always([1000, 250, 100, 900, 900]), always([1000, 200])]
    winner = decide(machine.bench, task, space, baseline, best)
    assert isinstance(winner, Winner)
    assert winner.candidate == list(space)[9]
    assert winner.speedup.speedup == 5.0, "the speedup must come from the second comparison"
    first, second = machine.runner.comparisons
    assert len(first.artifacts) == 1 + FINALISTS
    assert second.artifacts == (baseline.artifact, winner.artifact)


def test_a_finalist_with_wrong_numbers_does_not_win(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    wrong_first = always([1000, 100, 500, 900, 900], [True, False, True, True, True])
    machine.compare_answers = [wrong_first, always([1000, 500])]
    winner = decide(machine.bench, task, space, baseline, best)
    assert isinstance(winner, Winner)
    assert winner.candidate == list(space)[9]


def test_without_a_right_finalist_there_is_no_winner(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    machine.compare_answers = [always([1000, 1, 1, 1, 1], [True, False, False, False, False])]
    assert decide(machine.bench, task, space, baseline, best) == "the finalists' numbers are wrong in a second run"
    assert decide(machine.bench, task, space, baseline, ()) == "no candidate was measured"


def test_a_winner_that_is_wrong_in_the_last_run_is_none(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    machine.compare_answers = [always([1000, 100, 200, 900, 900]), always([1000, 100], [True, False])]
    winner = decide(machine.bench, task, space, baseline, best)
    assert isinstance(winner, str)


def test_a_winner_that_is_no_faster_in_the_last_run_says_so(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    machine.compare_answers = [always([1000, 100, 200, 900, 900]), always([1000, 1000])]
    winner = decide(machine.bench, task, space, baseline, best)
    assert isinstance(winner, Winner)
    assert not winner.speedup.is_faster


def test_on_a_machine_that_got_too_busy_there_is_no_winner(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    slow = 2.5 * min(baseline.measured.samples_us)
    machine.compare_answers = [always([1000, 100, 200, 900, 900]), always([slow, slow / 2])]
    told = decide(machine.bench, task, space, baseline, best)
    assert isinstance(told, str)
    assert "too busy" in told


def test_finalists_of_a_resumed_run_are_built_again(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, _ = case
    best = tuple(replace(found, artifact=None) for found in found_by(machine, task, space, tmp_path))
    again = Machine(tmp_path / "again", machine.time_us)
    again_baseline = measure_baseline(again.bench, task)
    winner = decide(again.bench, task, space, again_baseline, best)
    assert isinstance(winner, Winner)
    assert winner.candidate == list(space)[3]
    assert sorted(again.built[1:]) == sorted(key_of(found.candidate) for found in best[:FINALISTS])


def test_a_finalist_that_does_not_build_again_is_left_out(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, _ = case
    best = tuple(replace(found, artifact=None) for found in found_by(machine, task, space, tmp_path))
    again = Machine(tmp_path / "again", machine.time_us)
    again_baseline = measure_baseline(again.bench, task)
    again.build_answers[key_of(best[0].candidate)] = BuildTimeout(1.0, ())
    winner = decide(again.bench, task, space, again_baseline, best)
    assert isinstance(winner, Winner)
    assert winner.candidate == best[1].candidate


def test_a_comparison_that_fails_is_no_crash(case: tuple[Task, Space, Machine, Baseline], tmp_path: Path) -> None:
    task, space, machine, baseline = case
    best = found_by(machine, task, space, tmp_path)
    machine.compare_answers = [lambda request: RunFailed("it broke", None)]
    told = decide(machine.bench, task, space, baseline, best)
    assert told == "the finalists could not be compared: it broke"
    machine.compare_answers = [always([1000, 1, 2, 3, 4]), lambda request: RunFailed("it broke", None)]
    assert decide(machine.bench, task, space, baseline, best) == "the winner could not be compared: it broke"


def test_the_time_limit_leaves_room_for_all_rounds(case: tuple[Task, Space, Machine, Baseline]) -> None:
    plan = pair_plan(case[2].bench, [5e6, 5e6])
    assert plan.timeout_s > 10 * rounds_for([5e6, 5e6], SECONDS)


def test_candidates_far_slower_than_the_untuned_build_have_no_finals(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    machine.time_us = lambda key: 2.1 * BASELINE_US
    told = decide(machine.bench, task, space, baseline, found_by(machine, task, space, tmp_path))
    assert told == "no candidate came near the untuned build: the best took 2.1x"
    assert machine.runner.comparisons == []


def test_candidates_a_little_slower_than_the_untuned_build_may_still_win(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, machine, baseline = case
    # The machine may have been slow when they were timed.
    machine.time_us = times_by_candidate(space, 1.9 * BASELINE_US, {3: 1.5 * BASELINE_US})
    best = found_by(machine, task, space, tmp_path)
    machine.compare_answers = [always([1000, 900, 950, 950, 950]), always([1000, 900])]
    winner = decide(machine.bench, task, space, baseline, best)
    assert isinstance(winner, Winner)
    assert winner.speedup.is_faster


def test_who_is_far_behind_the_best_is_no_finalist(case: tuple[Task, Space, Machine, Baseline], tmp_path: Path) -> None:
    task, space, machine, baseline = case
    machine.time_us = times_by_candidate(space, 410.0, {3: 200.0, 9: 300.0})
    decide(machine.bench, task, space, baseline, found_by(machine, task, space, tmp_path))
    assert [len(each.artifacts) for each in machine.runner.comparisons] == [3, 2]


@pytest.mark.parametrize(("winner_us", "rounds"), [(0.9e6, 9), (0.05e6, 6)])
def test_a_slow_task_has_few_rounds_only_if_its_winner_is_far_ahead(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path, winner_us: float, rounds: int
) -> None:
    task, space, machine, baseline = case
    best = tuple(replace(found, time_us=winner_us) for found in found_by(machine, task, space, tmp_path)[:1])
    slow = replace(baseline, measured=measured(1e6))
    machine.compare_answers = [always([1e6, winner_us]), always([1e6, winner_us])]
    winner = decide(machine.bench, task, space, slow, best)
    assert isinstance(winner, Winner)
    assert [each.rounds for each in machine.runner.comparisons] == [9, rounds]
    assert winner.speedup.is_faster


def test_new_search_measures_the_untuned_build_first(
    case: tuple[Task, Space, Machine, Baseline], tmp_path: Path
) -> None:
    task, space, _, _ = case
    machine = Machine(tmp_path / "fresh")
    _, baseline = new_search(machine, task, space, tmp_path)
    assert baseline.time_us == BASELINE_US
    assert machine.built == ["t0-untuned"]

"""All entries together in the whole payload, on a machine that only pretends."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from loop_harness import BASELINE_US, Machine, small_task, spec_entry
from test_task_search import WRONG

from mlsearch.candidate import (
    BuildFailed,
    Compared,
    CompareOutcome,
    CompareRequest,
    RunFailed,
    Signature,
    TensorSpec,
    digest,
)
from mlsearch.errors import RunnerError
from mlsearch.ir.flow import EntryFunction
from mlsearch.ir.library import library_text
from mlsearch.payload import Payload
from mlsearch.spec import SpecEntry
from mlsearch.testing.runners import RIGHT
from mlsearch.tune.whole import TO_DECIDE, TO_LOOK, TO_RANK, Care, Confirmed, compare_functions, confirm

SHAPE = TensorSpec((8, 8), "f32")
MAIN = EntryFunction("main", Signature("main", (SHAPE, SHAPE), (SHAPE,), (), 1), "")


def payload(folder: Path, *functions: EntryFunction) -> Payload:
    return Payload(folder / "p.mlir", folder / "p.flow.mlir", functions or (MAIN,))


class Case:
    """A payload with two entries, `a` and `b`, whose effects on its time are set by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machine = Machine(folder / "work")
        task, space = small_task(folder)
        self.a = spec_entry(task, space, 1, name="a", tuned_us=600.0)
        self.b = spec_entry(task, space, 2, name="b", tuned_us=300.0)
        self.times_us: dict[str, float] = {}
        self.wrong: set[str] = set()
        self.failing: set[str] = set()
        self.machine.runner._answer_compare = self._compare  # type: ignore[method-assign]

    def key(self, *entries: SpecEntry) -> str:
        return f"payload-{digest(library_text([entry.text for entry in entries]) if entries else None)}"

    def takes(self, time_us: float, *entries: SpecEntry) -> None:
        self.times_us[self.key(*entries)] = time_us

    def confirm(self, *entries: SpecEntry, functions: tuple[EntryFunction, ...] = ()) -> Confirmed:
        return confirm(self.machine.bench, payload(self.folder, *functions), entries, 8)

    def _compare(self, request: CompareRequest) -> CompareOutcome:
        keys = [artifact.stem for artifact in request.artifacts]
        for key in keys:
            if key in self.failing:
                return RunFailed("it crashed", None)
        samples = tuple((self.times_us[key],) * request.rounds for key in keys)
        return Compared(samples, tuple(WRONG if key in self.wrong else RIGHT for key in keys))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    each = Case(tmp_path)
    each.takes(1000.0)
    each.takes(600.0, each.a)
    each.takes(400.0, each.b)
    each.takes(100.0, each.a, each.b)
    return each


def names(confirmed: Confirmed) -> tuple[list[str], list[str]]:
    return [entry.name for entry in confirmed.entries], [entry.name for entry, _ in confirmed.dropped]


def test_entries_that_all_help_stay(case: Case) -> None:
    confirmed = case.confirm(case.a, case.b)
    assert names(confirmed) == (["a", "b"], [])
    assert confirmed.whole is not None
    assert (confirmed.whole.baseline_us, confirmed.whole.tuned_us, confirmed.whole.speedup) == (1000.0, 100.0, 10.0)
    assert confirmed.whole.numerics == RIGHT
    assert confirmed.whole.dropped == ()


def test_an_entry_that_makes_the_payload_slower_is_dropped(case: Case) -> None:
    case.takes(500.0, case.a, case.b)  # b alone would take 400
    confirmed = case.confirm(case.a, case.b)
    assert names(confirmed) == (["b"], ["a"])
    assert confirmed.whole is not None
    assert (confirmed.whole.tuned_us, confirmed.whole.dropped) == (400.0, ("a",))
    assert "no faster in the whole payload" in confirmed.dropped[0][1]


def test_a_single_entry_is_judged_by_the_payload_itself(case: Case) -> None:
    case.takes(1200.0, case.a)
    confirmed = case.confirm(case.a)
    assert names(confirmed) == ([], ["a"])
    assert confirmed.whole is not None
    assert confirmed.whole.tuned_us == BASELINE_US


def test_wrong_numbers_in_the_whole_payload_drop_everything(case: Case) -> None:
    case.wrong.add(case.key(case.a, case.b))
    confirmed = case.confirm(case.a, case.b)
    assert names(confirmed) == ([], ["a", "b"])
    assert confirmed.whole is not None
    assert confirmed.whole.numerics.agrees


def test_a_payload_that_does_not_run_with_the_entries_goes_without(case: Case) -> None:
    case.failing.add(case.key(case.a, case.b))
    confirmed = case.confirm(case.a, case.b)
    assert names(confirmed) == ([], ["a", "b"])
    assert "it crashed" in confirmed.dropped[0][1]


def test_a_payload_that_does_not_compile_with_the_entries_goes_without(case: Case) -> None:
    case.machine.build_answers[case.key(case.a)] = BuildFailed("compile", "error: no", None, (), 0.1)
    confirmed = case.confirm(case.a)
    assert names(confirmed) == ([], ["a"])
    assert "error: no" in confirmed.dropped[0][1]


def test_the_proof_of_application_is_asked_for(case: Case) -> None:
    case.confirm(case.a, case.b)
    assert ("a", "b") in {request.entries for request in case.machine.builder.asked}


def test_without_entries_the_payload_is_as_fast_as_it_was(case: Case) -> None:
    confirmed = case.confirm()
    assert confirmed.whole is not None
    assert confirmed.whole.speedup == 1.0


def test_a_payload_that_can_not_be_called_keeps_its_entries_unchecked_and_says_why(case: Case) -> None:
    odd = EntryFunction("odd $f", None, "i32 is not a tensor of known shape")
    confirmed = case.confirm(case.a, functions=(odd,))
    assert names(confirmed) == (["a"], [])
    assert confirmed.whole is None
    assert confirmed.note == "function 'odd $f' can't be run: i32 is not a tensor of known shape"


def test_an_untuned_payload_that_does_not_run_is_told(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_baseline(request: CompareRequest) -> CompareOutcome:
        raise RunnerError("the untuned build does not run")

    monkeypatch.setattr(case.machine.runner, "_answer_compare", no_baseline)
    confirmed = case.confirm(case.a)
    assert names(confirmed) == (["a"], [])
    assert confirmed.note == "the untuned build does not run"


def test_functions_are_summed_and_the_worst_numbers_count(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    second = EntryFunction("second", Signature("second", (SHAPE,), (SHAPE,), (), 1), "")
    plain: Callable[[CompareRequest], CompareOutcome] = case.machine.runner._answer_compare

    def answer(request: CompareRequest) -> CompareOutcome:
        told = plain(request)
        assert isinstance(told, Compared)
        if request.signature.function == "second":
            return Compared(tuple((5000.0,) * request.rounds for _ in request.artifacts), (RIGHT, WRONG))
        return told

    monkeypatch.setattr(case.machine.runner, "_answer_compare", answer)
    confirmed = case.confirm(case.a, functions=(MAIN, second))
    assert names(confirmed)[1] == ["a"], "one function's numbers were wrong"
    assert confirmed.whole is not None
    assert confirmed.whole.baseline_us == 6000.0


def test_an_interrupt_does_not_bring_back_what_was_found_wrong(case: Case) -> None:
    case.wrong.add(case.key(case.a, case.b))
    answer, asked = case._compare, []

    def then_interrupted(request: CompareRequest) -> CompareOutcome:
        asked.append(request)
        if request.artifacts[0] == request.artifacts[-1]:
            raise KeyboardInterrupt  # while the payload without any entry is timed
        return answer(request)

    case.machine.runner._answer_compare = then_interrupted  # type: ignore[method-assign]
    confirmed = case.confirm(case.a, case.b)
    assert confirmed.interrupted
    assert names(confirmed) == ([], ["a", "b"])


def test_entries_that_are_slow_together_are_not_kept_though_each_is_lost_in_noise(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing is found against either of them alone.
    monkeypatch.setattr("mlsearch.tune.whole._useless", lambda *arguments: [])
    case.takes(1100.0, case.a, case.b)
    case.takes(1100.0, case.a)
    case.takes(1100.0, case.b)
    confirmed = case.confirm(case.a, case.b)
    assert confirmed.entries == ()
    assert confirmed.whole is not None
    assert (confirmed.whole.speedup, confirmed.whole.speedup_ci95) == (1.0, (1.0, 1.0))


def test_an_untuned_payload_that_can_not_be_compared_ends_the_check(case: Case) -> None:
    case.failing.add(case.key())
    confirmed = case.confirm(case.a)
    assert confirmed.entries == ()
    assert confirmed.whole is None
    assert "it crashed" in confirmed.note


def rounds_of(case: Case, care: Care, tuned_us: float, untuned_us: float = 1000.0, **more: float) -> list[int]:
    """Of the comparisons that are made of the untuned build and one that takes `tuned_us`."""
    case.times_us |= {"untuned": untuned_us, "tuned": tuned_us}
    signature = MAIN.signature
    assert signature is not None
    compared = compare_functions(
        case.machine.bench, (Path("untuned.vmfb"), Path("tuned.vmfb")), [signature], care, **more
    )
    assert not isinstance(compared, str)
    asked = [request.rounds for request in case.machine.runner.comparisons]
    assert len(compared.samples_us[0]) == asked[-1]
    return asked


@pytest.mark.parametrize("tuned_us", [400.0, 2500.0])
def test_a_first_look_ranks_what_is_far_apart(case: Case, tuned_us: float) -> None:
    assert rounds_of(case, TO_RANK, tuned_us) == [5]


def test_what_is_near_is_ranked_by_more_than_a_look(case: Case) -> None:
    first, second = rounds_of(case, TO_RANK, 800.0)
    assert first < 6 <= second


def test_a_look_is_short_for_long_calls_and_never_followed_up(case: Case) -> None:
    assert rounds_of(case, TO_LOOK, 800.0) == [5]
    case.machine.runner.comparisons.clear()
    assert rounds_of(case, TO_LOOK, 8e5, 1e6, expected_us=1e6) == [1]


def test_a_decision_has_an_interval_however_far_apart_and_slow_the_programs_are(case: Case) -> None:
    assert rounds_of(case, TO_DECIDE, 400.0)[-1] == 41
    case.machine.runner.comparisons.clear()
    assert rounds_of(case, TO_DECIDE, 1e5, 2e6)[-1] == 6
    case.machine.runner.comparisons.clear()
    assert rounds_of(case, TO_DECIDE, 1.9e6, 2e6)[-1] == 9


def test_what_is_known_to_be_slow_is_decided_without_a_look(case: Case) -> None:
    assert rounds_of(case, TO_DECIDE, 1.9e6, 2e6, expected_us=2e6) == [9]

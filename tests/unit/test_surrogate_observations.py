from __future__ import annotations

import pytest
from surrogate_landscape import NUMERICS, PROVENANCE

from mlsearch.candidate import (
    BuildFailed,
    BuildTimeout,
    Candidate,
    Measured,
    NotApplied,
    Pruned,
    Record,
    Rejected,
    RunFailed,
    RunTimeout,
    TrialOutcome,
    WrongResult,
)
from mlsearch.surrogate.base import Observation


def lesson(outcome: TrialOutcome, compile_s: float = 0.5) -> Observation | None:
    return Observation.of(Record(Candidate.of("t", "0", {}), outcome, compile_s, None, PROVENANCE))


def test_a_measurement_teaches_its_median_time() -> None:
    measured = Measured((9.0, 7.0, 8.0), (20.0,), NUMERICS, cut_short=False)
    assert lesson(measured) == Observation("time", 8.0, 0.5)


def test_a_run_that_was_cut_short_teaches_a_bound() -> None:
    assert lesson(Measured((900.0,), (20.0,), NUMERICS, cut_short=True)) == Observation("time_bound", 900.0, 0.5)


def test_a_run_that_timed_out_teaches_its_limit_as_a_bound() -> None:
    assert lesson(RunTimeout(2.0)) == Observation("time_bound", 2e6, 0.5)


def test_a_compile_that_timed_out_teaches_how_long_it_takes_at_least() -> None:
    assert lesson(BuildTimeout(30.0, ()), compile_s=0.0) == Observation("slow_compile", None, 30.0)


@pytest.mark.parametrize(
    "outcome",
    [
        BuildFailed("compile", "", None, (), 0.5),
        NotApplied(("entry",), 0.5),
        WrongResult(NUMERICS),
        RunFailed("SIGSEGV", None),
    ],
)
def test_other_failures_teach_that_it_is_infeasible(outcome: TrialOutcome) -> None:
    assert lesson(outcome) == Observation("infeasible", None, 0.5)


@pytest.mark.parametrize("outcome", [Rejected(("tile_m is too large",)), Pruned(3.0)])
def test_what_was_never_compiled_teaches_nothing(outcome: TrialOutcome) -> None:
    assert lesson(outcome) is None

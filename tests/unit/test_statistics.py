from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from mlsearch.statistics import drift, median_interval, paired_speedup


def test_the_interval_of_few_samples_claims_nothing() -> None:
    assert median_interval([]) == (-inf, inf)
    assert median_interval([3.0, 1.0, 2.0, 5.0, 4.0]) == (-inf, inf)


# Ranks from the table of the sign test at 5 %, two-sided (critical value + 1).
@pytest.mark.parametrize(
    ("count", "rank"), [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (20, 6), (25, 8), (50, 18), (100, 40)]
)
def test_the_interval_has_the_ranks_of_the_sign_test(count: int, rank: int) -> None:
    samples = list(range(count, 0, -1))
    assert median_interval(samples) == (rank, count + 1 - rank)


def test_the_interval_of_thousands_of_samples_does_not_overflow() -> None:
    low, high = median_interval(list(range(2001)))
    assert 950 < low < 1000 < high < 1050


@pytest.mark.parametrize("count", [6, 9, 15, 40])
def test_the_interval_covers_the_median_of_a_skewed_distribution(count: int) -> None:
    rng = np.random.default_rng(5)
    samples = rng.lognormal(sigma=1.0, size=(2000, count))  # its median is 1
    covered = np.mean([low <= 1.0 <= high for low, high in map(median_interval, samples)])
    assert 0.94 <= covered <= 0.985


def test_a_speedup_is_the_median_of_the_ratios_of_the_rounds() -> None:
    baseline = [20.0, 22.0, 60.0, 20.0, 21.0, 20.0, 24.0]
    tuned = [10.0, 11.0, 20.0, 10.0, 10.0, 10.0, 12.0]
    speedup = paired_speedup(baseline, tuned)
    assert speedup.speedup == 2.0
    assert speedup.baseline_us == 21.0
    assert speedup.tuned_us == 10.0
    assert speedup.ci95 == (2.0, 3.0)
    assert speedup.is_faster


def test_a_speedup_of_five_rounds_is_not_proven() -> None:
    speedup = paired_speedup([20.0] * 5, [10.0] * 5)
    assert speedup.ci95 == (0.0, inf)
    assert not speedup.is_faster


def test_pairing_cancels_what_slows_both_runs_of_a_round() -> None:
    rng = np.random.default_rng(1)
    weather = rng.uniform(1.0, 3.0, size=30)
    speedup = paired_speedup(
        (110 * weather * rng.normal(1, 0.01, 30)).tolist(), (100 * weather * rng.normal(1, 0.01, 30)).tolist()
    )
    assert 1.08 < speedup.ci95[0] < 1.1 < speedup.ci95[1] < 1.12


@pytest.mark.parametrize(("baseline", "tuned"), [([], []), ([1.0, 2.0], [1.0]), ([1.0], [0.0]), ([nan], [1.0])])
def test_rounds_that_do_not_pair_up_are_refused(baseline: list[float], tuned: list[float]) -> None:
    with pytest.raises(ValueError):
        paired_speedup(baseline, tuned)


def test_drift_is_how_much_slower_the_slowest_quarter_was() -> None:
    assert drift([10.0] * 6 + [13.0] * 2) == pytest.approx(0.3)


def test_one_slow_sample_is_no_drift() -> None:
    assert drift([10.0] * 7 + [90.0] + [10.0] * 8) == 0.0


def test_few_samples_show_no_drift() -> None:
    assert drift([10.0, 20.0, 30.0]) == 0.0

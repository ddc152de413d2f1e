"""Intervals that assume nothing about how times are distributed. Pure NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, inf

import numpy as np

from mlsearch.summary import Speedup


def median_interval(samples: Sequence[float]) -> tuple[float, float]:
    """95 % interval of the median, by order statistics.

    The number of samples below the true median is binomial(n, 1/2) whatever the distribution, so the k-th
    smallest and the k-th largest sample enclose it with a probability that can be counted. With fewer than
    six samples even the extremes do not reach 95 %: the interval is (-inf, inf).
    """
    rank = _interval_rank(len(samples))
    if rank == 0:
        return (-inf, inf)
    ordered = np.sort(np.asarray(samples, dtype=np.float64))
    return float(ordered[rank - 1]), float(ordered[len(ordered) - rank])


def paired_speedup(baseline_us: Sequence[float], tuned_us: Sequence[float]) -> Speedup:
    """Speedup from interleaved rounds: `baseline_us[r]` and `tuned_us[r]` are of the same round.

    The ratio of a round cancels what slowed both of its runs. The interval is that of the median ratio by
    order statistics (see `median_interval`); with fewer than six rounds it is (0, inf), which claims nothing.
    Raises ValueError for no rounds, unequal lengths, or times that are not positive.
    """
    if len(baseline_us) != len(tuned_us) or not baseline_us:
        raise ValueError(f"rounds do not pair up: {len(baseline_us)} of baseline, {len(tuned_us)} tuned")
    baseline = np.asarray(baseline_us, dtype=np.float64)
    tuned = np.asarray(tuned_us, dtype=np.float64)
    if not (np.all(baseline > 0) and np.all(tuned > 0)):
        raise ValueError("a time is not positive")
    ratios = baseline / tuned
    low, high = median_interval(ratios.tolist())
    return Speedup(
        baseline_us=float(np.median(baseline)),
        tuned_us=float(np.median(tuned)),
        speedup=float(np.median(ratios)),
        ci95=(max(0.0, low), high),
    )


def drift(baseline_samples: Sequence[float]) -> float:
    """How far the machine's speed moved while these samples of one program were taken, in order.

    Largest over smallest median of the four consecutive quarters, minus 1, e.g. 0.3: some stretch was 30 %
    slower than another. Medians, so that a single slow sample is no drift. 0 for fewer than eight samples.
    """
    if len(baseline_samples) < 8:
        return 0.0
    quarters = np.array_split(np.asarray(baseline_samples, dtype=np.float64), 4)
    medians = [float(np.median(quarter)) for quarter in quarters]
    return max(medians) / min(medians) - 1.0 if min(medians) > 0 else 0.0


@lru_cache(maxsize=1024)
def _interval_rank(count: int) -> int:
    """The largest k such that the k-th smallest and k-th largest of `count` samples enclose the median with
    at least 95 % probability; 0 if there is none."""
    outside = 0
    for rank in range(count // 2 + 1):
        outside += 2 * comb(count, rank)
        # Exact integers: 2**count overflows a float at a thousand samples.
        if outside * 20 > 2**count:
            return rank
    return 0

"""When to sample, how often, and when to stop. Pure: the program and the clock are arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mlsearch.candidate import TimingMethod, TimingPlan, median
from mlsearch.statistics import median_interval

SHORT_CALL_US = 50.0
"""A shorter call is sampled as the mean of a batch: neither the clock nor one interrupt shall decide."""
MIN_SAMPLE_US = 200.0
"""A batch is made at least this long."""
SLOPE_FACTOR = 4
"""Calls in the larger of two batches over those in the smaller."""
COLD_START_US = 50_000.0
"""What a first call may cost on top: page faults of fresh buffers, first touch of code and constants."""


@dataclass(frozen=True)
class Sampled:
    samples_us: tuple[float, ...]
    cut_short: bool


def timing_method(device_uri: str) -> TimingMethod:
    """A CPU runs a call in the caller, or wakes a pool for it, which a user pays for as well. Another device is
    launched and waited for, which says nothing about a schedule."""
    return "wall" if device_uri.startswith("local-") else "slope"


def batch_size(call_us: float, plan: TimingPlan) -> int:
    """How many calls one sample spans. One in a cold measurement: the second would find a warm cache."""
    if plan.cache == "cold" or call_us >= SHORT_CALL_US:
        return 1
    return int(MIN_SAMPLE_US / max(call_us, 0.1)) + 1


def slope_us(run: Callable[[int], float], small: int, large: int) -> float:
    """Microseconds per call by the slope of two batches: of `small` and of `large` calls.

    `run(n)` makes `n` calls and gives the microseconds of all of them together. What a batch costs once, whatever its
    size, is in both and cancels. Where noise eats the difference the mean of the large batch is the answer: too high
    rather than absurd.
    """
    small_us, large_us = run(small), run(large)
    slope = (large_us - small_us) / (large - small)
    return slope if slope > 0 else large_us / large


def enough(samples_us: list[float], plan: TimingPlan, spent_s: float) -> bool:
    """Stop rule: the limit on samples or seconds is reached, or the median is known well enough."""
    count = len(samples_us)
    if count >= plan.max_samples:
        return True
    if count < plan.min_samples:
        return False
    if spent_s >= plan.max_seconds:
        return True
    middle = median(tuple(samples_us))
    low, high = median_interval(samples_us)
    return max(middle - low, high - middle) <= plan.relative_ci * middle


def collect(
    sample: Callable[[], float],
    plan: TimingPlan,
    clock: Callable[[], float],
    between: Callable[[], None] = lambda: None,
) -> Sampled:
    """Sample until `enough`. `sample` gives microseconds per call, `clock` seconds.

    `between` runs after each sample, e.g. to time the baseline; its time is not part of `max_seconds`.
    """
    samples: list[float] = []
    spent_s = 0.0
    while True:
        started = clock()
        samples.append(sample())
        spent_s += clock() - started
        between()
        if beyond(samples[0], plan.give_up_us):
            return Sampled(tuple(samples), cut_short=True)
        if enough(samples, plan, spent_s):
            return Sampled(tuple(samples), cut_short=False)


def beyond(call_us: float, give_up_us: float | None, allowance_us: float = 0.0) -> bool:
    return give_up_us is not None and call_us > give_up_us + allowance_us


class BaselineShare:
    """Rations baseline samples: at most `share` of all measuring time, yet one in `every` requests or more.

    A baseline a hundred times slower than the candidates would otherwise take most of the time. A request may
    therefore end without a baseline sample.
    """

    def __init__(self, share: float = 0.3, every: int = 8) -> None:
        self._share = share
        self._every = every
        self._total_s = 0.0
        self._baseline_s = 0.0
        self._requests_without = 0

    def allows(self, cost_s: float, request_s: float) -> bool:
        """Whether a baseline sample of `cost_s` fits, `request_s` into the current request."""
        total_s = self._total_s + request_s
        return self._baseline_s + cost_s <= self._share * (total_s + cost_s)

    @property
    def is_overdue(self) -> bool:
        """Too many requests in a row have ended without a sample."""
        return self._requests_without >= self._every - 1

    def spend(self, cost_s: float) -> None:
        """A baseline sample was taken."""
        self._baseline_s += cost_s

    def close_request(self, request_s: float, sampled: bool) -> None:
        """The request took `request_s` in all, baseline samples included."""
        self._total_s += request_s
        self._requests_without = 0 if sampled else self._requests_without + 1

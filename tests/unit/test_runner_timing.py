from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import cycle

import pytest

from mlsearch.candidate import TimingPlan
from mlsearch.runner.timing import (
    MIN_SAMPLE_US,
    BaselineShare,
    Sampled,
    batch_size,
    beyond,
    collect,
    slope_us,
)


class Bench:
    """A program with given times, and a clock that moves as it runs."""

    def __init__(self, times_us: Iterator[float]) -> None:
        self._times_us = times_us
        self.now_s = 0.0
        self.runs = 0

    def sample(self) -> float:
        time_us = next(self._times_us)
        self.now_s += time_us * 1e-6
        self.runs += 1
        return time_us

    def clock(self) -> float:
        return self.now_s

    def collect(self, plan: TimingPlan, between: Callable[[], None] = lambda: None) -> Sampled:
        return collect(self.sample, plan, self.clock, between)


def plan(**changes: object) -> TimingPlan:
    return TimingPlan(**{"seed": 0, "threads": 1, **changes})  # type: ignore[arg-type]


def test_a_steady_program_needs_as_few_samples_as_an_interval_has() -> None:
    assert len(Bench(cycle([100.0])).collect(plan(min_samples=3)).samples_us) == 6


def test_a_noisy_program_is_sampled_up_to_the_limit() -> None:
    sampled = Bench(cycle([100.0, 150.0, 200.0])).collect(plan(max_samples=30))
    assert len(sampled.samples_us) == 30


def test_a_looser_confidence_takes_fewer_samples() -> None:
    counts = [
        len(Bench(cycle([100.0, 104.0, 97.0, 101.0])).collect(plan(relative_ci=share)).samples_us)
        for share in (0.005, 0.02, 0.1)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1]


def test_all_samples_are_kept_in_order_outliers_too() -> None:
    times = [100.0, 900.0, 100.0, 101.0, 99.0, 100.0, 100.0]
    sampled = Bench(iter(times)).collect(plan(max_samples=7))
    assert sampled.samples_us == tuple(times)


def test_time_is_limited_but_not_below_the_least_samples() -> None:
    sampled = Bench(cycle([300_000.0, 500_000.0])).collect(plan(min_samples=4, max_seconds=0.4))
    assert len(sampled.samples_us) == 4


def test_what_happens_between_samples_does_not_use_up_their_time() -> None:
    bench = Bench(cycle([20_000.0, 30_000.0]))

    def between() -> None:
        bench.now_s += 10.0

    assert len(bench.collect(plan(max_seconds=0.4), between).samples_us) >= 10


def test_a_first_run_beyond_the_limit_is_the_only_one() -> None:
    bench = Bench(cycle([501.0]))
    turns = []
    sampled = bench.collect(plan(give_up_us=500.0), lambda: turns.append(bench.runs))
    assert sampled == Sampled((501.0,), cut_short=True)
    assert turns == [1]


def test_a_later_run_beyond_the_limit_does_not_matter() -> None:
    sampled = Bench(iter([499.0, 900.0, 499.0, 499.0, 499.0, 499.0, 499.0, 499.0, 499.0])).collect(
        plan(give_up_us=500.0)
    )
    assert not sampled.cut_short
    assert len(sampled.samples_us) > 5


@pytest.mark.parametrize("call_us", [0.01, 1.0, 7.0, 49.9])
def test_short_calls_are_batched_into_long_enough_samples(call_us: float) -> None:
    assert batch_size(call_us, plan()) * max(call_us, 0.1) >= MIN_SAMPLE_US


def test_long_calls_and_cold_calls_are_not_batched() -> None:
    assert batch_size(50.0, plan()) == 1
    assert batch_size(1.0, plan(cache="cold")) == 1


def test_no_limit_is_never_exceeded() -> None:
    assert not beyond(1e12, None)
    assert beyond(11.0, 10.0)
    assert not beyond(11.0, 10.0, allowance_us=5.0)


def baseline_seconds(share: BaselineShare, request_s: float, cost_s: float, requests: int) -> list[float]:
    """Seconds spent on the baseline in each of some equal requests with ten turns."""
    spent = []
    for _ in range(requests):
        baseline_s = 0.0
        for turn in range(10):
            overdue = share.is_overdue and baseline_s == 0
            if overdue or share.allows(cost_s, request_s * (turn + 1) / 10 + baseline_s):
                share.spend(cost_s)
                baseline_s += cost_s
        share.close_request(request_s + baseline_s, sampled=baseline_s > 0)
        spent.append(baseline_s)
    return spent


def test_a_baseline_as_fast_as_the_candidate_is_sampled_in_each_request_within_its_share() -> None:
    spent = baseline_seconds(BaselineShare(), request_s=0.4, cost_s=0.04, requests=50)
    assert all(seconds > 0 for seconds in spent)
    assert sum(spent) / (sum(spent) + 50 * 0.4) == pytest.approx(0.3, abs=0.02)


def test_a_slow_baseline_is_sampled_only_as_often_as_its_share_allows() -> None:
    spent = baseline_seconds(BaselineShare(every=1000), request_s=0.1, cost_s=0.2, requests=100)
    assert sum(spent) / (sum(spent) + 100 * 0.1) == pytest.approx(0.3, abs=0.03)


def test_a_very_slow_baseline_is_still_sampled_every_few_requests() -> None:
    spent = baseline_seconds(BaselineShare(every=8), request_s=0.01, cost_s=10.0, requests=32)
    assert [index for index, seconds in enumerate(spent) if seconds] == [7, 15, 23, 31]


def device_that_takes(call_us: float, launch_us: float, asked: list[int]) -> Callable[[int], float]:
    """A batch costs a launch, whatever its size, and its calls; the clock is exact."""

    def run(count: int) -> float:
        asked.append(count)
        return launch_us + count * call_us

    return run


@pytest.mark.parametrize("small", [1, 7])
def test_the_slope_of_two_batches_leaves_out_what_a_batch_costs_once(small: int) -> None:
    asked: list[int] = []
    assert slope_us(device_that_takes(12.5, 400.0, asked), small, 4 * small) == pytest.approx(12.5)
    assert asked == [small, 4 * small]


def test_where_noise_eats_the_slope_the_mean_of_the_larger_batch_is_the_answer() -> None:
    times = iter([900.0, 800.0])
    assert slope_us(lambda count: next(times), 2, 8) == 800.0 / 8

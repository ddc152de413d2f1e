from __future__ import annotations

import gc
from typing import Any

import pytest

from mlsearch.candidate import TimingPlan
from mlsearch.runner.timing import COLD_START_US
from mlsearch.runner.worker import SELF_WARMING_US, sample_candidate, settle, take_sample


class FakeDevice:
    def __init__(self, events: list[str]) -> None:
        self._events = events

    def flush_cache(self) -> None:
        self._events.append("flush")


class FakeCall:
    batch = 0

    def __init__(self, events: list[str], time_us: float = 100.0) -> None:
        self._events = events
        self._time_us = time_us
        self.collector_was_on: list[bool] = []

    def run(self, times: int = 1) -> float:
        self._events.append(f"run {times}")
        self.collector_was_on.append(gc.isenabled())
        return self._time_us


def plan(**changes: Any) -> TimingPlan:
    return TimingPlan(seed=0, threads=1, **changes)


def sample(call: Any, first_us: float, timing_plan: TimingPlan, events: list[str]) -> Any:
    device: Any = FakeDevice(events)
    return sample_candidate(device, call, first_us, timing_plan, lambda *_: events.append("between"))


def test_the_cache_is_flushed_before_each_cold_sample_only() -> None:
    events: list[str] = []
    device: Any = FakeDevice(events)
    call: Any = FakeCall(events)
    take_sample(device, call, 1, plan(cache="cold"))
    take_sample(device, call, 7, plan(cache="warm"))
    assert events == ["flush", "run 1", "run 7"]


def test_warm_up_comes_before_the_samples_and_is_not_one_of_them() -> None:
    events: list[str] = []
    sampled = sample(FakeCall(events), 100.0, plan(warmup=3), events)
    assert events == ["run 1"] * 3 + ["run 1", "between"] * 6
    assert len(sampled.samples_us) == 6


def test_short_calls_are_sampled_in_batches_sized_by_the_warm_up() -> None:
    events: list[str] = []
    sample(FakeCall(events, time_us=10.0), 9000.0, plan(warmup=1), events)
    assert events[:2] == ["run 1", "run 21"]


def test_what_was_far_too_slow_when_its_numbers_were_checked_is_not_run_again() -> None:
    events: list[str] = []
    first_us = 1000.0 + COLD_START_US + 1
    sampled = sample(FakeCall(events), first_us, plan(give_up_us=1000.0), events)
    assert sampled.samples_us == (first_us,)
    assert sampled.cut_short
    assert events == ["between"]


def test_a_first_call_that_was_only_cold_gets_its_samples_without_a_warm_up() -> None:
    events: list[str] = []
    sampled = sample(FakeCall(events), 1001.0, plan(give_up_us=1000.0, warmup=50), events)
    assert not sampled.cut_short
    assert events.count("run 1") == len(sampled.samples_us) == 6


def test_the_garbage_collector_rests_while_sampling_and_is_back_afterwards() -> None:
    events: list[str] = []
    call = FakeCall(events)
    sample(call, 100.0, plan(warmup=0), events)
    assert call.collector_was_on == [False] * 6
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("last_us", "cache", "runs"), [(10.0, "warm", 1), (SELF_WARMING_US, "warm", 0), (10.0, "cold", 0)]
)
def test_a_short_warm_call_settles_after_another_program(last_us: float, cache: Any, runs: int) -> None:
    events: list[str] = []
    call: Any = FakeCall(events)
    settle(call, last_us, plan(cache=cache))
    assert len(events) == runs


def test_a_sample_by_slope_takes_two_batches_unless_the_cache_has_to_be_cold() -> None:
    events: list[str] = []
    device: Any = FakeDevice(events)
    call: Any = FakeCall(events)
    assert take_sample(device, call, 3, plan(method="slope")) == 100.0
    take_sample(device, call, 1, plan(method="slope", cache="cold"))
    assert events == ["run 3", "run 12", "flush", "run 1"]


def test_the_slope_of_a_call_with_a_batch_of_its_own_is_taken_between_the_two() -> None:
    class BatchCall(FakeCall):
        batch = 16

        def run_batch(self, times: int = 1) -> float:
            self._events.append(f"batch {times}")
            return 250.0

    events: list[str] = []
    device: Any = FakeDevice(events)
    call: Any = BatchCall(events)
    assert take_sample(device, call, 1, plan(method="slope")) == (250.0 - 100.0) / 15
    take_sample(device, call, 17, plan(method="slope"))
    assert events == ["run 1", "batch 1", "run 2", "batch 2"]

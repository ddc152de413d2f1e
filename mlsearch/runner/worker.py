"""The process that runs artifacts: `python -m mlsearch.runner.worker`, started by a runner through `child`.

Needs the standard library, NumPy, ml_dtypes and iree.runtime only, so that it also works on a bare machine.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from mlsearch.candidate import (
    Compared,
    CompareRequest,
    Measured,
    RunFailed,
    RunRequest,
    TimingPlan,
    WrongResult,
)
from mlsearch.child import child_arguments, serve
from mlsearch.runner import messages
from mlsearch.runner.checking import Reference, References, check_artifact
from mlsearch.runner.device import Call, CallError, Device
from mlsearch.runner.elements import UnknownElementError
from mlsearch.runner.timing import COLD_START_US, SLOPE_FACTOR, Sampled, batch_size, beyond, collect, slope_us

SELF_WARMING_US = 5_000.0
"""A call this long fills the caches itself; a shorter one gets an untimed call after another program ran."""


class Worker:
    """Answers one request at a time; keeps the device and the last few baselines."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._references = References(device)

    def handle(self, message: dict[str, Any]) -> dict[str, Any]:
        """One JSON request to one JSON answer. Ordinary failure is a `RunFailed`."""
        self._device.pin()
        try:
            match message["do"]:
                case "start":
                    return {"outcome": "ready"}
                case "prepare":
                    return self._prepare(messages.decode_run(message))
                case "run":
                    return messages.encode_outcome(self.run(messages.decode_run(message)))
                case "compare":
                    return messages.encode_outcome(self.compare(messages.decode_compare(message)))
                case unknown:
                    return messages.encode_outcome(RunFailed(f"unknown request '{unknown}'", None))
        except (CallError, UnknownElementError, OSError, MemoryError) as error:
            return messages.encode_outcome(RunFailed(str(error) or type(error).__name__, None))

    def run(self, request: RunRequest) -> Measured | WrongResult:
        """Raises CallError, UnknownElementError, OSError."""
        started = time.perf_counter()
        plan, signature = request.plan, request.signature
        reference = self._references.get(request.baseline, signature, plan.seed)
        function = self._device.load(request.artifact, signature)
        call = function.bind(reference.inputs, reference.out_buffers)
        numerics, first_us = check_artifact(request.artifact, call, reference, self._device)
        if not numerics.agrees:
            reference.share.close_request(time.perf_counter() - started, sampled=False)
            return WrongResult(numerics)
        baseline = BaselineSampler(self._device, reference, plan, started)
        sampled = sample_candidate(self._device, call, first_us, plan, baseline.after_candidate)
        baseline.close()
        return Measured(sampled.samples_us, tuple(baseline.samples_us), numerics, sampled.cut_short)

    def compare(self, request: CompareRequest) -> Compared:
        """Raises CallError, UnknownElementError, OSError."""
        plan, signature = request.plan, request.signature
        reference = self._references.get(request.artifacts[0], signature, plan.seed)
        functions = [self._device.load(path, signature) for path in request.artifacts]
        calls = [function.bind(reference.inputs, reference.out_buffers) for function in functions]
        numerics = [
            check_artifact(path, call, reference, self._device)[0]
            for path, call in zip(request.artifacts, calls, strict=True)
        ]
        fastest_us = min(warm_up(call, max(1, plan.warmup)) for call in calls)
        # The same batch for all: a mean over more calls has less noise.
        batch = batch_size(fastest_us, plan)
        samples: list[list[float]] = [[] for _ in calls]
        shuffle = random.Random(plan.seed).shuffle
        with collector_off():
            for _ in range(request.rounds):
                order = list(range(len(calls)))
                shuffle(order)
                for index in order:
                    last_us = samples[index][-1] if samples[index] else 0.0
                    settle(calls[index], last_us, plan)
                    samples[index].append(take_sample(self._device, calls[index], batch, plan))
        return Compared(tuple(tuple(each) for each in samples), tuple(numerics))

    def _prepare(self, request: RunRequest) -> dict[str, Any]:
        """Run the baseline now, so that its cost and its failures are not the candidate's."""
        try:
            self._references.get(request.baseline, request.signature, request.plan.seed)
        except (CallError, OSError) as error:
            return {"outcome": "no baseline", "message": str(error)}
        return {"outcome": "ready"}


class BaselineSampler:
    """Takes baseline samples between those of a candidate, as far as its share of the time allows."""

    def __init__(self, device: Device, reference: Reference, plan: TimingPlan, started: float) -> None:
        self._device = device
        self._reference = reference
        self._plan = plan
        self._started = started
        self._batch = batch_size(reference.time_us, plan)
        self.samples_us: list[float] = []

    def after_candidate(self, candidate: Call, candidate_us: float) -> None:
        """Take one if affordable, then bring the candidate's data back into the caches."""
        reference = self._reference
        cost_s = self._batch * reference.time_us * 1e-6
        is_overdue = reference.share.is_overdue and not self.samples_us
        if not is_overdue and not reference.share.allows(cost_s, self._elapsed_s()):
            return
        started = time.perf_counter()
        settle(reference.call, reference.time_us, self._plan)
        reference.time_us = take_sample(self._device, reference.call, self._batch, self._plan)
        self.samples_us.append(reference.time_us)
        reference.call.release()
        reference.share.spend(time.perf_counter() - started)
        settle(candidate, candidate_us, self._plan)

    def close(self) -> None:
        self._reference.share.close_request(self._elapsed_s(), sampled=bool(self.samples_us))

    def _elapsed_s(self) -> float:
        return time.perf_counter() - self._started


def sample_candidate(
    device: Device,
    call: Call,
    first_us: float,
    plan: TimingPlan,
    after_each: Callable[[Call, float], None],
) -> Sampled:
    """Warm up, then sample as the plan says. `first_us` is the time of the run that checked the numbers.

    `after_each` gets the call and its last time after each sample.
    """
    if beyond(first_us, plan.give_up_us, COLD_START_US):
        # Too slow even without what a first call costs on top: one run is all it gets.
        after_each(call, first_us)
        return Sampled((first_us,), cut_short=True)
    call_us = first_us
    if not beyond(first_us, plan.give_up_us):
        call_us = warm_up(call, plan.warmup, first_us)
    batch = batch_size(call_us, plan)

    def sample() -> float:
        nonlocal call_us
        call_us = take_sample(device, call, batch, plan)
        return call_us

    with collector_off():
        return collect(sample, plan, time.perf_counter, lambda: after_each(call, call_us))


def take_sample(device: Device, call: Call, batch: int, plan: TimingPlan) -> float:
    """Microseconds per call."""
    if plan.cache == "cold":
        device.flush_cache()
    elif plan.method == "slope":
        return slope_sample(call, batch)
    return call.run(batch)


def slope_sample(call: Call, batch: int) -> float:
    """Microseconds per call, without what a call costs the host. Of a call that has no batch of its own, only what
    many calls in a row cost once is left out."""
    if not call.batch:
        return slope_us(lambda count: count * call.run(count), batch, SLOPE_FACTOR * batch)
    rounds = -(-batch // call.batch)
    return slope_us(lambda count: call.run_batch(rounds) if count > 1 else call.run(rounds), 1, call.batch)


def settle(call: Call, last_us: float, plan: TimingPlan) -> None:
    """Before a warm sample that follows another program's: one untimed call, unless calls are long."""
    if plan.cache == "warm" and last_us < SELF_WARMING_US:
        call.run()


def warm_up(call: Call, times: int, known_us: float = float("inf")) -> float:
    """Shortest call seen, in microseconds."""
    return min([known_us, *(call.run() for _ in range(times))])


@contextmanager
def collector_off() -> Iterator[None]:
    """No garbage collection while sampling."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def main() -> None:
    uri, threads, llc_bytes = child_arguments()
    worker = Worker(Device(uri, int(threads), int(llc_bytes)))
    gc.freeze()  # what the imports made stays, and need not be looked through before each measurement
    serve(worker.handle)


if __name__ == "__main__":
    main()

"""What an artifact has to compute, that is the untuned build's outputs on seeded inputs; and the check."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mlsearch.candidate import Numerics, Signature, TensorSpec
from mlsearch.runner import numerics
from mlsearch.runner.device import ALLOCATION_POISON, Array, Call, CallError, Device
from mlsearch.runner.elements import element
from mlsearch.runner.inputs import FloatRange, make_inputs
from mlsearch.runner.timing import BaselineShare


@dataclass
class Reference:
    """The untuned build, loaded and bound, with what it computes. The buffers serve every artifact that is
    measured against it, so that all run at the same addresses."""

    signature: Signature
    call: Call
    inputs: list[Any]
    out_buffers: list[Any]
    want: list[Array]
    time_us: float
    """Of its last run."""
    overwritten: list[tuple[Any, Array]]
    """Buffers of the inputs that the program writes its results over, with what they held at first."""
    is_whole_when_poisoned: bool = False
    """It allocates outputs by itself, and computes the same when its memory is poisoned at allocation: so must others.
    Not so if it returns elements that nobody writes."""
    share: BaselineShare = field(default_factory=BaselineShare)


class References:
    """The last few references, by baseline file, signature and seed."""

    def __init__(self, device: Device, capacity: int = 3) -> None:
        self._device = device
        self._capacity = capacity
        self._known: OrderedDict[tuple[object, ...], Reference] = OrderedDict()

    def get(self, baseline: Path, signature: Signature, seed: int) -> Reference:
        """Runs the baseline on first use. Raises OSError, CallError, UnknownElementError."""
        status = baseline.stat()
        key = (str(baseline), status.st_mtime_ns, status.st_size, signature, seed)
        if key not in self._known:
            while len(self._known) >= self._capacity:
                self._known.popitem(last=False)
            self._known[key] = make_reference(self._device, baseline, signature, seed)
        self._known.move_to_end(key)
        return self._known[key]


def make_reference(device: Device, baseline: Path, signature: Signature, seed: int) -> Reference:
    """Run the untuned build on random inputs; once more on positive ones if something was not finite.

    Raises UnknownElementError; CallError also where an output is finite nowhere on either: any program that computes
    nonsense would agree with that.
    """
    reference = _run_baseline(device, baseline, signature, seed, "normal")
    if _all_finite(reference.want):
        return reference
    silent_on_normal = _silent_output(reference.want)
    del reference  # a whole model's inputs twice may not fit
    reference = _run_baseline(device, baseline, signature, seed, "positive")
    silent = _silent_output(reference.want)
    if silent is None:
        return reference
    if silent_on_normal is None:
        del reference
        return _run_baseline(device, baseline, signature, seed, "normal")
    raise CallError(f"output {silent} is finite nowhere on random inputs, so there is nothing to check candidates by")


def check_artifact(artifact: Path, call: Call, reference: Reference, device: Device) -> tuple[Numerics, float]:
    """Numerics of an artifact, and the time of the first run of its `call` in microseconds. Raises CallError.

    A program that allocates outputs or intermediate tensors by itself gets memory that an earlier run gave back, and
    that run was one of the same payload: what a dispatch forgets to write is there already, and right. Such a program
    runs once more on memory that is poisoned when it is allocated, where the device can do that.
    """
    if not device.can_poison:
        _scrub(reference, device)
    found, first_us = check(call, reference, device)
    if reference.is_whole_when_poisoned:
        poisoned = _check_poisoned(artifact, reference, device)
        found = found if poisoned.agrees else poisoned
    return found, first_us


def check(
    call: Call, reference: Reference, device: Device, allocation_poison: int | None = None
) -> tuple[Numerics, float]:
    """Numerics of an artifact's call, and the time of its first run in microseconds. Raises CallError.

    Before each run the out buffers are filled with NaN, or with a byte pattern for integers. If the right answer holds
    these very bits, a second run starts from others. An output without an out buffer holds `allocation_poison` before.
    """
    signature = reference.signature
    first = [numerics.poison_byte(spec.element_type) for spec in signature.outputs]
    got, first_us = _poisoned_run(call, reference, device, first)
    runs = [(first, got)]
    if _is_ambiguous(reference, first):
        second = [numerics.SECOND_POISON] * len(first)
        runs.append((second, _poisoned_run(call, reference, device, second)[0]))
    call.release()
    parts = []
    for index, (spec, want) in enumerate(zip(signature.outputs, reference.want, strict=True)):
        unwritten = 0
        if index in signature.out_buffers:
            unwritten = numerics.still_poisoned([(got[index], poison[index]) for poison, got in runs], want)
        elif allocation_poison is not None:
            unwritten = numerics.still_poisoned([(got[index], allocation_poison) for _, got in runs], want)
        compared = [
            numerics.compare(got[index], want, spec.element_type, signature.reduction_length, unwritten=unwritten)
            for _, got in runs
        ]
        parts.append(max(compared, key=lambda part: (not part.agrees, part.max_rel_error)))
    return numerics.worst(parts), first_us


def _check_poisoned(artifact: Path, reference: Reference, device: Device) -> Numerics:
    call = device.load(artifact, reference.signature, poisoned=True).bind(reference.inputs, reference.out_buffers)
    return check(call, reference, device, ALLOCATION_POISON)[0]


def _scrub(reference: Reference, device: Device) -> None:
    """Allocate, fill with NaN and free as much as the outputs without an out buffer take. Best effort: the allocator
    may hand out other memory."""
    signature = reference.signature
    free = [spec for index, spec in enumerate(signature.outputs) if index not in signature.out_buffers]
    held = [(device.allocate(byte_length(spec)), numerics.poison_byte(spec.element_type)) for spec in free]
    for buffer, byte in held:
        device.fill(buffer, byte)


def byte_length(spec: TensorSpec) -> int:
    return prod(spec.shape) * element(spec.element_type).dtype.itemsize


def _run_baseline(device: Device, baseline: Path, signature: Signature, seed: int, floats: FloatRange) -> Reference:
    arrays = make_inputs(signature.inputs, seed, floats, indices=signature.indices)
    for spec in signature.outputs:
        element(spec.element_type)
    inputs = [device.put(array, spec.element_type) for array, spec in zip(arrays, signature.inputs, strict=True)]
    out_buffers = [device.allocate(byte_length(signature.outputs[index])) for index in signature.out_buffers]
    call = device.load(baseline, signature).bind(inputs, out_buffers)
    call.run()
    want = call.outputs(signature)
    # IREE works in place on a caller's tensor that a program updates, e.g. a matmul that adds to an argument.
    overwritten = [
        (view.get_buffer(), array)
        for view, array in zip(inputs, arrays, strict=True)
        if device.get(view).tobytes() != array.tobytes()
    ]
    time_us = call.run()  # the first one paid for page faults
    call.release()
    reference = Reference(signature, call, inputs, out_buffers, want, time_us, overwritten)
    if device.can_poison and len(signature.out_buffers) < len(signature.outputs):
        reference.is_whole_when_poisoned = _check_poisoned(baseline, reference, device).agrees
    return reference


def _poisoned_run(call: Call, reference: Reference, device: Device, poison: Sequence[int]) -> tuple[list[Array], float]:
    for buffer, array in reference.overwritten:
        device.write(buffer, array)
    for index, buffer in zip(reference.signature.out_buffers, reference.out_buffers, strict=True):
        device.fill(buffer, poison[index])
    time_us = call.run()
    return call.outputs(reference.signature), time_us


def _is_ambiguous(reference: Reference, poison: Sequence[int]) -> bool:
    return any(
        numerics.needs_second_poison(reference.want[index], poison[index]) for index in reference.signature.out_buffers
    )


def _silent_output(outputs: Sequence[Array]) -> int | None:
    """The first output of which no element is finite."""
    for index, output in enumerate(outputs):
        if output.size and not np.isfinite(output.astype(np.float64)).any():
            return index
    return None


def _all_finite(outputs: Sequence[Array]) -> bool:
    return all(bool(np.isfinite(output.astype(np.float64)).all()) for output in outputs)

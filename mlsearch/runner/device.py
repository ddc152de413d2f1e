"""IREE's runtime, as far as checking and timing need it: buffers, artifacts, calls."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import iree.runtime as rt
import numpy as np

from mlsearch.candidate import Signature, batch_function
from mlsearch.runner.elements import element

Array = np.ndarray[Any, Any]

ALLOCATION_POISON = 0xCD
"""What IREE's debug allocator fills new memory with, byte by byte: -4.3e8 as f32, -23.2 as f16, -51 as i8."""


class CallError(Exception):
    """The artifact can't be loaded or called as the signature says; the message is for people."""


def available_devices(uri: str) -> list[dict[str, Any]]:
    """What the driver of a device URI finds: `name`, `path`, ...; nothing where it can't be asked.

    Whatever is wrong then shows again, and better, when a program is run.
    """
    try:
        return list(rt.get_driver(uri.partition(":")[0]).query_available_devices())
    except (ValueError, RuntimeError, OSError):
        return []


class Device:
    """One per process: IREE's flags and the pinning of threads are process-wide."""

    def __init__(self, uri: str, threads: int, llc_bytes: int) -> None:
        """`threads` workers on as many cores, for `local-task`; `local-sync` computes in the caller."""
        # The last cores: core 0 serves most of the machine's interrupts.
        self._cores = sorted(os.sched_getaffinity(0))[-threads:]
        self.pin()
        rt.flags.parse_flags(f"--task_topology_group_count={threads}")
        self._instance = rt.VmInstance()
        # On a CPU, memory that was just given back serves the next call. IREE's default asks the system each time,
        # and the page faults of a few MiB cost as much as the computation. CUDA's memory comes from a pool anyway.
        allocators = ["caching"] if uri.startswith("local-") else []
        self._device = rt.get_driver(uri).create_device_by_uri(uri, allocators=allocators)
        self._hal = rt.create_hal_module(self._instance, self._device)
        self._poisoned_hal: Any = None
        self.can_poison = uri.startswith("local-")
        """Whether `load` can give the artifact memory that is poisoned."""
        self._flush = np.zeros(2 * llc_bytes // 8, dtype=np.int64)

    def pin(self) -> None:
        """Keep every thread of this process on its cores."""
        # IREE's workers set their own affinity, to all cores, some time after they start.
        for thread in Path("/proc/self/task").iterdir():
            try:
                os.sched_setaffinity(int(thread.name), self._cores)
            except ProcessLookupError:
                continue

    def put(self, array: Array, element_type: str) -> Any:
        """A copy on the device, as a buffer view. No NumPy type that Python's buffers don't know survives, so
        the bits travel as unsigned integers."""
        bits = np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")
        return self._allocate_copy(bits, getattr(rt.HalElementType, element(element_type).hal_name))

    def allocate(self, byte_length: int) -> Any:
        """An uninitialized buffer."""
        return self._device.allocator.allocate_buffer(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            allocation_size=byte_length,
        )

    def fill(self, buffer: Any, byte: int) -> None:
        """Overwrite all of the buffer with one byte."""
        self.write(buffer, np.full(buffer.byte_length(), byte, dtype=np.uint8))

    def write(self, buffer: Any, content: Array) -> None:
        """Overwrite all of the buffer."""
        if content.size == 0:
            return
        source = self._allocate_copy(_bytes_of(content), rt.HalElementType.UINT_8).get_buffer()
        done = self._device.create_semaphore(0)
        self._device.queue_copy(
            source,
            buffer,
            wait_semaphores=rt.HalFence.create_at(done, 0),
            signal_semaphores=rt.HalFence.create_at(done, 1),
        )
        rt.HalFence.create_at(done, 1).wait()

    def get(self, view: Any) -> Array:
        """A copy on the host."""
        return np.array(rt.DeviceArray(self._device, view).to_host())

    def flush_cache(self) -> None:
        """Push everything else out of the last-level cache and out of this core's own.

        Best effort: the private caches of other cores keep what they have.
        """
        self._flush += 1

    def load(self, artifact: Path, signature: Signature, *, poisoned: bool = False) -> Function:
        """Load a fresh copy; it goes away with the last reference. Raises CallError.

        `poisoned`: every block of memory that it allocates is filled with `ALLOCATION_POISON` first, outputs and what
        lies between dispatches alike. It then runs in the calling thread, whatever the device is.
        """
        self._device.allocator.trim()  # what other artifacts needed
        try:
            # A copy and not a mapping: the builder may write the same path again.
            module = rt.VmModule.copy_buffer(self._instance, artifact.read_bytes())
            context = rt.VmContext(self._instance, [self._poisoned() if poisoned else self._hal, module])
        except (OSError, ValueError, RuntimeError) as error:
            raise CallError(f"{artifact.name} does not load: {error}") from error
        names = [signature.function, *([batch_function(signature.function)] if signature.batch else [])]
        found = [module.lookup_function(name) for name in names]
        if None in found:
            missing = names[found.index(None)]
            raise CallError(f"{artifact.name} has no function '{missing}', only {module.function_names}")
        return Function(self, context, found[0], signature.batch, found[-1])

    def _poisoned(self) -> Any:
        if self._poisoned_hal is None:
            # On `local-task` programs get their memory from a pool that no allocator of ours stands before.
            device = rt.get_driver("local-sync").create_device_by_uri("local-sync", allocators=["debug"])
            self._poisoned_hal = rt.create_hal_module(self._instance, device)
        return self._poisoned_hal

    def _allocate_copy(self, bits: Array, element_type: Any) -> Any:
        return self._device.allocator.allocate_buffer_copy(
            memory_type=rt.MemoryType.DEVICE_LOCAL,
            allowed_usage=rt.BufferUsage.DEFAULT | rt.BufferUsage.MAPPING,
            device=self._device,
            buffer=bits,
            element_type=element_type,
        )


def _bytes_of(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class Function:
    """A function of a loaded artifact."""

    def __init__(self, device: Device, context: Any, function: Any, batch: int, batch_function: Any) -> None:
        """`batch_function` runs it `batch` times, unless that is 0."""
        self._device = device
        self._context = context
        self._function = function
        self._batch = batch
        self._batch_function = batch_function

    def bind(self, inputs: Sequence[Any], out_buffers: Sequence[Any]) -> Call:
        """Inputs are buffer views, out buffers plain buffers; both are used in place."""
        values = (*inputs, *out_buffers)
        whole_batch = None
        if self._batch:
            arguments = _arguments(values * self._batch)
            whole_batch = Call(self._device, self._context, self._batch_function, arguments)
        return Call(self._device, self._context, self._function, _arguments(values), self._batch, whole_batch)


def _arguments(values: Sequence[Any]) -> Any:
    arguments = rt.VmVariantList(len(values))
    for value in values:
        arguments.push_ref(value)
    return arguments


class Call:
    """A function with its arguments. Nothing is allocated per call beyond what IREE itself does."""

    def __init__(
        self,
        device: Device,
        context: Any,
        function: Any,
        arguments: Any,
        batch: int = 0,
        whole_batch: Call | None = None,
    ) -> None:
        """`whole_batch` is one call that does as much as `batch` of these."""
        self._device = device
        self._context = context
        self._function = function
        self._arguments = arguments
        self._whole_batch = whole_batch
        self.batch = batch
        self._results: Any = None

    def run(self, times: int = 1) -> float:
        """Call it and return the mean time in microseconds. Raises CallError.

        What is measured holds the cost of a call from Python: on a 2.6 GHz Zen 5 core 0.4 us for a function
        that does nothing, 1.7 us with one tiny dispatch on `local-sync`, 10 to 20 us on `local-task`, which
        wakes its workers. None of it is subtracted.
        """
        self._results = results = rt.VmVariantList(1)
        invoke, function, arguments = self._context.invoke, self._function, self._arguments
        try:
            started = time.perf_counter_ns()
            for _ in range(times):
                invoke(function, arguments, results)
            elapsed = time.perf_counter_ns() - started
        except (ValueError, RuntimeError) as error:
            raise CallError(f"the call failed: {error}") from error
        return elapsed / times / 1000

    def run_batch(self, times: int = 1) -> float:
        """Mean time in microseconds of a call that does as much as `batch` of these. Raises CallError."""
        assert self._whole_batch is not None
        try:
            return self._whole_batch.run(times)
        finally:
            self._whole_batch.release()

    def outputs(self, signature: Signature) -> list[Array]:
        """What the last run returned, copied to the host. Raises CallError if it isn't as promised."""
        count = 0 if self._results is None else self._results.size
        if count != len(signature.outputs):
            raise CallError(f"the function returned {count} values, expected {len(signature.outputs)}")
        arrays = []
        for index, spec in enumerate(signature.outputs):
            array = self._device.get(self._results.get_as_object(index, rt.HalBufferView))
            dtype = element(spec.element_type).dtype
            if array.shape != spec.shape or array.dtype.itemsize != dtype.itemsize:
                raise CallError(f"output {index} is {array.shape} of {array.dtype}, expected {spec.shape} of {dtype}")
            arrays.append(array.view(dtype))
        return arrays

    def release(self) -> None:
        """Let go of the outputs, so that their memory can be used again."""
        self._results = None

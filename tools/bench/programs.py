"""The programs that are compared: an artifact on IREE's runtime, and the same computation in other libraries."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mlsearch.candidate import Signature
from mlsearch.runner.device import Device
from mlsearch.runner.inputs import make_inputs
from mlsearch.runner.messages import decode_signature

Array = np.ndarray[Any, Any]

# Threads of OpenBLAS, OpenMP and ONNX Runtime wait for more work in a busy loop, OpenBLAS's for 0.1 s as seen, and
# would slow down whoever is next.
UNTIL_THREADS_SLEEP_S = 0.2


class CannotRun(Exception):
    """The library does not have this computation; the message is its own."""


class Program(Protocol):
    facts: Mapping[str, str]
    """What should be known about it, e.g. the kernel that OpenBLAS chose."""

    def run(self, times: int) -> float:
        """Mean microseconds of so many calls."""
        ...

    def outputs(self) -> list[Array]:
        """Of the last call."""
        ...

    def rest(self) -> None:
        """After a sample: stop using the machine."""
        ...


def open_program(engine: str, request: Mapping[str, Any], threads: int) -> Program:
    """Loaded and ready to run. Raises CallError, CannotRun."""
    if engine == "iree":
        return IreeProgram(request, threads)
    # Each library is loaded only where it is measured.
    if engine == "numpy":
        from bench.references import NumpyProgram

        return NumpyProgram(request, threads)
    if engine in ("torch", "torch-prepacked"):
        from bench.torch_programs import TorchProgram

        return TorchProgram(request, threads, prepacked=engine == "torch-prepacked")
    from bench.onnx_programs import OnnxProgram

    return OnnxProgram(request, threads)


def operands(request: Mapping[str, Any]) -> list[Array]:
    """All operands of the computation, those that a payload has as constants included."""
    return make_inputs(decode_signature(request["signature"]).inputs, request["seed"])


class IreeProgram:
    def __init__(self, request: Mapping[str, Any], threads: int) -> None:
        self.facts: Mapping[str, str] = {}
        whole = decode_signature(request["signature"])
        self._signature: Signature = decode_signature(request["artifact_signature"])
        uri = "local-sync" if threads == 1 else "local-task"
        self._device = Device(uri, threads, llc_bytes=0)
        views = [
            self._device.put(array, spec.element_type)
            for index, (array, spec) in enumerate(zip(operands(request), whole.inputs, strict=True))
            if index != request["constant"]
        ]
        self._call = self._device.load(Path(request["artifact"]), self._signature).bind(views, ())

    def run(self, times: int) -> float:
        self._device.pin()
        return self._call.run(times)

    def outputs(self) -> list[Array]:
        return self._call.outputs(self._signature)

    def rest(self) -> None:
        self._call.release()


class LibraryProgram:
    """A computation in another library: a function without arguments that gives an array-like result."""

    def __init__(self, compute: Callable[[], Any], facts: Mapping[str, str], threads: int) -> None:
        self.facts = facts
        self._compute = compute
        self._threads = threads
        self._result: Any = None
        compute()  # loads what is loaded late

    def run(self, times: int) -> float:
        started = time.perf_counter_ns()
        for _ in range(times):
            self._result = self._compute()
        return (time.perf_counter_ns() - started) / times / 1000

    def outputs(self) -> list[Array]:
        return [np.asarray(self._result)]

    def rest(self) -> None:
        if self._threads > 1:
            time.sleep(UNTIL_THREADS_SLEEP_S)

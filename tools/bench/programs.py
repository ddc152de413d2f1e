"""The two kinds of program that are compared: an artifact on IREE's runtime, and a computation in NumPy."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import threadpoolctl

from bench.references import REFERENCES
from mlsearch.runner.device import Device
from mlsearch.runner.inputs import make_inputs
from mlsearch.runner.messages import decode_signature

Array = np.ndarray[Any, Any]

# OpenBLAS's threads wait for more work in a busy loop, 0.1 s as seen, and would slow down whoever is next.
_UNTIL_THREADS_SLEEP_S = 0.2


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


class IreeProgram:
    def __init__(self, request: dict[str, Any], threads: int) -> None:
        self.facts: Mapping[str, str] = {}
        self._signature = decode_signature(request["signature"])
        uri = "local-sync" if threads == 1 else "local-task"
        self._device = Device(uri, threads, llc_bytes=0)
        specs = self._signature.inputs
        arrays = make_inputs(specs, request["seed"])
        views = [self._device.put(array, spec.element_type) for array, spec in zip(arrays, specs, strict=True)]
        self._call = self._device.load(Path(request["artifact"]), self._signature).bind(views, ())

    def run(self, times: int) -> float:
        self._device.pin()
        return self._call.run(times)

    def outputs(self) -> list[Array]:
        return self._call.outputs(self._signature)

    def rest(self) -> None:
        self._call.release()


class NumpyProgram:
    def __init__(self, request: dict[str, Any], threads: int) -> None:
        signature = decode_signature(request["signature"])
        self._compute = REFERENCES[request["sample"]](*make_inputs(signature.inputs, request["seed"]))
        self._threads = threads
        self._result: Array = np.empty(0)
        self._compute()  # loads what is loaded late
        # The one that NumPy brought; SciPy has an OpenBLAS of its own.
        blas = next(pool for pool in threadpoolctl.threadpool_info() if "numpy" in pool["filepath"])
        self.facts = {name: str(blas.get(name)) for name in ("internal_api", "version", "architecture", "num_threads")}
        self.facts["numpy"] = np.__version__

    def run(self, times: int) -> float:
        started = time.perf_counter_ns()
        for _ in range(times):
            self._result = self._compute()
        return (time.perf_counter_ns() - started) / times / 1000

    def outputs(self) -> list[Array]:
        return [self._result]

    def rest(self) -> None:
        if self._threads > 1:
            time.sleep(_UNTIL_THREADS_SLEEP_S)


PROGRAMS: Mapping[str, Callable[[dict[str, Any], int], Program]] = {"iree": IreeProgram, "numpy": NumpyProgram}

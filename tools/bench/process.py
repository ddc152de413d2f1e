"""The process of one program: `python -m bench.process`, started through `mlsearch.child`.

Nothing here may import NumPy before `free_the_libraries`: OpenBLAS, MKL and OpenMP read the environment while they
are loaded.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlsearch.child import child_arguments, serve

if TYPE_CHECKING:
    from bench.programs import Program


def free_the_libraries(environment: MutableMapping[str, str], threads: int) -> None:
    """Let each library choose its kernels for this CPU; only the number of threads is set."""
    for name in [name for name in environment if name.startswith(("OPENBLAS_", "OMP_", "MKL_", "GOTO_"))]:
        del environment[name]
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        environment[name] = str(threads)


class Sampler:
    """Answers `load`, then any number of `sample` requests."""

    def __init__(self, engine: str, threads: int) -> None:
        self._engine, self._threads = engine, threads
        self._program: Program | None = None

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        from bench.programs import CannotRun
        from mlsearch.runner.device import CallError

        try:
            return self._load(request) if request["do"] == "load" else self._sample(request)
        except (CallError, CannotRun) as error:
            return {"error": str(error)}

    def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        """Write the outputs' bits to `request["outputs"]`; answer the shortest of the first calls, and facts."""
        import numpy as np

        from bench.programs import open_program

        self._program = program = open_program(self._engine, request, self._threads)
        program.run(1)
        bits = [np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}") for array in program.outputs()]
        np.savez(Path(request["outputs"]), *bits)
        call_us = min(program.run(1) for _ in range(3))
        program.rest()
        return {"call_us": call_us, "facts": dict(program.facts)}

    def _sample(self, request: dict[str, Any]) -> dict[str, Any]:
        """Mean of `request["calls"]` calls after `request["untimed"]` others, which fetch the data into the caches."""
        assert self._program is not None, "load comes first"
        if request["untimed"]:
            self._program.run(request["untimed"])
        sample_us = self._program.run(request["calls"])
        self._program.rest()
        return {"us": sample_us}


def main() -> None:
    engine, threads = child_arguments()
    free_the_libraries(os.environ, int(threads))
    # The last cores, as mlsearch's runner does: core 0 serves most of the machine's interrupts.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-int(threads) :])
    serve(Sampler(engine, int(threads)).handle)


if __name__ == "__main__":
    main()

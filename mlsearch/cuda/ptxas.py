"""NVIDIA's assembler, from PyPI: registers, spills and static shared memory of a kernel.

Optional: `pip install 'mlsearch[cuda]'`. It needs no GPU and takes 0.03 to 0.3 s for a kernel that does not spill.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from mlsearch import toolchain
from mlsearch.errors import ToolchainError
from mlsearch.scratch import scratch_folder

PACKAGE = "nvidia-cuda-nvcc-cu12"
"""CUDA 12's, because CUDA 13's assembler no longer knows sm_60 to sm_72."""

MISSING = (
    "no registers, spills and occupancy: ptxas is not installed; pip install 'mlsearch[cuda]' (it brings "
    + PACKAGE
    + ")"
)

_USED = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")
_COMPILING = re.compile(r"Compiling entry function '([^']+)'")


@dataclass(frozen=True)
class Assembled:
    """What the assembler says of one kernel."""

    registers: int
    """Per thread."""
    spill_stores: int
    """Bytes, static: a store in a loop counts once."""
    spill_loads: int
    stack_bytes: int
    shared_bytes: int
    """Static shared memory; what IREE's kernels use is dynamic, see `executable`."""


@cache
def find_ptxas() -> Path | None:
    """The assembler of the installed package, or None."""
    try:
        files = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if file.name == "ptxas"), None)


def assemble(ptx: str, architecture: str, timeout_s: float = 120.0) -> dict[str, Assembled] | str:
    """What becomes of each kernel in a PTX module, by name, or in words why it can't be assembled."""
    tool = find_ptxas()
    if tool is None:
        return MISSING
    with scratch_folder() as folder:
        source = folder / "kernel.ptx"
        source.write_text(ptx)
        argv = [str(tool), f"-arch={architecture}", "-v", str(source), "-o", str(folder / "kernel.cubin")]
        try:
            done = toolchain.run(tuple(argv), timeout_s)
        except ToolchainError:
            return f"ptxas gave no result after {timeout_s:.0f} s"
        except OSError as error:
            return f"ptxas does not start: {error.strerror}"
    said = done.stderr + done.stdout
    if done.returncode:
        errors = [line for line in said.splitlines() if "error" in line] or said.strip().splitlines() or ["no message"]
        return f"ptxas: {errors[0].strip()[:300]}"
    return read_report(said)


def read_report(said: str) -> dict[str, Assembled]:
    """Kernels of `ptxas -v`'s output, by name."""
    found = {}
    parts = _COMPILING.split(said)[1:]
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        used, spills, shared = _USED.search(text), _SPILLS.search(text), _SHARED.search(text)
        found[name] = Assembled(
            registers=int(used[1]) if used else 0,
            spill_stores=int(spills[2]) if spills else 0,
            spill_loads=int(spills[3]) if spills else 0,
            stack_bytes=int(spills[1]) if spills else 0,
            shared_bytes=int(shared[1]) if shared else 0,
        )
    return found

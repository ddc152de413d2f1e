"""Counts in PTX text. Static: an instruction in a loop counts once."""

from __future__ import annotations

import re

from mlsearch.code_features import PtxCounts

_INSTRUCTION = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:\.[A-Za-z0-9_:]+)*)\s", re.MULTILINE)
_REGISTERS = re.compile(r"\.reg\s+\.([a-z0-9]+)\s+%\w+<(\d+)>")
_TARGET = re.compile(r"^\.target\s+(\w+)", re.MULTILINE)
_MMA_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)\.")


def count(ptx: str) -> PtxCounts:
    """Counts of a PTX module, all its kernels together."""
    names = _INSTRUCTION.findall(ptx)
    target = _TARGET.search(ptx)

    def of(*prefixes: str, having: tuple[str, ...] = (), without: tuple[str, ...] = ()) -> int:
        return sum(
            1
            for name in names
            if name.startswith(prefixes)
            and all(part in name for part in having)
            and not any(part in name for part in without)
        )

    matrix = [name for name in names if name.startswith(("mma.sync", "wmma.mma"))]
    return PtxCounts(
        target=target[1] if target else "",
        instructions=len(names),
        mma=len(matrix),
        mma_flops=sum(_flops(name) for name in matrix),
        ldmatrix=of("ldmatrix"),
        async_copies=of("cp.async", without=("commit_group", "wait_group", "wait_all")),
        barriers=of("bar.sync", "barrier.sync", "bar.warp.sync"),
        # Beside multiply-adds of floats, those of integers are arithmetic of addresses.
        fma=of("fma.") or of("mad.lo."),
        global_loads=of("ld.global"),
        global_vector_loads=sum(1 for name in names if name.startswith("ld.global") and _is_16_bytes(name)),
        global_stores=of("st.global"),
        shared_loads=of("ld.shared"),
        shared_vector_loads=sum(1 for name in names if name.startswith("ld.shared") and _is_16_bytes(name)),
        shared_stores=of("st.shared"),
        local_accesses=of("ld.local", "st.local"),
        virtual_registers=sum(int(number) - 1 for kind, number in _REGISTERS.findall(ptx) if kind == "b32"),
    )


def _flops(name: str) -> int:
    shape = _MMA_SHAPE.search(name + ".")
    return 2 * int(shape[1]) * int(shape[2]) * int(shape[3]) if shape else 0


def _is_16_bytes(name: str) -> bool:
    if ".v4.b32" in name or ".v4.f32" in name or ".v4.u32" in name:
        return True
    return ".v2.b64" in name or ".v2.f64" in name or ".v2.u64" in name or ".b128" in name or ".v8.b16" in name

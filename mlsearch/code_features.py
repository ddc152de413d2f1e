"""What compiled GPU code tells of itself before it runs, as plain values; found out by `mlsearch.cuda`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PtxCounts:
    """Instructions of a PTX module. Static: one in a loop counts once."""

    target: str
    """The architecture that it was written for, e.g. `sm_90`."""
    instructions: int
    mma: int
    """`mma.sync` and `wmma.mma`."""
    mma_flops: int
    """Of all of those, executed once by one warp."""
    ldmatrix: int
    async_copies: int
    """`cp.async`, the group bookkeeping left out."""
    barriers: int
    fma: int
    """Multiply-adds of floats; where there are none, those of integers."""
    global_loads: int
    global_vector_loads: int
    """16 bytes at a time."""
    global_stores: int
    shared_loads: int
    shared_vector_loads: int
    shared_stores: int
    local_accesses: int
    """Loads and stores of local memory: arrays that the compiler could not keep in registers."""
    virtual_registers: int
    """32-bit ones, before assignment; the pressure of live values is for ptxas to say."""


@dataclass(frozen=True)
class Occupancy:
    blocks: int
    """Resident on a multiprocessor; 0 if not even one fits."""
    warps: int
    share: float
    """Of the warps that a multiprocessor can hold, 0 to 1."""
    limited_by: str
    """`threads`, `registers`, `shared memory` or `blocks`."""


@dataclass(frozen=True)
class StaticFeatures:
    """Of the kernel that takes the most of a multiprocessor; a task has one in nearly all cases."""

    kernel: str
    threads: int
    """Of a block."""
    shared_bytes: int
    """Of a block, static and dynamic."""
    counts: PtxCounts
    registers: int | None
    """Per thread; None without ptxas."""
    occupancy: Occupancy | None
    missing: str
    """What could not be found out, and why; empty if nothing."""

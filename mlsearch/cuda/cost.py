"""A time estimated from static features, to rank candidates that nobody has measured. Not a prediction: it orders.

The kernel runs in waves of as many blocks as fit on the chip. A wave takes the longest of what one multiprocessor
spends on

- arithmetic: tensor or CUDA cores at their peak rate, as far as enough warps are there to hide latencies (a warp counts
  as many independent matrix instructions as it has between two barriers, up to four);
- issuing: all instructions, scaled from the counts in the PTX by how often its matrix instructions or FMAs must run;
- shared memory: a warp's load or store of it takes one cycle per 128 bytes;
- the L2 cache: what its blocks read and write, at a share of the chip's bandwidth;

and the whole takes no less than reading and writing every operand once from memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, prod

from mlsearch.code_features import StaticFeatures
from mlsearch.cuda.chips import WARP, Chip
from mlsearch.workload import Workload, element_bytes

_CLOCK_GHZ = 1.6
_SCHEDULERS = 4
_SHARED_BYTES_PER_CYCLE = 128
_L2_OVER_MEMORY = 2.5
"""Bandwidth of the L2 cache over that of the memory."""
_WARPS_TO_HIDE = 16
"""Independent instruction streams that keep the pipes of a multiprocessor busy."""
_LAUNCH_US = 2.0


@dataclass(frozen=True)
class Estimate:
    time_us: float
    waves: int
    bound: str
    """What takes longest: `arithmetic`, `issue`, `shared memory`, `L2` or `memory`."""


def estimate(workload: Workload, block_tile: Sequence[int], features: StaticFeatures, chip: Chip) -> Estimate | None:
    """`block_tile`: size of a workgroup's tile along each loop, 0 for the whole loop. None without occupancy."""
    if features.occupancy is None:
        return None
    loops = workload.loops
    tile = [size if 0 < size < loop.size else loop.size for size, loop in zip(block_tile, loops, strict=True)]
    parallel = [i for i, loop in enumerate(loops) if loop.kind == "parallel"]
    blocks = prod(ceil(loops[i].size / tile[i]) for i in parallel)
    resident = min(features.occupancy.blocks, ceil(blocks / chip.multiprocessors))
    waves = ceil(blocks / (resident * chip.multiprocessors))
    iterations = prod(tile[i] if loops[i].kind == "parallel" else loops[i].size for i in range(len(loops)))
    cycles = _cycles_of_wave(workload, iterations, resident, features, chip)
    traffic = _bytes_of_block(workload, tile) * resident * chip.multiprocessors
    cycles["L2"] = traffic / (_L2_OVER_MEMORY * chip.bytes_per_cycle)
    bound = max(cycles, key=lambda name: cycles[name])
    total = waves * cycles[bound]
    once = workload.bytes / chip.bytes_per_cycle
    if once > total:
        total, bound = once, "memory"
    return Estimate(_LAUNCH_US + total / (_CLOCK_GHZ * 1e3), waves, bound)


def _cycles_of_wave(
    workload: Workload, iterations: int, resident: int, features: StaticFeatures, chip: Chip
) -> dict[str, float]:
    """Cycles that one multiprocessor spends on its `resident` blocks, each of `iterations` iterations."""
    counts = features.counts
    warps = resident * ceil(features.threads / WARP)
    flops = workload.flops / max(1, prod(loop.size for loop in workload.loops)) * iterations * resident
    if counts.mma:
        peak = float(chip.architecture.mma_flops_per_cycle or 2 * chip.architecture.fma_per_cycle)
        streams = warps * min(4.0, counts.mma / max(1, counts.barriers))
        runs = flops / (counts.mma_flops / counts.mma) / counts.mma
    else:
        peak = 2.0 * chip.architecture.fma_per_cycle
        streams = warps * 2.0
        runs = flops / (2 * WARP) / max(1, counts.fma)
    shared = counts.shared_loads + counts.shared_stores + 3 * counts.shared_vector_loads + 3 * counts.ldmatrix
    return {
        "arithmetic": flops / peak / min(1.0, streams / _WARPS_TO_HIDE),
        "issue": runs * counts.instructions / _SCHEDULERS,
        "shared memory": runs * shared * WARP * 4 / _SHARED_BYTES_PER_CYCLE,
    }


def _bytes_of_block(workload: Workload, tile: Sequence[int]) -> float:
    """Bytes that one block reads and writes: each operand along its loops, a reduction all the way."""
    total = 0.0
    for operand in workload.operands:
        elements = prod(
            tile[i] if workload.loops[i].kind == "parallel" else workload.loops[i].size for i in operand.loops
        )
        total += elements * element_bytes(operand.element_type)
    return total

"""What an artifact tells of itself before it runs: counts, registers, occupancy; or that it can't run well, or not."""

from __future__ import annotations

from mlsearch.candidate import OverLimits, Spilled
from mlsearch.code_features import StaticFeatures
from mlsearch.cuda import ptxas
from mlsearch.cuda.chips import Chip
from mlsearch.cuda.executable import Kernel, read_kernels
from mlsearch.cuda.occupancy import occupancy
from mlsearch.cuda.ptx import count
from mlsearch.cuda.ptxas import Assembled

Statics = StaticFeatures | Spilled | OverLimits


def examine(artifact: bytes, chip: Chip, compile_s: float) -> Statics | None:
    """None for an artifact without a kernel, e.g. of a dispatch that only copies."""
    kernels = read_kernels(artifact)
    if not kernels:
        return None
    found = [_examine(kernel, chip, compile_s) for kernel in kernels]
    for bad in (OverLimits, Spilled):
        for each in found:
            if isinstance(each, bad):
                return each
    return max((each for each in found if isinstance(each, StaticFeatures)), key=_weight)


def _weight(features: StaticFeatures) -> tuple[int, int]:
    return (features.counts.mma, features.counts.instructions)


def _examine(kernel: Kernel, chip: Chip, compile_s: float) -> Statics:
    limits = chip.architecture
    if kernel.threads > limits.threads_per_block:
        return OverLimits(f"{kernel.threads} threads in a block > {limits.threads_per_block}", compile_s)
    assembled = ptxas.assemble(kernel.ptx, limits.name)
    if isinstance(assembled, str) and assembled != ptxas.MISSING:
        return OverLimits(assembled, compile_s)
    own: Assembled | None = None if isinstance(assembled, str) else assembled.get(kernel.name)
    shared = kernel.shared_bytes + (own.shared_bytes if own else 0)
    if shared > limits.shared_per_block:
        return OverLimits(f"{shared} bytes of shared memory > {limits.shared_per_block}", compile_s)
    if own is not None and own.spill_stores + own.spill_loads > 0:
        return Spilled(own.spill_stores + own.spill_loads, own.registers, compile_s)
    silent = "" if own else f"ptxas reported nothing for {kernel.name}"
    held = occupancy(limits, kernel.threads, own.registers, shared) if own else None
    if held is not None and held.blocks == 0:
        return OverLimits(f"a block does not fit a multiprocessor, by its {held.limited_by}", compile_s)
    return StaticFeatures(
        kernel=kernel.name,
        threads=kernel.threads,
        shared_bytes=shared,
        counts=count(kernel.ptx),
        registers=own.registers if own else None,
        occupancy=held,
        missing=assembled if isinstance(assembled, str) else silent,
    )

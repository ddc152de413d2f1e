"""How many blocks of a kernel a multiprocessor holds at a time."""

from __future__ import annotations

from mlsearch.code_features import Occupancy
from mlsearch.cuda.chips import WARP, Architecture

# CUDA Occupancy Calculator: registers are given to warps in units of 256, shared memory to blocks in units of 128 bytes
# (256 before sm_80), and warps to the four partitions of a multiprocessor.
_REGISTER_UNIT = 256
_PARTITIONS = 4


def occupancy(architecture: Architecture, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """`registers` per thread, `threads` and `shared_bytes` per block."""
    warps = -(-threads // WARP)
    by_limit = {
        "threads": architecture.warps_per_sm // warps if threads <= architecture.threads_per_block else 0,
        "registers": _by_registers(architecture, warps, registers),
        "shared memory": _by_shared(architecture, shared_bytes),
        "blocks": architecture.blocks_per_sm,
    }
    limited_by = min(by_limit, key=lambda name: by_limit[name])
    blocks = by_limit[limited_by]
    return Occupancy(blocks, blocks * warps, blocks * warps / architecture.warps_per_sm, limited_by)


def _by_registers(architecture: Architecture, warps: int, registers: int) -> int:
    if registers > architecture.registers_per_thread:
        return 0
    per_warp = _round_up(max(registers, 1) * WARP, _REGISTER_UNIT)
    if per_warp * _round_up(warps, _PARTITIONS) > architecture.registers_per_block:
        return 0
    warps_held = architecture.registers_per_sm // _PARTITIONS // per_warp * _PARTITIONS
    return warps_held // warps


def _by_shared(architecture: Architecture, shared_bytes: int) -> int:
    if shared_bytes > architecture.shared_per_block:
        return 0
    unit = 128 if architecture.has_async_copy else 256
    per_block = _round_up(shared_bytes + architecture.shared_reserved, unit)
    return architecture.shared_per_sm // per_block if per_block else architecture.blocks_per_sm


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit

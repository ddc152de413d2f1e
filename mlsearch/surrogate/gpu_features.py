"""What a surrogate sees of a candidate for an NVIDIA GPU: registers, shared memory, warps and waves, by arithmetic.

A GPU's code is good or bad by other things than a CPU's: whether a thread's values fit its registers decides whether it
spills, shared memory and registers together how many blocks a multiprocessor holds, and those how well it hides
latencies. All of it follows from tiles, threads and the chip, before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from mlsearch.candidate import KnobValue
from mlsearch.cuda.chips import REGISTER_BYTES, WARP, Chip, matrix_instruction
from mlsearch.errors import KnobError
from mlsearch.surrogate.features import SLOT_OF_ROLE, SLOTS, encodings_of, named_operands
from mlsearch.workload import GPU_TILES, Operand, Tiling, Workload, element_bytes

_Array = NDArray[np.float64]

_VECTOR_BYTES = 16
"""The widest load of a thread."""
_FIXED_REGISTERS = 24
"""Addresses and counters, which all code has."""


class GpuFeatureExtractor:
    """Features of the candidates of one workload on one chip.

    Slots of loops and names of operands are those of `features.FeatureExtractor`. LEVEL is `workgroup`, `step` (of the
    reduction), `warp` or `thread`; a level that does not cut a loop has the tile of the level around it. ALLOWED is
    what the chip gives a thread of so large a block: 255 registers, or fewer where there are more than 256 threads. All
    `log2` unless said otherwise.

    | name | meaning |
    | --- | --- |
    | `LEVEL.tile.SLOT` | iterations of a tile |
    | `waste.m/n/k` | iterations, rounded up to whole workgroup tiles and steps, over the loop's size |
    | `threads` | of a block |
    | `steps` | of the reduction |
    | `blocks.waves`, `blocks.imbalance` | blocks per multiprocessor; those of the busiest one over the mean |
    | `registers.accumulators` | a thread's share of the output tile, in registers over ALLOWED |
    | `registers.fragments` | its operands of one matrix instruction's depth, the same |
    | `registers.step` | its operands of a whole step, the same |
    | `registers.copies` | its share of what a step copies to shared memory, the same |
    | `registers.demand` | accumulators, fragments, copies and a few for addresses together, the same |
    | `registers.most` | accumulators and all operands of a step, the same |
    | `shared.bytes` | of the operands of a step, for all its stages, over what a block can have |
    | `shared.blocks`, `registers.blocks` | blocks that a multiprocessor holds by each |
    | `occupancy` | warps that it holds by both, over the most |
    | `unrolled` | matrix instructions (else scalar operations) of a warp in one step |
    | `loads.in0/in1/out` | contiguous bytes of a thread's (else a warp's) tile, over 16 |
    | `intensity` | arithmetic operations per byte that a block reads in one step |
    | `traffic` | bytes that all blocks read and write, over the operands' sizes |
    | `option.NAME`, `option.NAME=VALUE` | as in `features.FeatureExtractor` |
    """

    def __init__(self, workload: Workload, chip: Chip, options: Sequence[tuple[str, KnobValue]] = ()) -> None:
        """`options`: all (option, value) pairs in the space; others get no column."""
        self._workload, self._chip = workload, chip
        self._sizes = np.array([max(1, loop.size) for loop in workload.loops], dtype=np.float64)
        self._is_parallel = np.array([loop.kind == "parallel" for loop in workload.loops], dtype=bool)
        slots = [SLOT_OF_ROLE.get(loop.role, "other") for loop in workload.loops]
        self._loops_in = {slot: [i for i, s in enumerate(slots) if s == slot] for slot in SLOTS}
        self._named = named_operands(workload)
        self._inputs = [operand for operand in workload.operands if not operand.is_output]
        self._outputs = [operand for operand in workload.operands if operand.is_output]
        self._encodings = encodings_of([pair for pair in options if pair[0] != "threads"])
        self.names: tuple[str, ...] = tuple(name for name, _ in self._columns([Tiling((), ())]))
        """Names of the columns, in order."""

    def matrix(self, tilings: Sequence[Tiling]) -> _Array:
        """Features of n tilings, shape (n, len(names)).

        Raises KnobError for a level that a GPU does not have, or one with not one size per loop.
        """
        if not tilings:
            return np.empty((0, len(self.names)))
        return np.column_stack([column for _, column in self._columns(tilings)])

    def _columns(self, tilings: Sequence[Tiling]) -> Iterator[tuple[str, _Array]]:
        tiles = self._tiles(tilings)
        options = [dict(tiling.options) for tiling in tilings]
        threads = np.array([max(1.0, float(own.get("threads", WARP))) for own in options])
        stages = np.array([max(1.0, float(own.get("stages", 1))) for own in options])
        instructions = np.array([_instruction(own) for own in options])
        for level, tile in tiles.items():
            for slot, loops in self._loops_in.items():
                yield f"{level}.tile.{slot}", np.log2(tile[:, loops].prod(axis=1))
        block = np.where(self._is_parallel, tiles["workgroup"], tiles["step"])
        waste = np.ceil(self._sizes / block) * block / self._sizes
        for slot in ("m", "n", "k"):
            yield f"waste.{slot}", np.log2(waste[:, self._loops_in[slot]].prod(axis=1))
        yield from self._block_columns(block, threads)
        yield from self._register_columns(tiles, block, threads, stages, instructions)
        yield from self._load_columns(tiles, block)
        for encoding in self._encodings:
            yield encoding.name, np.array([encoding.encode(own) for own in options])

    def _tiles(self, tilings: Sequence[Tiling]) -> dict[str, _Array]:
        """Of each level, shape (n, loops), in whole iterations. The tiles of a warp and a thread lie within a step."""
        shape = (len(tilings), len(self._sizes))
        asked = {level: np.zeros(shape) for level in GPU_TILES}
        for row, tiling in enumerate(tilings):
            for level, sizes in tiling.levels:
                if level not in asked:
                    raise KnobError(f"tile level '{level}' is not one of {', '.join(GPU_TILES)}")
                if len(sizes) != len(self._sizes):
                    raise KnobError(f"level '{level}' has sizes {sizes} for {len(self._sizes)} loops")
                asked[level][row] = sizes
        around = np.broadcast_to(self._sizes, shape)
        tiles = {}
        for level in GPU_TILES:
            around = np.where(asked[level] > 0, np.minimum(asked[level], around), around)
            tiles[level] = around
        return tiles

    def _block_columns(self, block: _Array, threads: _Array) -> Iterator[tuple[str, _Array]]:
        trips = np.ceil(self._sizes / block)
        blocks = trips[:, self._is_parallel].prod(axis=1)
        each = blocks / self._chip.multiprocessors
        yield "threads", np.log2(threads)
        yield "steps", np.log2(trips[:, ~self._is_parallel].prod(axis=1))
        yield "blocks.waves", np.log2(each)
        yield "blocks.imbalance", np.log2(np.ceil(each) / each)

    def _register_columns(
        self, tiles: dict[str, _Array], block: _Array, threads: _Array, stages: _Array, instructions: _Array
    ) -> Iterator[tuple[str, _Array]]:
        limits = self._chip.architecture
        allowed = np.minimum(limits.registers_per_thread, limits.registers_per_block / threads)
        within_warp, depth = tiles["warp"], instructions[:, 2]
        slice_ = np.where(self._is_parallel, within_warp, np.minimum(within_warp, depth[:, None]))
        bytes_of_step = _touched(self._inputs, block)
        # Sums are kept in 32 bits, whatever the output's type.
        output = block[:, self._is_parallel].prod(axis=1)
        accumulators = output / threads * max(1.0, self._output_bytes() / REGISTER_BYTES)
        fragments = _touched(self._inputs, slice_) / (WARP * REGISTER_BYTES)
        of_step = _touched(self._inputs, within_warp) / (WARP * REGISTER_BYTES)
        copies = bytes_of_step / (threads * REGISTER_BYTES)
        demand = accumulators + fragments + copies + _FIXED_REGISTERS
        most = accumulators + of_step + _FIXED_REGISTERS
        for name, registers in (
            ("accumulators", accumulators),
            ("fragments", fragments),
            ("step", of_step),
            ("copies", copies),
            ("demand", demand),
            ("most", most),
        ):
            yield f"registers.{name}", np.log2(registers / allowed)
        shared = bytes_of_step * stages
        yield "shared.bytes", np.log2(shared / limits.shared_per_block)
        by_shared = np.clip(np.floor(limits.shared_per_sm / (shared + limits.shared_reserved)), 0.5, None)
        by_registers = np.clip(np.floor(limits.registers_per_sm / (np.minimum(demand, allowed) * threads)), 0.5, None)
        yield "shared.blocks", np.log2(by_shared)
        yield "registers.blocks", np.log2(by_registers)
        warps = np.minimum(np.minimum(by_shared, by_registers) * threads / WARP, limits.warps_per_sm)
        yield "occupancy", np.log2(warps / limits.warps_per_sm)
        yield "unrolled", np.log2(np.maximum(1.0, within_warp.prod(axis=1) / instructions.prod(axis=1)))

    def _load_columns(self, tiles: dict[str, _Array], block: _Array) -> Iterator[tuple[str, _Array]]:
        for name, position in self._named.items():
            operand = None if position is None else self._workload.operands[position]
            if operand is None or not operand.loops:
                yield f"loads.{name}", np.zeros(len(block))
                continue
            contiguous = tiles["thread"][:, operand.loops[-1]] * element_bytes(operand.element_type)
            yield f"loads.{name}", np.log2(contiguous / _VECTOR_BYTES)
        yield "intensity", np.log2(2 * block.prod(axis=1) / np.maximum(1.0, _touched(self._inputs, block)))
        trips = np.ceil(self._sizes / block)
        blocks = trips[:, self._is_parallel].prod(axis=1)
        steps = trips[:, ~self._is_parallel].prod(axis=1)
        moved = blocks * (steps * _touched(self._inputs, block) + _touched(self._outputs, block))
        once = _touched(self._workload.operands, self._sizes[None])
        yield "traffic", np.log2(np.maximum(1.0, moved) / np.maximum(1.0, once))

    def _output_bytes(self) -> int:
        return max((element_bytes(operand.element_type) for operand in self._outputs), default=REGISTER_BYTES)


def _touched(operands: Sequence[Operand], tile: _Array) -> _Array:
    """Bytes of all these operands that each tile touches."""
    total: _Array = np.zeros(len(tile))
    for operand in operands:
        total += tile[:, list(operand.loops)].prod(axis=1) * element_bytes(operand.element_type)
    return total


def _instruction(options: dict[str, KnobValue]) -> tuple[int, int, int]:
    """(m, n, k) of the matrix instruction; ones without."""
    for value in options.values():
        shape = matrix_instruction(str(value)) if "mma_layout" in str(value) else None
        if shape:
            return shape
    return 1, 1, 1

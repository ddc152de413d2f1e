"""What a surrogate sees of a candidate: numbers derived from loops, operands and tiles, never from knob
names.

So the columns mean the same for every workload and template, and a model can carry over what it learned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlsearch.candidate import KnobValue
from mlsearch.errors import KnobError
from mlsearch.target import Hardware
from mlsearch.workload import CPU_LEVELS, Operand, Tiling, Workload, element_bytes

SLOT_OF_ROLE = {"m": "m", "n": "n", "k": "k", "p1": "m", "p": "n", "r": "k"}
SLOTS = ("m", "n", "k", "other")

# Bytes per cycle from L1, L2, last-level cache and memory, and FMAs per cycle: round numbers of a current
# server core. They only have to rank candidates; the model corrects them.
_BYTES_PER_CYCLE = (128.0, 48.0, 16.0, 8.0)
_FMAS_PER_CYCLE = 2.0

_Array = NDArray[np.float64]


def options_in(tilings: Iterable[Tiling]) -> tuple[tuple[str, KnobValue], ...]:
    """The (option, value) pairs that occur, each once: columns for them come from a sample of the space."""
    pairs = dict.fromkeys(pair for tiling in tilings for pair in tiling.options)
    return tuple(sorted(pairs, key=str))


class FeatureExtractor:
    """Features of the candidates of one workload on one machine.

    A loop belongs to a slot by its role: `m` (roles m, p1), `n` (n, p), `k` (k, r), or `other`. An operand is
    `in0`, `in1` (the first two inputs), `out` (the first output) or counted in `total` only. An operand that
    does not exist gives 0. LEVEL is one of `CPU_LEVELS`; a loop that a level does not cut (size 0, or a level that
    the template lacks) has there the tile of the level around it, at first the whole loop. The *vector tile*
    is that of the innermost level. All `log2` unless said otherwise.

    | name | meaning |
    | --- | --- |
    | `LEVEL.tile.SLOT` | tile size; for `other` the product over its loops |
    | `LEVEL.trips.parallel/reduction` | tiles of this level in one of the level around, by kind of loop |
    | `LEVEL.waste.m/n/k` | iterations, rounded up to whole tiles in each tile around, over the loop's size |
    | `LEVEL.bytes.in0/in1/out` | bytes that one tile touches, over the L1 size |
    | `LEVEL.bytes.total.l1/l2/llc` | the same for all operands, over each cache's size |
    | `LEVEL.intensity` | arithmetic operations per byte touched by one tile |
    | `vector.accumulators` | vectors that hold the output's vector tile, over the number of registers |
    | `vector.spilled` | 1 + accumulators, a row of `in1` and one more that are beyond the registers |
    | `vector.unrolled` | vector operations in one vector tile, its reduction step included |
    | `vector.contiguous.in0/in1/out` | vector tile of the operand's innermost loop, over the lanes |
    | `vector.whole.in0/in1/out` | 1 if that tile is a multiple of the lanes, else 0 |
    | `vector.power_of_two` | 1 if the output's contiguous vector tile is a power of two, else 0 |
    | `remainder.m/n/k` | share (0 to 1) of iterations that are left over from whole vector tiles |
    | `remainder.peeled/masked` | padding of the vector tile, with an option called `*peel*` on, or off |
    | `threads.tiles` | distribution tiles per thread |
    | `threads.imbalance` | tiles of the busiest thread over the mean |
    | `traffic.registers/l1/l2/llc` | bytes that have to come from beyond them, over the operands' sizes |
    | `estimate.operations` | vector operations, padding included, over the fewest possible |
    | `estimate.cycles` | the sum of arithmetic and traffic in cycles, by round throughput numbers |
    | `option.NAME` | value (no log) of an option that is a number throughout the space |
    | `option.NAME=VALUE` | 1 if the option has that value, else 0, for all others |

    Bytes are upper bounds for windows: in a convolution the loops of one dim are counted as if independent.
    Where several templates compete, give the template as an option too: tiles alone do not tell them apart.
    """

    def __init__(
        self,
        workload: Workload,
        hardware: Hardware,
        *,
        threads: int = 1,
        options: Sequence[tuple[str, KnobValue]] = (),
    ) -> None:
        """`options`: all (option, value) pairs in the space; others get no column."""
        self._workload = workload
        self._hardware = hardware
        self._threads = threads
        self._sizes = np.array([max(1, loop.size) for loop in workload.loops], dtype=np.float64)
        slots = [SLOT_OF_ROLE.get(loop.role, "other") for loop in workload.loops]
        self._loops_in = {slot: [i for i, s in enumerate(slots) if s == slot] for slot in SLOTS}
        self._named = named_operands(workload)
        self._encodings = encodings_of(options)
        probe = Tiling(levels=(), options=())
        self.names: tuple[str, ...] = tuple(name for name, _ in self._columns([probe]))
        """Names of the columns, in order."""

    def matrix(self, tilings: Sequence[Tiling]) -> _Array:
        """Features of n tilings, shape (n, len(names)).

        Raises KnobError for a level that this extractor does not know, or one with not one size per loop.
        """
        if not tilings:
            return np.empty((0, len(self.names)))
        return np.column_stack([column for _, column in self._columns(tilings)])

    def _columns(self, tilings: Sequence[Tiling]) -> Iterator[tuple[str, _Array]]:
        tiles = self._tiles(tilings)
        bytes_of = np.stack([_touched(operand, tiles) for operand in self._workload.operands])
        yield from self._level_columns(tiles, bytes_of)
        yield from self._vector_columns(tiles)
        yield from self._remainder_columns(tiles, [_is_peeled(tiling) for tiling in tilings])
        yield from self._thread_columns(tiles)
        yield from self._estimate_columns(tiles, bytes_of)
        for encoding in self._encodings:
            yield encoding.name, np.array([encoding.encode(dict(tiling.options)) for tiling in tilings])

    def _tiles(self, tilings: Sequence[Tiling]) -> _Array:
        """Shape (1 + levels, n, loops): the whole loops, then each level's tile, cut to fit the one around
        it."""
        known = {level: i for i, level in enumerate(CPU_LEVELS)}
        asked = np.zeros((len(CPU_LEVELS), len(tilings), len(self._sizes)))
        for row, tiling in enumerate(tilings):
            for level, sizes in tiling.levels:
                if level not in known:
                    raise KnobError(f"tile level '{level}' is not one of {', '.join(CPU_LEVELS)}")
                if len(sizes) != len(self._sizes):
                    raise KnobError(f"level '{level}' has sizes {sizes} for {len(self._sizes)} loops")
                asked[known[level], row] = sizes
        tiles = [np.broadcast_to(self._sizes, asked.shape[1:])]
        for wanted in asked:
            tiles.append(np.where(wanted > 0, np.minimum(wanted, tiles[-1]), tiles[-1]))
        return np.stack(tiles)

    def _level_columns(self, tiles: _Array, bytes_of: _Array) -> Iterator[tuple[str, _Array]]:
        hardware = self._hardware
        caches = {"l1": hardware.l1_bytes, "l2": hardware.l2_bytes, "llc": hardware.llc_bytes}
        kinds = {
            kind: [i for i, loop in enumerate(self._workload.loops) if loop.kind == kind]
            for kind in ("parallel", "reduction")
        }
        for i, level in enumerate(CPU_LEVELS):
            around, tile = tiles[i], tiles[i + 1]
            for slot, loops in self._loops_in.items():
                yield f"{level}.tile.{slot}", np.log2(tile[:, loops].prod(axis=1))
            trips = np.ceil(around / tile)
            for kind, loops in kinds.items():
                yield f"{level}.trips.{kind}", np.log2(trips[:, loops].prod(axis=1))
            waste = _padded(self._sizes, around, tile) / self._sizes
            for slot in ("m", "n", "k"):
                yield f"{level}.waste.{slot}", np.log2(waste[:, self._loops_in[slot]].prod(axis=1))
            for name, position in self._named.items():
                touched = None if position is None else bytes_of[position, i + 1]
                yield f"{level}.bytes.{name}", _ratio(touched, hardware.l1_bytes, len(tile))
            total = bytes_of[:, i + 1].sum(axis=0)
            for cache, size in caches.items():
                yield f"{level}.bytes.total.{cache}", np.log2(total / size)
            yield f"{level}.intensity", np.log2(2 * tile.prod(axis=1) / total)

    def _vector_columns(self, tiles: _Array) -> Iterator[tuple[str, _Array]]:
        tile = tiles[-1]
        registers = self._hardware.vector_registers
        ones = np.ones(len(tile))
        contiguous, lanes, vectors = {}, {}, {}
        for name, operand in self._operands():
            inner = ones if operand is None or not operand.loops else tile[:, operand.loops[-1]]
            outer = ones if operand is None else tile[:, list(operand.loops[:-1])].prod(axis=1)
            contiguous[name] = inner
            lanes[name] = 1.0 if operand is None else self._lanes(operand)
            vectors[name] = outer * np.ceil(inner / lanes[name])
        row = np.ceil(contiguous["in1"] / lanes["in1"])
        yield "vector.accumulators", np.log2(vectors["out"] / registers)
        yield "vector.spilled", np.log2(1 + np.maximum(0, vectors["out"] + row + 1 - registers))
        yield "vector.unrolled", np.log2(np.maximum(1, tile.prod(axis=1) / lanes["out"]))
        for name in self._named:
            yield f"vector.contiguous.{name}", np.log2(contiguous[name] / lanes[name])
        for name in self._named:
            yield f"vector.whole.{name}", (contiguous[name] % lanes[name] == 0).astype(np.float64)
        # Anything but a power of two is lowered to shuffles by the hundred.
        exponent = np.log2(contiguous["out"])
        yield "vector.power_of_two", (exponent == np.floor(exponent)).astype(np.float64)

    def _remainder_columns(self, tiles: _Array, peeled: Sequence[bool]) -> Iterator[tuple[str, _Array]]:
        around, tile = _around_innermost_cut(tiles), tiles[-1]
        left_over = np.floor(self._sizes / around) * (around % tile) + (self._sizes % around) % tile
        for slot in ("m", "n", "k"):
            yield f"remainder.{slot}", (left_over / self._sizes)[:, self._loops_in[slot]].sum(axis=1)
        waste = np.log2((_padded(self._sizes, around, tile) / self._sizes).prod(axis=1))
        yield "remainder.peeled", np.where(peeled, waste, 0.0)
        yield "remainder.masked", np.where(peeled, 0.0, waste)

    def _thread_columns(self, tiles: _Array) -> Iterator[tuple[str, _Array]]:
        count = np.ceil(tiles[0] / tiles[1]).prod(axis=1)
        yield "threads.tiles", np.log2(count / self._threads)
        yield "threads.imbalance", np.log2(np.ceil(count / self._threads) * self._threads / count)

    def _estimate_columns(self, tiles: _Array, bytes_of: _Array) -> Iterator[tuple[str, _Array]]:
        hardware = self._hardware
        capacities = (0, hardware.l1_bytes, hardware.l2_bytes, hardware.llc_bytes)
        moved = _loads(self._workload.operands, tiles) * bytes_of
        total = bytes_of.sum(axis=0)
        cycles = np.zeros(tiles.shape[1])
        for name, capacity, speed in zip(("registers", "l1", "l2", "llc"), capacities, _BYTES_PER_CYCLE, strict=True):
            # What fits is loaded once; the outermost level that fits decides. Argmax finds the first True.
            fits = total <= capacity
            level = np.where(fits.any(axis=0), fits.argmax(axis=0), len(tiles) - 1)
            traffic = np.take_along_axis(moved.sum(axis=0), level[None], axis=0)[0]
            yield f"traffic.{name}", np.log2(traffic / total[0])
            cycles += traffic / speed
        lanes, contiguous = self._output_row(tiles[-1])
        padded = _padded(self._sizes, _around_innermost_cut(tiles), tiles[-1]).prod(axis=1)
        operations = padded / contiguous * np.ceil(contiguous / lanes)
        yield "estimate.operations", np.log2(operations * lanes / self._sizes.prod())
        yield "estimate.cycles", np.log2(cycles + operations / _FMAS_PER_CYCLE)

    def _output_row(self, tile: _Array) -> tuple[float, _Array]:
        """Lanes of the output's vectors, and the vector tile of its contiguous loop."""
        position = self._named["out"]
        output = self._workload.operands[position] if position is not None else None
        if output is None or not output.loops:
            return 1.0, np.ones(len(tile))
        return self._lanes(output), tile[:, output.loops[-1]]

    def _operands(self) -> Iterator[tuple[str, Operand | None]]:
        for name, position in self._named.items():
            yield name, None if position is None else self._workload.operands[position]

    def _lanes(self, operand: Operand) -> float:
        return max(1.0, self._hardware.vector_bytes / element_bytes(operand.element_type))


@dataclass(frozen=True)
class Encoding:
    """One column of an option: its number (`value=None`), or whether it has `value`."""

    option: str
    value: KnobValue | None

    @property
    def name(self) -> str:
        return f"option.{self.option}" if self.value is None else f"option.{self.option}={self.value}"

    def encode(self, options: dict[str, KnobValue]) -> float:
        found = options.get(self.option)
        if self.value is None:
            return float(found) if isinstance(found, int) else 0.0
        return float(found == self.value)


def encodings_of(options: Sequence[tuple[str, KnobValue]]) -> list[Encoding]:
    values: dict[str, set[KnobValue]] = {}
    for option, value in options:
        values.setdefault(option, set()).add(value)
    encodings = []
    for option, seen in sorted(values.items()):
        is_number = all(isinstance(value, int) for value in seen)
        choices: list[KnobValue | None] = [None] if is_number else [*sorted(seen, key=str)]
        encodings += [Encoding(option, choice) for choice in choices]
    return encodings


def named_operands(workload: Workload) -> dict[str, int | None]:
    """Index of each operand that has columns of its own."""
    inputs = [i for i, operand in enumerate(workload.operands) if not operand.is_output]
    outputs = [i for i, operand in enumerate(workload.operands) if operand.is_output]
    return {
        "in0": inputs[0] if inputs else None,
        "in1": inputs[1] if len(inputs) > 1 else None,
        "out": outputs[0] if outputs else None,
    }


def _touched(operand: Operand, tiles: _Array) -> _Array:
    """Bytes of the operand that one tile touches, shape (1 + levels, n)."""
    elements: _Array = tiles[:, :, list(operand.loops)].prod(axis=2)
    return elements * element_bytes(operand.element_type)


def _padded(sizes: _Array, around: _Array, tile: _Array) -> _Array:
    """Iterations of each loop when every tile of `around` is filled up with whole tiles."""
    whole: _Array = np.floor(sizes / around) * np.ceil(around / tile) * tile
    rest: _Array = np.ceil((sizes % around) / tile) * tile
    return whole + rest


def _around_innermost_cut(tiles: _Array) -> _Array:
    """For each loop the tile around the innermost one that differs from it; the loop itself if it is not
    cut."""
    around: _Array = tiles[0]
    for outer in tiles[1:]:
        around = np.where(outer > tiles[-1], outer, around)
    return around


def _loads(operands: Sequence[Operand], tiles: _Array) -> _Array:
    """How often each operand's tile is loaded, shape (operands, 1 + levels, n).

    An operand that no cut loop of a level moves through stays where it is for the whole level.
    """
    trips = np.ceil(tiles[:-1] / tiles[1:])
    loads = np.ones((len(operands), *tiles.shape[:2]))
    for i, operand in enumerate(operands):
        moves = trips[:, :, list(operand.loops)].prod(axis=2) > 1
        loads[i, 1:] = np.cumprod(np.where(moves, trips.prod(axis=2), 1.0), axis=0)
    return loads


def _ratio(touched: _Array | None, size: int, count: int) -> _Array:
    return np.zeros(count) if touched is None else np.log2(touched / size)


def _is_peeled(tiling: Tiling) -> bool:
    return any("peel" in name and str(value).lower() in ("true", "1") for name, value in tiling.options)

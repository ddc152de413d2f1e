"""Knobs around the tiles that IREE chooses for its TileAndFuse pipeline.

    tile_ROLE       iterations of a parallel loop in a workgroup, where threads have tiles of their own
    thread_ROLE     of these, a thread's
    step_ROLE       iterations of a reduction in one step, unrolled; with matrix instructions, so many of them
    subgroup_ROLE   matrix instructions of a warp along a loop
    warps_ROLE      warps of a workgroup along a loop
    times_ROLE      in convolutions as implicit GEMM: a workgroup's tile along a loop, with its warps, over IREE's own
    step            there: of all reductions as one

IREE's own sizes are always allowed, whatever the constraints say of others. They go with IREE's own number of threads,
which may be more than there are tiles for, or less than a warp; other sizes with as many as there are tiles for, in
whole warps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod

from mlsearch.candidate import KnobValue
from mlsearch.cuda.chips import WARP, matrix_instruction
from mlsearch.ir.choice import Choice
from mlsearch.ir.template import Expression, KnobLeaf
from mlsearch.space.sketch import (
    Draft,
    at_most,
    constant,
    divisors,
    equal,
    knob,
    less,
    parallel_loops,
    powers,
    product,
    reduction_loops,
    remainder,
    total,
)

_PIPELINE = "#iree_gpu.pipeline<TileAndFuse>"
_WORKGROUP, _THREAD, _SUBGROUP, _REDUCTION, _PADDING = "workgroup", "thread", "subgroup", "reduction", "padding"
_MOST_THREADS = 1024
_MOST_WARPS = 16
_MOST_ELEMENTS = 64
_MOST_ACCUMULATORS = 128
_MOST_UNROLLED = 1024
_FARTHEST = 4
"""Times larger or smaller than IREE's own that a size may be."""
_MOST_LOOPS = 3
"""Parallel loops with knobs, inner ones first, and as many reductions."""


@dataclass(frozen=True)
class OwnKnobs:
    """How sizes follow from knobs. Those that are not here stay IREE's own."""

    own: Mapping[str, tuple[int, ...]]
    factors: Mapping[str, Mapping[int, tuple[str | int, ...]]]
    """By level and loop: the knobs and numbers that a size is the product of."""
    own_threads: int

    def sizes(self, knobs: Mapping[str, KnobValue]) -> dict[str, tuple[int, ...]]:
        found = {}
        for level, sizes in self.own.items():
            changed = list(sizes)
            for loop, factors in self.factors.get(level, {}).items():
                changed[loop] = prod(int(knobs[each]) if isinstance(each, str) else each for each in factors)
            found[level] = tuple(changed)
        return found

    def threads(self, sizes: Mapping[str, tuple[int, ...]]) -> int:
        """In whole warps."""
        if _SUBGROUP in sizes:
            grown, own = (prod(filter(None, each[_WORKGROUP])) for each in (sizes, self.own))
            held, own_held = (prod(filter(None, each[_SUBGROUP])) for each in (sizes, self.own))
            return self.own_threads * grown * own_held // (own * held)
        tiles = zip(sizes[_WORKGROUP], sizes[_THREAD], strict=True)
        return WARP * ceil(prod(ceil(tile / thread) for tile, thread in tiles if tile and thread) / WARP)


def own_knobs(draft: Draft, choice: Choice) -> OwnKnobs | None:
    """Adds the knobs and their constraints to the draft; None for a choice that has none."""
    whole, parallel = choice.sizes.get(_WORKGROUP, ()), len([each for each in draft.loops if each.kind == "parallel"])
    if choice.pipeline != _PIPELINE or not whole:
        return None
    if len(choice.sizes.get(_THREAD, ())) == len(whole) == len(draft.loops):
        return _thread_tiles(draft, choice)
    shape = matrix_instruction(choice.entries.get("mma_kind", ""))
    if shape is None or len(choice.sizes.get(_SUBGROUP, ())) != len(whole):
        return None
    if len(whole) == len(draft.loops):
        return _warp_tiles(draft, choice, dict(zip("mnk", shape, strict=True)))
    # An implicit GEMM has the parallel loops of the convolution, and all its reductions as one.
    return _implicit_tiles(draft, choice, parallel) if len(whole) == parallel + 1 else None


class _Knobs:
    """Knobs as they come together, with constraints that IREE's own values are free of."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.factors: dict[str, dict[int, tuple[str | int, ...]]] = {}
        self._held: list[tuple[Expression, str, tuple[Expression, ...]]] = []

    def add(self, stem: str, loop: int, domain: Sequence[int], own: int) -> str:
        name = f"{stem}_{self.draft.loops[loop].role}"
        self.draft.integer(name, domain, own)
        return name

    def place(self, level: str, loop: int, *factors: str | int) -> None:
        self.factors.setdefault(level, {})[loop] = factors
        leaves = [KnobLeaf(each, ()) if isinstance(each, str) else each for each in factors]
        self.draft.place(level, loop, leaves if len(leaves) > 1 else leaves[0])

    def hold(self, condition: Expression, message: str, *shown: Expression) -> None:
        self._held.append((condition, message, shown))

    def limit(self, factors: Sequence[Expression], most: int, what: str) -> None:
        """A product of sizes is at most so much, or as much as IREE's own."""
        names = {str(each.value) for each in factors if each.op == "knob"}
        own = prod(int(str(self.draft.defaults[name])) for name in names)
        own *= prod(int(str(each.value)) for each in factors if each.op == "constant")
        whole = product(factors)
        self.draft.state(at_most(whole, constant(max(most, own))), f"{{}} {what} <= {max(most, own)}", whole)

    def done(self, choice: Choice) -> OwnKnobs | None:
        if not self.factors:
            return None
        own = [equal(knob(name), constant(int(str(value)))) for name, value in self.draft.defaults.items()]
        is_own = own[0] if len(own) == 1 else Expression("and", tuple(own))
        for condition, message, shown in self._held:
            self.draft.state(Expression("or", (is_own, condition)), f"{message}, or all is IREE's own", *shown)
        return OwnKnobs(choice.sizes, self.factors, prod(choice.workgroup_size))


def _thread_tiles(draft: Draft, choice: Choice) -> OwnKnobs | None:
    loops, whole, own = draft.loops, choice.sizes[_WORKGROUP], choice.sizes[_THREAD]
    knobs = _Knobs(draft)
    tiles: dict[int, Expression] = {}
    threads: dict[int, Expression] = {}
    for loop in [i for i in parallel_loops(loops) if whole[i] and own[i]][-_MOST_LOOPS:]:
        size, role = loops[loop].size, loops[loop].role
        tile = knobs.add("tile", loop, _near(whole[loop], 2 * size - 1), whole[loop])
        thread = knobs.add("thread", loop, _near(own[loop], size), own[loop])
        knobs.place(_WORKGROUP, loop, tile)
        knobs.place(_THREAD, loop, thread)
        tiles[loop], threads[loop] = knob(tile), knob(thread)
        knobs.hold(at_most(knob(thread), knob(tile)), f"a thread's {{}} of {role} <= {{}}", knob(thread), knob(tile))
    steps = _steps(knobs, choice, dict.fromkeys(range(len(loops)), 1))
    started = product([_shares(tiles[loop], threads[loop]) for loop in tiles])
    knobs.hold(at_most(started, constant(_MOST_THREADS)), f"{{}} threads <= {_MOST_THREADS}", started)
    # A warp is started anyway.
    least = min(WARP, prod(ceil(whole[loop] / own[loop]) for loop in tiles))
    knobs.hold(at_most(constant(least), started), f"{{}} threads have a tile, at least {least}", started)
    knobs.limit([*threads.values()], _MOST_ELEMENTS, "elements of a thread")
    knobs.limit([*threads.values(), *steps.values()], _MOST_UNROLLED, "elements of a thread in a step")
    if "promote_operands" in choice.entries and tiles:
        rests = total([remainder(draft.size(loop), tile) for loop, tile in tiles.items()])
        knobs.hold(equal(rests, constant(0)), "tiles that are copied to shared memory leave no rest ({})", rests)
        copied = product([*tiles.values(), *steps.values(), constant(_element_bytes(draft))])
        shared = constant(draft.facts["l1_bytes"])
        knobs.hold(at_most(copied, shared), "{} bytes of an operand <= {} of shared memory", copied, shared)
    return knobs.done(choice)


def _warp_tiles(draft: Draft, choice: Choice, shape: Mapping[str, int]) -> OwnKnobs | None:
    loops, whole, own = draft.loops, choice.sizes[_WORKGROUP], choice.sizes[_SUBGROUP]
    knobs = _Knobs(draft)
    shared = [loop for loop in range(len(loops)) if loops[loop].role in shape and own[loop]]
    if len(shared) != 2 or any(whole[loop] % (own[loop] * shape[loops[loop].role]) for loop in shared):
        return None
    is_padded = len(choice.sizes.get(_PADDING, ())) == len(loops)
    tiles, subgroups, warps = [], [], []
    for loop in shared:
        size, part = loops[loop].size, shape[loops[loop].role]
        count = whole[loop] // (own[loop] * part)
        subgroup = knobs.add("subgroup", loop, _near(own[loop], 2 * size // part), own[loop])
        warp = knobs.add("warps", loop, _near(count, 2 * size // part), count)
        knobs.place(_SUBGROUP, loop, subgroup)
        knobs.place(_WORKGROUP, loop, part, subgroup, warp)
        if is_padded:
            knobs.place(_PADDING, loop, part, subgroup, warp)
        subgroups.append(knob(subgroup))
        warps.append(knob(warp))
        tiles.append(product([constant(part), knob(subgroup), knob(warp)]))
        if not is_padded:
            rest = remainder(draft.size(loop), tiles[-1])
            knobs.hold(equal(rest, constant(0)), f"tiles of {{}} divide {loops[loop].role}", tiles[-1])
    units = {loop: shape.get(loops[loop].role, 1) for loop in range(len(loops))}
    steps = _steps(knobs, choice, units, is_padded=is_padded)
    knobs.limit(warps, _MOST_WARPS, "warps")
    # A 16 x 8 tile of results is four of each of a warp's threads.
    knobs.limit([*subgroups, constant(shape["m"] * shape["n"] // WARP)], _MOST_ACCUMULATORS, "accumulators of a thread")
    depth = [product([each, constant(units[loop])]) for loop, each in steps.items()]
    copied = product([total(tiles), *depth, constant(draft.facts["input_bytes"])])
    most = constant(draft.facts["l1_bytes"])
    knobs.hold(at_most(copied, most), "{} bytes of operands <= {} of shared memory", copied, most)
    return knobs.done(choice)


def _implicit_tiles(draft: Draft, choice: Choice, parallel: int) -> OwnKnobs | None:
    """Of a convolution as implicit GEMM, which has all reductions as one. Which loops share which side of a matrix
    instruction is not in the choice, so tiles grow with their warps."""
    loops, whole = draft.loops, choice.sizes[_WORKGROUP]
    padding, own_step = choice.sizes.get(_PADDING, ()), choice.sizes.get(_REDUCTION, (0,))[-1]
    if not own_step or any(loop.kind != "parallel" for loop in loops[:parallel]):
        return None
    knobs = _Knobs(draft)
    times = []
    for loop in [i for i in parallel_loops(loops) if whole[i]]:
        name = knobs.add("times", loop, powers(_FARTHEST), 1)
        times.append(knob(name))
        for level in (_WORKGROUP, _PADDING, "padding_conv"):
            if level in choice.sizes:
                knobs.place(level, loop, choice.sizes[level][loop], name)
        tile = product([constant(whole[loop]), knob(name)])
        fits = less(tile, product([draft.size(loop), constant(2)]))
        even = equal(remainder(draft.size(loop), tile), constant(0))
        knobs.hold(fits if padding else even, f"tiles of {{}} fit {loops[loop].role} ({{}})", tile, draft.size(loop))
    knobs.limit([*times, constant(prod(choice.workgroup_size))], _MOST_WARPS * WARP, "threads")
    if padding and padding[-1] % own_step == 0:
        last = len(whole) - 1
        step = "step"
        draft.integer(step, sorted({own_step, *powers(_FARTHEST)}), own_step)
        knobs.place(_REDUCTION, last, step)
        knobs.place(_PADDING, last, padding[-1] // own_step, step)
    return knobs.done(choice)


def _steps(
    knobs: _Knobs, choice: Choice, units: Mapping[int, int], *, is_padded: bool = False
) -> dict[int, Expression]:
    """Knobs for the steps along reductions; `units`: iterations that 1 stands for."""
    loops, own = knobs.draft.loops, choice.sizes.get(_REDUCTION, ())
    if len(own) != len(loops):
        return {}
    found = {}
    for loop in [i for i in reduction_loops(loops) if own[i]][-_MOST_LOOPS:]:
        most = ceil(loops[loop].size / units[loop])
        even = powers(most) if is_padded else divisors(loops[loop].size // units[loop], _FARTHEST * own[loop])
        domain = {own[loop], *(size for size in even if own[loop] / _FARTHEST <= size <= own[loop] * _FARTHEST)}
        step = knobs.add("step", loop, sorted(domain), own[loop])
        knobs.place(_REDUCTION, loop, step)
        if is_padded:
            knobs.place(_PADDING, loop, units[loop], step)
        found[loop] = knob(step)
    return found


def _shares(tile: Expression, thread: Expression) -> Expression:
    """How many threads there are tiles for."""
    last = Expression("int.sub", (thread, constant(1)))
    return Expression("int.div", (total([tile, last]), thread))


def _element_bytes(draft: Draft) -> int:
    return max(draft.facts["element_bytes"], draft.facts["input_bytes"])


def _near(own: int, most: int) -> list[int]:
    """A size, its halves and doubles, and powers of two, not too far from it and up to a bound."""
    multiples = [own * each for each in powers(_FARTHEST)]
    parts = [own // each for each in powers(_FARTHEST) if own % each == 0]
    around = [each for each in powers(own * _FARTHEST) if each * _FARTHEST >= own]
    return sorted({own, *(each for each in (*multiples, *parts, *around) if each <= most)})

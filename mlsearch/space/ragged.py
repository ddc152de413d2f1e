"""Loops that are no multiples of a matrix instruction's, in a space that the compiler emits.

Its constraints round them up, but say nothing of how the rest comes about. IREE's own choice pads operands to the
workgroup's tile; here its candidates do so too, where IREE can, and have tiles without a rest where it can't.
"""

from __future__ import annotations

from math import prod

from mlsearch.ir import emitted as ir_emitted
from mlsearch.ir.emitted import EmittedConstraints, read_emitted
from mlsearch.ir.template import Assertion, Expression, KnobLeaf
from mlsearch.space.constraints import evaluate
from mlsearch.space.pressure import MMA_KIND, matrix_shapes, matrix_size

_MOST_PADDED = Expression("constant", value=512)
"""The largest tile that IREE's constraints allow, a power of two."""
_ZERO = Expression("constant", value=0)


def with_whole_instructions(emitted: EmittedConstraints) -> tuple[EmittedConstraints, tuple[Assertion, ...]]:
    """The constraints with what ragged loops need, and their assertions; as they are where no loop is ragged."""
    if not _is_ragged(emitted):
        return emitted, emitted.assertions
    if not _can_be_padded(emitted):
        return emitted, (*emitted.assertions, *_whole_tiles(emitted))
    padded = read_emitted(ir_emitted.padded(emitted.text))
    return padded, (*(_without_rest(assertion, padded) for assertion in padded.assertions), _padded_step(padded))


def _is_ragged(emitted: EmittedConstraints) -> bool:
    """Whether a loop is no multiple of a matrix instruction's, so that the constraints round it up."""
    shapes = matrix_shapes(emitted)
    if emitted.pipeline != "TileAndFuse" or shapes is None:
        return False
    kinds = emitted.knob_tree[MMA_KIND]
    assert isinstance(kinds, KnobLeaf)
    tiled, reduced = _tiled_loops(emitted), prod(emitted.dims[name] for name in _reduced_loops(emitted))
    return any(reduced % k for _, _, k in shapes) or any(
        int(evaluate(rounded, {kinds.name: number}, emitted.dims)) != emitted.dims[name]
        for number in range(len(shapes))
        for name, (rounded, _) in tiled.items()
    )


def _reduced_loops(emitted: EmittedConstraints) -> list[str]:
    """The loops that a step of matrix instructions runs along: all of the reduction as one, or the one that it cuts."""
    tile, steps, names = emitted.knob_tree["workgroup"], emitted.knob_tree["reduction"], list(emitted.dims)
    assert isinstance(tile, list) and isinstance(steps, list)
    if _can_be_padded(emitted):
        # A tile has an entry for each parallel loop, these come first, and zeros behind.
        return names[sum(1 for each in tile if each) :]
    return [name for name, step in zip(names, steps, strict=True) if isinstance(step, KnobLeaf)]


def _tiled_loops(emitted: EmittedConstraints) -> dict[str, tuple[Expression, Expression]]:
    """Each loop that a workgroup's tile has to divide: its size, rounded up to matrix instructions, and the tile."""
    found = {}
    for assertion in emitted.assertions:
        divided = _divided(assertion, emitted)
        if divided is not None:
            [name] = _dims_in(divided[0])
            found[name] = divided
    return found


def _divided(assertion: Assertion, emitted: EmittedConstraints) -> tuple[Expression, Expression] | None:
    """(loop, tile) of a constraint that a workgroup's tile divides a loop; None for other constraints."""
    condition = assertion.condition
    if condition.op != "eq" or condition.arguments[0].op != "int.mod":
        return None
    loop, tile = condition.arguments[0].arguments
    is_tile = tile.op == "knob" and str(tile.value) in _knobs_in(emitted.knob_tree.get("workgroup"))
    return (loop, tile) if is_tile and len(_dims_in(loop)) == 1 else None


def _dims_in(term: Expression) -> frozenset[str]:
    if term.op == "dim":
        return frozenset([str(term.value)])
    return frozenset().union(*(_dims_in(argument) for argument in term.arguments))


def _can_be_padded(emitted: EmittedConstraints) -> bool:
    """Contractions and convolutions as implicit GEMM; IREE does not pad what it takes for the convolution itself."""
    tile = emitted.knob_tree["workgroup"]
    return len(emitted.dims) == 3 or (isinstance(tile, list) and len(tile) < len(emitted.dims))


def _whole_tiles(emitted: EmittedConstraints) -> list[Assertion]:
    """What is left where nothing is padded. Of 14 candidates for a convolution over 56 x 56 in f16 on sm_90, the three
    compiled whose tiles, of the row rounded up to 64, covered all of it, and none that cut it with a rest. With 3 input
    channels, none of 8 did."""
    found = []
    for name in _reduced_loops(emitted):
        loop, depth = Expression("dim", value=name), matrix_size(emitted, 2)
        whole = Expression("eq", (Expression("int.mod", (loop, depth)), _ZERO))
        found.append(Assertion(whole, "matrix instructions {} deep divide a loop of {}", (depth, loop)))
    for name, (_, tile) in _tiled_loops(emitted).items():
        loop = Expression("dim", value=name)
        divides = Expression("eq", (Expression("int.mod", (loop, tile)), _ZERO))
        condition = Expression("or", (divides, Expression("int.cmp", (tile, loop), "ge")))
        found.append(Assertion(condition, "a tile of {} divides its loop of {} or covers it", (tile, loop)))
    return found


def _padded_step(emitted: EmittedConstraints) -> Assertion:
    """What a step of the reduction comes to in iterations."""
    [step] = _knobs_in(emitted.knob_tree["reduction"])
    iterations = Expression("int.mul", (Expression("knob", value=step), matrix_size(emitted, 2)))
    padded = Expression("knob", value=ir_emitted.PADDED_STEP)
    return Assertion(Expression("eq", (padded, iterations)), "a step is padded to whole matrix instructions", ())


def _without_rest(assertion: Assertion, emitted: EmittedConstraints) -> Assertion:
    """The constraint that a workgroup's tile divides its loop, for all but powers of two: what is padded to its tile
    leaves no rest. IREE itself chooses 64 for 731 rows, which are left with 16, 32 and 368 otherwise."""
    divided = _divided(assertion, emitted)
    if divided is None:
        return assertion
    power = Expression("eq", (Expression("int.mod", (_MOST_PADDED, divided[1])), _ZERO))
    condition = Expression("or", (assertion.condition, power))
    return Assertion(condition, f"{assertion.message}, or it is a power of two", assertion.shown)


def _knobs_in(entries: object) -> list[str]:
    """The integer knobs in a list of sizes."""
    return [each.name for each in entries if isinstance(each, KnobLeaf)] if isinstance(entries, list) else []

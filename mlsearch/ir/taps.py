"""Unroll the window of a convolution or pooling: one op for each tap, each without a window.

IREE vectorizes windows only where it knows the op by name. Its vectorizer takes any op whose operands are indexed by
plain loops, and a tap is such an op: it reads its input at a fixed offset. The taps add to one another, so they are
fused into one register tile, whose accumulators stay in registers over all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from iree.compiler import ir as mlir
from iree.compiler.dialects.transform import interpreter

from mlsearch.ir.access import Access, accesses, strides, window_loops
from mlsearch.ir.dispatch import DispatchView, NotReadable, read_dispatch
from mlsearch.ir.module import new_context, parse, top_level
from mlsearch.ir.writing import Rewrite, Steps, function_in, sequence_text
from mlsearch.workload import Loop

MOST_TAPS = 32
"""A 5x5 window has 25. Each tap is unrolled code of its own, and compile time follows."""

# Drops the loops of one iteration that IREE puts around a convolution without a batch; the reshapes that this leaves
# go into the buffers, or else the result is stored element by element.
_FLATTEN = ("linalg.fold_unit_extent_dims_via_reshapes", "canonicalization")
_FOLD_INTO_BUFFERS = "iree-codegen-cleanup-buffer-alloc-view"
_CLEAN = (
    "canonicalization",
    "linalg.tiling_canonicalization",
    "linalg.fold_unit_extent_dims_via_slices",
    "tensor.merge_consecutive_insert_extract_slice",
)


@dataclass(frozen=True)
class Unrolling:
    """What is done to a dispatch."""

    before: DispatchView
    """As a strategy finds it."""
    flat: DispatchView
    """Without loops of one iteration."""
    order: tuple[int, ...]
    """The loops of the flat root op in the order in which the taps have them."""
    windows: tuple[tuple[int, int], ...]
    """(position in `order`, size) of each loop of the window."""

    def rewrite(self, steps: Steps, function: mlir.Value) -> mlir.Value:
        """Writes the steps; gives the handle of the function afterwards."""
        function = _flatten(steps, function, self.before)
        _unroll(steps, function, self.flat, self.order, self.windows)
        return function


@dataclass(frozen=True)
class Tapped:
    """A dispatch with its window unrolled, and how it got there."""

    view: DispatchView
    """Afterwards; the root op is the last tap. Its loops have the roles that they have in the dispatch itself."""
    taps: int
    unrolling: Unrolling

    @property
    def chain(self) -> range:
        """Indices of the taps among the compute ops."""
        return range(self.view.root - self.taps + 1, self.view.root + 1)


def tapped(view: DispatchView, late_view: DispatchView) -> Tapped | None:
    """None for an op without a window, with a window that moves by more than one element, or with too many taps."""
    try:
        flat = _run(late_view, lambda steps, function: _flatten(steps, function, late_view), None)
    except NotReadable:
        return None
    loops = flat.workload.loops
    found = accesses(flat)
    windows = window_loops(loops, found)
    taps = prod(loops[loop].size for loop in windows)
    # A loop that steps over elements stays in the indexing maps, which are not vectorized then.
    if not windows or taps > MOST_TAPS or any(step != 1 for step in strides(loops, found).values()):
        return None
    roles = [loop for loop in view.workload.loops if loop.size > 1]
    if [(loop.size, loop.kind) for loop in roles] != [(loop.size, loop.kind) for loop in loops]:
        return None
    order = _order(loops, found, windows)
    sizes = tuple((order.index(loop), loops[loop].size) for loop in windows)
    unrolling = Unrolling(late_view, flat, order, sizes)
    try:
        after = _run(late_view, unrolling.rewrite, flat.root + taps - 1)
    except NotReadable:
        return None
    named = tuple(roles[loop] for loop in order if loop not in windows)
    left = after.workload.loops
    if len(after.compute_ops) != len(flat.compute_ops) + taps - 1 or [(loop.size, loop.kind) for loop in named] != [
        (loop.size, loop.kind) for loop in left
    ]:
        return None
    after = replace(after, workload=replace(after.workload, loops=named))
    return Tapped(after, taps, unrolling)


def _order(loops: Sequence[Loop], found: Sequence[Access], windows: Sequence[int]) -> tuple[int, ...]:
    """As they are, the window last; where something else is reduced, too: parallel loops of all inputs, then those of
    the first one, then those of the second one.

    IREE's products of vectors are written for rows of the left operand and columns of the right one, in this order;
    any other is taken apart into scalars.
    """
    multiplies = any(loop.kind == "reduction" and i not in windows for i, loop in enumerate(loops))
    inputs = [access.loops for access in found if not access.is_output]
    first = inputs[0] if inputs else frozenset()
    second = inputs[1] if len(inputs) > 1 else frozenset()

    def group(loop: int) -> int:
        if loop in windows:
            return 4
        if loops[loop].kind == "reduction":
            return 3
        if not multiplies:
            return 0
        if loop in first and loop not in second:
            return 1
        return 2 if loop in second and loop not in first else 0

    return tuple(sorted(range(len(loops)), key=lambda loop: (group(loop), loop)))


def _run(view: DispatchView, rewrite: Rewrite, root: int | None) -> DispatchView:
    """The dispatch after a rewrite. Raises NotReadable, also where the interpreter refuses it."""

    def body(steps: Steps) -> None:
        rewrite(steps, function_in(steps, steps.arguments[0]))

    context = new_context()
    library = parse(sequence_text("rewrite", body), context)
    payload = parse(view.function, context)
    [sequence] = top_level(library)
    try:
        interpreter.apply_named_sequence(payload.operation, sequence, library)
    except (mlir.MLIRError, ValueError, RuntimeError) as error:
        raise NotReadable(str(error)) from None
    return read_dispatch(payload, root)


def _flatten(steps: Steps, function: mlir.Value, view: DispatchView) -> mlir.Value:
    ops = steps.match_inside(function, len(view.compute_ops))
    for handle, op in zip(ops, view.compute_ops, strict=True):
        if op.name != "linalg.generic":
            steps.handle("transform.structured.generalize", [handle])
    steps.apply_patterns(function, _FLATTEN)
    return steps.registered_pass(function, _FOLD_INTO_BUFFERS)


def _unroll(
    steps: Steps,
    function: mlir.Value,
    flat: DispatchView,
    order: Sequence[int],
    windows: Sequence[tuple[int, int]],
) -> None:
    op = steps.match_inside(function, len(flat.compute_ops))[flat.root]
    if list(order) != sorted(order):
        attributes = {"iterator_interchange": f"array<i64: {', '.join(map(str, order))}>"}
        op = steps.handle("transform.structured.interchange", [op], attributes)
    cut = [int(position in dict(windows)) for position in range(len(order))]
    attributes = {
        "static_sizes": f"array<i64: {', '.join(map(str, cut))}>",
        "scalable_sizes": f"array<i1: {', '.join(['false'] * len(cut))}>",
        "operandSegmentSizes": "array<i32: 1, 0, 0, 0, 0>",
    }
    any_op = "!transform.any_op"
    _, *nest = steps.add("transform.structured.tile_using_for", [op], [any_op] * (1 + len(windows)), attributes)
    for handle, (_, size) in reversed(list(zip(nest, windows, strict=True))):
        steps.add("transform.loop.unroll", [handle], (), {"factor": f"{size} : i64"})
    steps.apply_patterns(function, _CLEAN)
    steps.add("transform.apply_cse", [function])

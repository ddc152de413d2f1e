"""How a dispatch's root op walks through its operands: strides and windows, read from the indexing maps."""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir as mlir
from iree.compiler.dialects import linalg

from mlsearch.ir.dispatch import DispatchView, body_operations
from mlsearch.ir.extension import ExtensionLoops, extension_loops
from mlsearch.ir.loop_nest import outputs
from mlsearch.ir.module import new_context, parse
from mlsearch.workload import Loop

Strides = dict[int, int]
"""Loop to how far one iteration of it goes along a dim."""


@dataclass(frozen=True)
class Access:
    """An operand of the root op, as its indexing map reads or writes it."""

    dims: tuple[Strides | None, ...]
    """For each dim, outermost first, the loops that move along it; None for what is not a sum of loops."""
    is_output: bool

    @property
    def loops(self) -> frozenset[int]:
        return frozenset(loop for steps in self.dims for loop in steps or ())

    @property
    def contiguous(self) -> frozenset[int]:
        """Loops that move one element at a time along the innermost dim."""
        innermost = self.dims[-1] if self.dims else None
        return frozenset(loop for loop, step in (innermost or {}).items() if step == 1)


def accesses(view: DispatchView) -> tuple[Access, ...]:
    """Of all tensors that the root op takes, inputs first; empty if its indexing maps can't be read."""
    module = parse(view.function, new_context())
    root = body_operations(module.body.operations[0].operation)[view.compute_ops[view.root].position]
    maps = linalg.get_indexing_maps(root)
    if maps is None:
        return ()
    inputs = len(root.operands) - outputs(root)
    return tuple(
        Access(tuple(_strides(expression) for expression in attribute.value.results), index >= inputs)
        for index, (attribute, value) in enumerate(zip(maps, root.operands, strict=True))
        if isinstance(value.type, mlir.ShapedType)
    )


def extension_of(view: DispatchView) -> ExtensionLoops | None:
    """The loops of a root op without indexing maps; None for any other."""
    module = parse(view.function, new_context())
    root = body_operations(module.body.operations[0].operation)[view.compute_ops[view.root].position]
    return extension_loops(root)


def window_loops(loops: tuple[Loop, ...], found: tuple[Access, ...]) -> tuple[int, ...]:
    """The reduction loops that slide over an input together with a parallel loop, as a filter's do; in order."""
    windows = {
        loop
        for access in found
        for steps in access.dims
        if steps and any(loops[other].kind == "parallel" for other in steps)
        for loop in steps
        if loops[loop].kind == "reduction"
    }
    return tuple(sorted(windows))


def strides(loops: tuple[Loop, ...], found: tuple[Access, ...]) -> dict[int, int]:
    """Of the parallel loops that a window slides along: how far one iteration goes."""
    return {
        loop: step
        for access in found
        for steps in access.dims
        if steps and len(steps) > 1
        for loop, step in steps.items()
        if loops[loop].kind == "parallel"
    }


def contiguous_loop(loops: tuple[Loop, ...], found: tuple[Access, ...]) -> int | None:
    """The loop that walks along the output one element at a time; None for an output of one element."""
    for access in found:
        if access.is_output:
            return next((loop for loop in sorted(access.contiguous) if loops[loop].size > 1), None)
    return None


def _strides(expression: mlir.AffineExpr) -> Strides | None:
    """The loops in a sum of loops and of loops times a number; None for anything else."""
    if isinstance(expression, mlir.AffineDimExpr):
        return {int(expression.position): 1}
    if isinstance(expression, mlir.AffineConstantExpr):
        return {}
    if isinstance(expression, mlir.AffineMulExpr):
        if not isinstance(expression.rhs, mlir.AffineConstantExpr):
            return None
        inner = _strides(expression.lhs)
        return None if inner is None else {loop: step * int(expression.rhs.value) for loop, step in inner.items()}
    if isinstance(expression, mlir.AffineAddExpr):
        left, right = _strides(expression.lhs), _strides(expression.rhs)
        if left is None or right is None or left.keys() & right.keys():
            return None
        return {**left, **right}
    return None

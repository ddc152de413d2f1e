"""Where a buffer lies, as the types of all that is made from it show.

To IREE a buffer at the start of its binding has the plain layout, and one behind others an offset that isn't known. A
dispatch cut out of its payload has its buffers to itself, so that it computes the same with other types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from iree.compiler import ir as mlir

from mlsearch.ir.module import Operation

_MOST_BUFFERS = 4
_SUBVIEW = "memref.subview"

Types = dict[mlir.Value, mlir.Type]


def placements(operations: Sequence[Operation], outside: Sequence[mlir.Value]) -> list[Types]:
    """Types of the values from `outside` and of all results, for each way in which the buffers from outside may lie.

    The first has all at the start. Only the types as they are, if there are no buffers, more than four of them, or
    views that can't be followed.
    """
    buffers = [value for value in outside if isinstance(value.type, mlir.MemRefType)]
    made = [op for op in operations if any(isinstance(result.type, mlir.MemRefType) for result in op.results)]
    if not buffers or len(buffers) > _MOST_BUFFERS or any(op.name != _SUBVIEW for op in made):
        return [{value: value.type for value in (*outside, *(each for op in operations for each in op.results))}]
    found = []
    for behind in product((False, True), repeat=len(buffers)):
        types = {value: value.type for value in outside}
        types |= {value: _placed(value.type, far) for value, far in zip(buffers, behind, strict=True)}
        for op in operations:
            types |= {each: _cut_type(op, types) if op.name == _SUBVIEW else each.type for each in op.results}
        found.append(types)
    return found


def _placed(kind: mlir.MemRefType, is_behind_others: bool) -> mlir.Type:
    strides, _ = kind.get_strides_and_offset()
    dynamic = mlir.ShapedType.get_dynamic_stride_or_offset()
    layout = mlir.StridedLayoutAttr.get(dynamic, strides) if is_behind_others else None
    return mlir.MemRefType.get(kind.shape, kind.element_type, layout, kind.memory_space)


def _cut_type(op: Operation, types: Mapping[mlir.Value, mlir.Type]) -> mlir.Type:
    """The type of a subview, whose shape and strides stay as they are, wherever its source lies."""
    kind = mlir.MemRefType(op.results[0].type)
    own_strides, _ = kind.get_strides_and_offset()
    strides, offset = mlir.MemRefType(types[op.operands[0]]).get_strides_and_offset()
    offsets = list(mlir.DenseI64ArrayAttr(op.attributes["static_offsets"]))
    dynamic = mlir.ShapedType.get_dynamic_stride_or_offset()
    if dynamic in (offset, *offsets, *strides):
        offset = dynamic
    else:
        offset += sum(start * stride for start, stride in zip(offsets, strides, strict=True))
    layout = mlir.StridedLayoutAttr.get(offset, own_strides)
    return mlir.MemRefType.get(kind.shape, kind.element_type, layout, kind.memory_space)

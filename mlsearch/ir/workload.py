"""What a dispatch computes, as a `Workload`: its kind, its loops by role, its arithmetic and its traffic."""

from __future__ import annotations

from collections import Counter
from math import prod

from iree.compiler import ir as mlir
from iree.compiler.dialects import linalg

from mlsearch.ir.attention import attention_flops, is_attention
from mlsearch.ir.content_key import content_key
from mlsearch.ir.loop_nest import LoopNest, writes_buffers
from mlsearch.ir.module import Operation, walk
from mlsearch.ir.op_names import LOADS, REPACKING, STORES
from mlsearch.workload import ATTENTION, Loop, Operand, Workload, element_bytes

_CONTRACTION_NAMES: dict[tuple[bool, ...], str] = {
    # batch, m, n, k present
    (False, True, True, True): "matmul",
    (True, True, True, True): "batch_matmul",
    (False, True, False, True): "matvec",
    (False, False, True, True): "vecmat",
    (True, True, False, True): "batch_matvec",
    (True, False, True, True): "batch_vecmat",
    (False, False, False, True): "dot",
}
CONTRACTIONS = frozenset({*_CONTRACTION_NAMES.values(), "contraction"})
"""Kinds of root ops that multiply and add."""


def workload_of(nests: list[LoopNest], root: int, operations: list[Operation]) -> Workload:
    """Of the function with these operations. `nests`: of its compute ops; `root`: index of the root op among them."""
    nest = nests[root]
    op_kind, roles = _kind_and_roles(nest)
    sizes = [size or 0 for size in nest.sizes]
    loops = tuple(Loop(sizes[i], nest.kinds[i], roles[i]) for i in range(len(sizes)))
    operands = []
    for index, (value, dims) in enumerate(zip(nest.operands, nest.maps, strict=True)):
        if not isinstance(value.type, mlir.ShapedType):
            continue
        ordered = [dim for dim in dims if dim is not None]
        ordered += sorted(nest.touched[index] - set(ordered))
        element = str(mlir.ShapedType(value.type).element_type)
        operands.append(Operand(tuple(dict.fromkeys(ordered)), element, index >= nest.inputs))
    fused = tuple(_describe(other) for i, other in enumerate(nests) if i != root)
    return Workload(
        key=content_key(operations),
        op_kind=op_kind,
        loops=loops,
        operands=tuple(operands),
        fused=fused,
        flops=sum(_flops(other) for other in nests),
        bytes=_traffic(operations),
    )


def _kind_and_roles(nest: LoopNest) -> tuple[str, list[str]]:
    operation = nest.op
    if is_attention(operation):
        return ATTENTION, _numbered(nest.attention_roles, len(nest.sizes))
    if linalg.isa_contraction_op(operation):
        dims = linalg.infer_contraction_dimensions(operation)
        groups = {"b": list(dims.batch), "m": list(dims.m), "n": list(dims.n), "k": list(dims.k)}
        # A unit loop has nothing to cut, so 1xNxK counts as a vector times a matrix.
        present = tuple(any(nest.sizes[i] != 1 for i in groups[role]) for role in "bmnk")
        kind = _CONTRACTION_NAMES.get(present, "contraction")
        if any(len(group) > 1 for group in groups.values()):
            kind = "contraction"
        return kind, _numbered(groups, len(nest.sizes))
    if linalg.isa_convolution_op(operation):
        dims = linalg.infer_convolution_dimensions(operation)
        groups = {
            "b": list(dims.batch),
            "o": list(dims.output_image),
            "n": list(dims.output_channel),
            "f": list(dims.filter_loop),
            "k": list(dims.input_channel),
            "d": list(dims.depth),
        }
        kind = "conv" if groups["n"] else "depthwise_conv" if groups["d"] else "pooling"
        return kind, _numbered(groups, len(nest.sizes))
    groups = {
        "p": [i for i, kind in enumerate(nest.kinds) if kind == "parallel"],
        "r": [i for i, kind in enumerate(nest.kinds) if kind == "reduction"],
    }
    if writes_buffers(nest.op):
        kind = "copy"
    elif nest.op.name not in ("linalg.generic", "linalg.map", "linalg.reduce"):
        kind = nest.op.name.partition(".")[2].replace(".", "_")
    else:
        kind = "reduction" if groups["r"] else "elementwise"
    return kind, _numbered(groups, len(nest.sizes))


def _numbered(groups: dict[str, list[int]], count: int) -> list[str]:
    """The innermost loop of a group has the plain name, the one around it gets a 1, and so on."""
    roles = [f"x{i}" for i in range(count)]
    for role, members in groups.items():
        for distance, loop in enumerate(sorted(members, reverse=True)):
            roles[loop] = role if distance == 0 else f"{role}{distance}"
    return roles


def _scalar_ops(operation: Operation) -> list[str]:
    names = [op.name for region in operation.regions for block in region.blocks for op in _flat(block)]
    return [name for name in names if name.startswith(("arith.", "math.")) and name != "arith.constant"]


def _flat(block: mlir.Block) -> list[Operation]:
    return [nested for op in block.operations for nested in walk(op.operation)]


def _flops(nest: LoopNest) -> int:
    """Scalar arithmetic of all iterations; conversions between types are free."""
    if is_attention(nest.op):
        return attention_flops(nest.attention_roles, [size or 0 for size in nest.sizes])
    free = ("arith.ext", "arith.trunc", "arith.sitofp", "arith.uitofp", "arith.index_cast", "arith.bitcast")
    count = sum(1 for name in _scalar_ops(nest.op) if not name.startswith(free))
    return count * prod(size or 0 for size in nest.sizes)


def _describe(nest: LoopNest) -> str:
    if nest.op.name in ("linalg.fill", *REPACKING):
        return str(nest.op.name).removeprefix("linalg.")
    kind = "reduction" if nest.has_reduction else "elementwise"
    names = Counter(name.split(".")[-1] for name in _scalar_ops(nest.op))
    return f"{kind}({','.join(sorted(names))})" if names else kind


def _traffic(operations: list[Operation]) -> int:
    """Bytes of all tensors that the dispatch loads and stores, or of the buffers that its ops read and write."""
    moved: list[mlir.Value] = []
    for op in operations:
        if op.name in LOADS:
            moved.append(op.results[0])
        elif op.name in STORES:
            moved.append(op.operands[0])
        elif writes_buffers(op):
            moved += list(op.operands)
    total = 0
    for value in moved:
        if isinstance(value.type, mlir.ShapedType):
            shape = mlir.ShapedType(value.type)
            if shape.has_static_shape:
                elements = prod(shape.get_dim_size(axis) for axis in range(shape.rank))
                total += elements * element_bytes(str(shape.element_type))
    return total

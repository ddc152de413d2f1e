"""Attention as IREE's extension ops have it: two matmuls around a softmax in one op, whose maps are an attribute.

The roles follow IREE's own reading of the maps, so that a template means the same loops as the compiler:

    scores[b, m, s] = sum over k of query[b, m, k] * key[b, s, k]
    output[b, m, n] = sum over s of softmax over s of scores[b, m, s] * value[b, s, n]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from iree.compiler import ir as mlir

from mlsearch.ir.module import Operation

_ONLINE = "iree_linalg_ext.online_attention"
_OPS = ("iree_linalg_ext.attention", _ONLINE)
_UNMASKED_OPERANDS = 7
# Scale and shift by the maximum, exponential, sum: beside a matrix multiplication it hardly matters how they count.
_SOFTMAX_OPS = 5


def is_attention(op: Operation) -> bool:
    return op.name in _OPS


def attention_maps(op: Operation) -> list[mlir.AffineMap]:
    """One map per operand: query, key, value, scale, a mask if there is one, and the outputs."""
    return [mlir.AffineMapAttr(attribute).value for attribute in mlir.ArrayAttr(op.attributes["indexing_maps"])]


def attention_roles(
    query: frozenset[int], key: frozenset[int], value: frozenset[int], output: frozenset[int]
) -> dict[str, list[int]]:
    """The loops of each role, outermost first, from the loops that move through each operand.

    `b` batch; `m` queries; `n` columns of the value; `k` what a query and a key have in common (IREE's k1); `s`
    positions of keys and values, over which the softmax goes (IREE's k2).
    """
    batch = (query & value) | (key & output)
    common = (query & key) - batch
    positions = key - batch - common
    groups = {
        "b": batch,
        "m": query - batch - common,
        "n": value - batch - positions,
        "k": common,
        "s": positions,
    }
    return {role: sorted(loops) for role, loops in groups.items()}


def map_checks(handle: str, op: Operation) -> list[str]:
    """Steps of a matcher that compare the maps of an unmasked online attention whose body can't be compared; none for
    other ops, as IREE has a match op for this one only."""
    maps = list(mlir.ArrayAttr(op.attributes["indexing_maps"])) if is_attention(op) else []
    if op.name != _ONLINE or len(maps) != _UNMASKED_OPERANDS:
        return []
    names = ("query", "key", "value", "scale", "output", "max", "sum")
    elements = [_element_type(value.type) for value in op.operands]
    types = [f"{name}_type = {element}" for name, element in zip(names, elements, strict=True)]
    sizes = ", ".join(f"{handle}_{role}" for role in ("b", "m", "n", "k1", "k2"))
    return [
        f"{sizes} = transform.iree.match.online_attention {handle}, {', '.join(types)},"
        f" indexing_maps = [{', '.join(map(str, maps))}] : !transform.any_op -> !transform.param<i64>"
    ]


def _element_type(type_: mlir.Type) -> str:
    return str(mlir.ShapedType(type_).element_type) if isinstance(type_, mlir.ShapedType) else str(type_)


def attention_flops(roles: Mapping[str, Sequence[int]], sizes: Sequence[int]) -> int:
    """Scalar arithmetic of both matmuls and of the softmax between them."""
    scores = prod(sizes[loop] for role in ("b", "m", "s") for loop in roles[role])
    depth, columns = (prod(sizes[loop] for loop in roles[role]) for role in ("k", "n"))
    return scores * (2 * depth + 2 * columns + _SOFTMAX_OPS)

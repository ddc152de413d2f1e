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

_OPS = ("iree_linalg_ext.attention", "iree_linalg_ext.online_attention")
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


def attention_flops(roles: Mapping[str, Sequence[int]], sizes: Sequence[int]) -> int:
    """Scalar arithmetic of both matmuls and of the softmax between them."""
    scores = prod(sizes[loop] for role in ("b", "m", "s") for loop in roles[role])
    depth, columns = (prod(sizes[loop] for loop in roles[role]) for role in ("k", "n"))
    return scores * (2 * depth + 2 * columns + _SOFTMAX_OPS)

"""What a dispatch computes, as plain values: loops, operands, fused ops. Pure; read from IR by `task`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Literal

LoopKind = Literal["parallel", "reduction"]

ATTENTION = "attention"
"""The op kind of attention as one op: two matmuls around a softmax."""


@dataclass(frozen=True)
class Loop:
    """One loop of the root op."""

    size: int
    """Trip count."""
    kind: LoopKind
    role: str
    """What templates call this loop. Contractions: `b`, `m`, `n`, `k` (batch; left, right, reduced). Other ops:
    `p` innermost parallel, `r` innermost reduction. Attention: `b`, `m`, `n` as in its second matmul, `k` (reduced in
    the first), `s` (positions of keys and values). Outer loops of the same role get a number: `m1` is the loop around
    `m`, `p2` is around `p1`."""


@dataclass(frozen=True)
class Operand:
    """An input or output of the root op."""

    loops: tuple[int, ...]
    """Indices of the loops that move through it, in the order of its dims (outermost first); a loop appears
    once even if several dims depend on it."""
    element_type: str
    is_output: bool


@dataclass(frozen=True)
class Workload:
    """A dispatch, as far as search and surrogate need to know it. Equal computations have equal keys."""

    key: str
    """Content hash of the dispatch's IR, 16 hex digits, without names."""
    op_kind: str
    """`matmul`, `batch_matmul`, `matvec`, `vecmat`, `contraction`, `conv`, `attention`, `reduction`, `elementwise`,
    ..."""
    loops: tuple[Loop, ...]
    operands: tuple[Operand, ...]
    fused: tuple[str, ...]
    """The other compute ops of the dispatch, e.g. `fill`, `elementwise(addf,erf,mulf)`."""
    flops: int
    """Scalar arithmetic operations of one run of the dispatch."""
    bytes: int
    """Bytes of all inputs and outputs of the dispatch, each counted once."""

    @property
    def dims(self) -> dict[str, int]:
        """Trip counts by role."""
        return {loop.role: loop.size for loop in self.loops}

    @property
    def reduction_length(self) -> int:
        """How many terms there are in the sum behind an element of the output."""
        lengths = [loop.size for loop in self.loops if loop.kind == "reduction"]
        # The two sums of an attention follow one another, so their errors add up, where nested ones are one long sum.
        return sum(lengths) if self.op_kind == ATTENTION else prod(lengths)

    @property
    def label(self) -> str:
        """For people: `matmul_731x1023x137_f32`; equal labels do not mean equal workloads."""
        sizes = "x".join(str(loop.size) for loop in self.loops)
        types = "x".join(dict.fromkeys(operand.element_type for operand in self.operands))
        return f"{self.op_kind}_{sizes}_{types}"


def element_bytes(element_type: str) -> int:
    """Storage bytes of an MLIR scalar type: `f32` is 4, `bf16` is 2, `f8E4M3FN` and `i1` are 1."""
    return max(1, element_bits(element_type) // 8)


def element_bits(element_type: str) -> int:
    """Width of an MLIR scalar type; 64 for `index`, which names none."""
    digits = re.search(r"\d+", element_type)
    return int(digits[0]) if digits else 64


CPU_LEVELS = (
    "distribution",
    "cache_parallel",
    "cache_reduction",
    "vector_common_parallel",
    "vector_reduction",
    "vector_inner_parallel",
)
"""Tile levels of IREE's CPU lowering configs, outermost first."""
GPU_TILES = ("workgroup", "step", "warp", "thread")
"""Levels of a tiling for a GPU, outermost first, all in iterations: what a block computes, by how much it advances
along the reduction at a time, what of it a warp has, and what a thread has."""


@dataclass(frozen=True)
class Tiling:
    """How a candidate cuts the root op's loops: what the knobs come to once they are laid out on a workload."""

    levels: tuple[tuple[str, tuple[int, ...]], ...]
    """(level, one size per loop), outermost level first, e.g. `("distribution", (64, 128, 0))`. 0: not cut."""
    options: tuple[tuple[str, int | str], ...]
    """Choices that are not tile sizes, e.g. `("peel", "true")`."""

    @property
    def by_level(self) -> dict[str, tuple[int, ...]]:
        return dict(self.levels)

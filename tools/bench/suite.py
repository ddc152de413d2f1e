"""The rows of the suite: a payload each, and what it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Row:
    name: str
    sample: Path
    computation: str
    """What the other libraries are asked for: a key of `references.REFERENCES` and its like."""
    flops: int | None
    """Multiplications and additions; None where they are not what takes the time."""
    constant: int | None = None
    """Index of the operand that is a constant of the payload; None: all are arguments."""


def _row(sample: str, computation: str, flops: int | None = None) -> Row:
    return Row(sample, ROOT / "samples" / f"{sample}.mlir", computation, flops)


def _with_constant_weights(row: Row) -> Row:
    return Row(f"{row.name}_const", row.sample, row.computation, row.flops, constant=1)


_MATMULS = (
    _row("matmul_512", "matmul", 2 * 512**3),
    _row("matmul_1024", "matmul", 2 * 1024**3),
    _row("matmul_731x1023x137", "matmul", 2 * 731 * 1023 * 137),
    _row("vecmat_1x4096x4096", "matmul", 2 * 4096 * 4096),
    _row("matmul_128x3072x768", "matmul", 2 * 128 * 3072 * 768),
)
_ROWS = (
    *_MATMULS,
    *map(_with_constant_weights, _MATMULS),
    _row("matmul_bias_gelu_128x3072x768", "matmul_bias_gelu", 2 * 128 * 3072 * 768),
    _row("batch_matmul_12x128x64x128", "matmul", 2 * 12 * 128 * 64 * 128),
    _row("attention_12x128x64", "attention", 4 * 12 * 128 * 128 * 64),
    _row("attention_op_12x128x64", "attention", 4 * 12 * 128 * 128 * 64),
    _row("softmax_1024", "softmax"),
    _row("rmsnorm_512x2048", "rmsnorm"),
    _row("layernorm_512x768", "layernorm"),
    _row("conv2d_nhwc_56x56x64_3x3x64", "conv2d_nhwc", 2 * 56 * 56 * 64 * 3 * 3 * 64),
    _row("conv1d_ncw_8x256x512_512x256x5", "conv1d_ncw", 2 * 8 * 508 * 512 * 256 * 5),
    _row("matmul_i8_1024", "matmul_i8"),
    _row("matmul_bf16_1024", "matmul_bf16"),
)
SUITE: Mapping[str, Row] = MappingProxyType({row.name: row for row in _ROWS})
"""By name, in the order of the report. Integers and bfloat16 have no FLOPs here: the peak that is measured is that of
single precision."""

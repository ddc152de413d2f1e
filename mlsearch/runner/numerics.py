"""Is an output right? Poison, tolerance and comparison, in plain NumPy.

The tolerance answers two demands. Sums in another order must pass: each of K rounded additions errs by about
`epsilon` times the partial sum, and errors of random sign add up like sqrt(K), so the bound is
`margin * epsilon * sqrt(K)`. A schedule that skips one of K steps must fail: on standard normal inputs a sum
is about sqrt(K) large and a step about 1, several times that in the worst of many elements, so the worst
error is beyond 1/sqrt(K). In single and double precision the two are orders of magnitude apart, which pays
for a generous margin and for a floor under short reductions, where another approximation of exp or tanh
differs more than a sum does. In half precision they meet: a bf16 output can hide one skipped step of some
hundred. That is the price of not knowing whether a program accumulates in the type that it returns.

Errors are relative to `|want| + mean|want|` of the output: an element near zero is the difference of large
terms and is held to the size of its neighbours, while one huge element does not excuse the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, sqrt
from typing import Any

import numpy as np

from mlsearch.candidate import Numerics
from mlsearch.runner.elements import element

Array = np.ndarray[Any, Any]

INTEGER_POISON = 0x5A
SECOND_POISON = 0xA5
"""For the check of outputs that may rightly hold the first one. A finite number in every float type."""

_FLOOR_LENGTH = 256
"""Reduction length below which the tolerance of wide types stops shrinking: 3e-5 for f32."""
_WIDE_MARGIN = 16.0
_NARROW_MARGIN = 2.0
_NARROW_CAP = 0.25
"""Beyond this a half-precision sum is noise anyway, and any error would pass."""


def tolerance(element_type: str, reduction_length: int) -> float:
    """Bound on the relative error of an output; 0, that is exact, for integers."""
    kind = element(element_type)
    if not kind.is_float:
        return 0.0
    length = max(1, reduction_length)
    if kind.dtype.itemsize >= 4:
        return _WIDE_MARGIN * kind.epsilon * sqrt(max(length, _FLOOR_LENGTH))
    # Two roundings to the output type are always allowed.
    return max(2 * kind.epsilon, min(_NARROW_CAP, _NARROW_MARGIN * kind.epsilon * sqrt(length)))


def poison_byte(element_type: str) -> int:
    """Fill an output with this byte before a run: NaN for floats, an unlikely number for integers."""
    kind = element(element_type)
    return kind.nan_byte if kind.is_float else INTEGER_POISON


def needs_second_poison(want: Array, byte: int) -> bool:
    """One poisoned run does not decide: the right output holds the poison, bit by bit. A NaN that was computed
    does not, its bits are others."""
    return bool(holds_poison(want, byte).any())


def holds_poison(got: Array, byte: int) -> Array:
    """Per element: all of its bytes are `byte`."""
    width = got.dtype.itemsize
    bits = np.ascontiguousarray(got).reshape(got.shape).view(f"u{width}")
    return np.asarray(bits == bits.dtype.type(int.from_bytes(bytes([byte]) * width, "little")))


def still_poisoned(runs: Sequence[tuple[Array, int]], want: Array) -> int:
    """Number of elements that no run wrote, given what each run left behind and the poison it started from.

    With a single run an element that `want` itself has as poison counts as written.
    """
    unwritten = np.ones(want.shape, dtype=np.bool_)
    for got, byte in runs:
        unwritten &= holds_poison(got, byte)
    if len({byte for _, byte in runs}) == 1:
        unwritten &= ~holds_poison(want, runs[0][1])
    return int(np.count_nonzero(unwritten))


def compare(got: Array, want: Array, element_type: str, reduction_length: int, unwritten: int = 0) -> Numerics:
    """One output against the expected one (equal shapes). NaN and infinities must be in the same places."""
    bound = tolerance(element_type, reduction_length)
    if want.dtype == np.bool_:
        # NumPy reads any byte but 0 as true; a poisoned or broken one has to show.
        got, want = got.view(np.uint8), want.view(np.uint8)
    if element(element_type).is_float:
        max_abs, max_rel = _float_errors(got, want, element(element_type).epsilon)
        agrees = max_rel <= bound
    else:
        max_abs, max_rel = _integer_errors(got, want)
        agrees = bool(np.array_equal(got, want))
    return Numerics(agrees and unwritten == 0, max_abs, max_rel, bound, unwritten, int(want.size))


def worst(parts: Sequence[Numerics]) -> Numerics:
    """All outputs as one: counts add up, error and bound are those of the one furthest out of bounds."""
    if not parts:
        return Numerics(True, 0.0, 0.0, 0.0, 0, 0)
    furthest = max(parts, key=_excess)
    return Numerics(
        agrees=all(part.agrees for part in parts),
        max_abs_error=max(part.max_abs_error for part in parts),
        max_rel_error=furthest.max_rel_error,
        tolerance=furthest.tolerance,
        unwritten=sum(part.unwritten for part in parts),
        elements=sum(part.elements for part in parts),
    )


def _excess(part: Numerics) -> float:
    if part.tolerance > 0:
        return part.max_rel_error / part.tolerance
    return inf if part.max_rel_error > 0 else 0.0


def _float_errors(got: Array, want: Array, epsilon: float) -> tuple[float, float]:
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not finite.all():
        special_got, special_want = got[~finite], want[~finite]
        if not ((special_got == special_want) | (np.isnan(special_got) & np.isnan(special_want))).all():
            return inf, inf
        got, want = got[finite], want[finite]
    if not np.isfinite(got).all():
        return inf, inf
    if want.size == 0:
        return 0.0, 0.0
    size, error = np.abs(want), np.abs(got - want)
    # Inputs are about 1, so an output that is smaller than epsilon throughout is rounding noise.
    scale = size + max(_usual_size(size), epsilon)
    return float(error.max()), float((error / scale).max())


_FAR_BEYOND = 64.0


def _usual_size(size: Array) -> float:
    """Mean of the sizes, huge ones cut down: the -1e9 of an attention mask excuses nothing in the scores beside it.

    Cut far beyond the lower quartile of what is not zero, which up to three quarters of huge elements leave alone.
    """
    present = size[size > 0]
    if present.size == 0:
        return 0.0
    limit = _FAR_BEYOND * float(np.quantile(present, 0.25))
    return float(np.minimum(size, limit).mean())


def _integer_errors(got: Array, want: Array) -> tuple[float, float]:
    if np.array_equal(got, want):
        return 0.0, 0.0
    error = np.abs(got.astype(np.float64) - want.astype(np.float64))
    scale = max(1.0, float(np.abs(want.astype(np.float64)).mean()))
    # 64-bit integers that differ may be equal as doubles.
    max_abs = max(1.0, float(error.max()))
    return max_abs, max_abs / scale

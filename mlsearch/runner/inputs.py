"""Seeded random inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from mlsearch.candidate import TensorSpec
from mlsearch.runner.elements import element

FloatRange = Literal["normal", "positive"]
"""`normal`: standard normal. `positive`: uniform in [0.1, 1), for programs that take roots or logarithms."""


def make_inputs(
    specs: Sequence[TensorSpec], seed: int, floats: FloatRange = "normal", *, indices: bool = True
) -> list[np.ndarray[Any, Any]]:
    """One array per spec; array `i` depends on `seed`, `i` and its spec only. `indices`: wide integers may be indices.

    Raises UnknownElementError.
    """
    return [_make(spec, np.random.default_rng((seed, index)), floats, indices) for index, spec in enumerate(specs)]


def _make(spec: TensorSpec, rng: np.random.Generator, floats: FloatRange, indices: bool) -> np.ndarray[Any, Any]:
    kind = element(spec.element_type)
    if kind.is_float:
        values = _float_values(spec.shape, rng, floats, wide=kind.dtype == np.float64)
        return np.ascontiguousarray(values.astype(kind.dtype)).reshape(spec.shape)
    low, high = _integer_range(kind.dtype, indices)
    return rng.integers(low, high, size=spec.shape, endpoint=True, dtype=kind.dtype)


def _float_values(
    shape: tuple[int, ...], rng: np.random.Generator, floats: FloatRange, wide: bool
) -> np.ndarray[Any, Any]:
    if floats == "positive":
        return np.asarray(rng.uniform(0.1, 1.0, size=shape))
    # Weights of a whole model are large: draw in single precision where that is exact enough.
    return np.asarray(rng.standard_normal(size=shape, dtype=np.float64 if wide else np.float32))


def _integer_range(dtype: np.dtype[Any], indices: bool) -> tuple[int, int]:
    """Inclusive. A small range, so that sums of quantized numbers do not overflow, with negative ones in it, so that
    a maximum that starts from 0 is found. Wide integers may be indices into the smallest of tensors."""
    if dtype == np.bool_ or (indices and dtype.itemsize >= 4):
        return 0, 1
    return (-8, 7) if dtype.kind == "i" else (0, 15)

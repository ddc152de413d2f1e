"""What the samples compute, in NumPy, as well as NumPy does it: storage made once, results written in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

# SciPy comes with LightGBM; NumPy itself has no erf.
from scipy.special import erf

Array = np.ndarray[Any, Any]
Computation = Callable[[], Array]


def matmul(a: Array, b: Array) -> Computation:
    """Also batched, and for a single row."""
    out = np.empty((*a.shape[:-1], b.shape[-1]), np.float32)
    return lambda: np.matmul(a, b, out=out)


def matmul_bias_gelu(x: Array, w: Array, bias: Array) -> Computation:
    out, cdf = np.empty((2, x.shape[0], w.shape[1]), np.float32)

    def compute() -> Array:
        np.matmul(x, w, out=out)
        np.add(out, bias, out=out)
        np.multiply(out, np.float32(0.707106769), out=cdf)
        erf(cdf, out=cdf)
        np.add(cdf, np.float32(1), out=cdf)
        np.multiply(cdf, np.float32(0.5), out=cdf)
        return np.multiply(out, cdf, out=out)

    return compute


def softmax(x: Array) -> Computation:
    out = np.empty_like(x)

    def compute() -> Array:
        np.subtract(x, x.max(axis=-1, keepdims=True), out=out)
        np.exp(out, out=out)
        return np.divide(out, out.sum(axis=-1, keepdims=True), out=out)

    return compute


def rmsnorm(x: Array, scale: Array) -> Computation:
    out = np.empty_like(x)

    def compute() -> Array:
        squares = np.einsum("ij,ij->i", x, x)
        inverse = 1 / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        np.multiply(x, inverse[:, None], out=out)
        return np.multiply(out, scale, out=out)

    return compute


def layernorm(x: Array, scale: Array, bias: Array) -> Computation:
    out = np.empty_like(x)

    def compute() -> Array:
        np.subtract(x, x.mean(axis=1, keepdims=True), out=out)
        squares = np.einsum("ij,ij->i", out, out)
        inverse = 1 / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        np.multiply(out, inverse[:, None], out=out)
        np.multiply(out, scale, out=out)
        return np.add(out, bias, out=out)

    return compute


def attention(q: Array, k: Array, v: Array) -> Computation:
    keys = k.transpose(0, 2, 1)
    scores = np.empty((*q.shape[:-1], k.shape[1]), np.float32)
    out = np.empty_like(q)

    def compute() -> Array:
        np.matmul(q, keys, out=scores)
        np.multiply(scores, np.float32(0.125), out=scores)
        np.subtract(scores, scores.max(axis=-1, keepdims=True), out=scores)
        np.exp(scores, out=scores)
        np.divide(scores, scores.sum(axis=-1, keepdims=True), out=scores)
        return np.matmul(scores, v, out=out)

    return compute


REFERENCES: Mapping[str, Callable[..., Computation]] = MappingProxyType(
    {
        "matmul_731x1023x137": matmul,
        "matmul_512": matmul,
        "matmul_1024": matmul,
        "matmul_bias_gelu_128x3072x768": matmul_bias_gelu,
        "batch_matmul_12x128x64x128": matmul,
        "vecmat_1x4096x4096": matmul,
        "softmax_1024": softmax,
        "rmsnorm_512x2048": rmsnorm,
        "layernorm_512x768": layernorm,
        "attention_12x128x64": attention,
    }
)
"""By sample. The others are what NumPy has no fast way for: convolutions, 8-bit integers, bfloat16."""

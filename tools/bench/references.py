"""What the rows compute, in NumPy, as well as NumPy does it: storage made once, results written in place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import threadpoolctl

# SciPy comes with LightGBM; NumPy itself has no erf.
from scipy.special import erf

from bench.programs import LibraryProgram, operands

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


def conv2d_nhwc(x: Array, w: Array) -> Computation:
    """A matmul per tap, over the pixels that it sees: BLAS reads them where they lie."""
    taps_y, taps_x, _, filters = w.shape
    _, height, width, _ = x.shape
    high, wide = height - taps_y + 1, width - taps_x + 1
    out, part = np.empty((2, x.shape[0], high, wide, filters), np.float32)

    def compute() -> Array:
        for index in range(taps_y * taps_x):
            i, j = divmod(index, taps_x)
            np.matmul(x[:, i : i + high, j : j + wide], w[i, j], out=part if index else out)
            if index:
                np.add(out, part, out=out)
        return out

    return compute


def conv1d_ncw(x: Array, w: Array) -> Computation:
    """As `conv2d_nhwc`; the weights of a tap are gathered in each call, since BLAS can't read them where they lie."""
    filters, channels, width = w.shape
    length = x.shape[2] - width + 1
    taps = np.empty((width, filters, channels), np.float32)
    out, part = np.empty((2, x.shape[0], filters, length), np.float32)

    def compute() -> Array:
        np.copyto(taps, w.transpose(2, 0, 1))
        for j in range(width):
            np.matmul(taps[j], x[:, :, j : j + length], out=part if j else out)
            if j:
                np.add(out, part, out=out)
        return out

    return compute


def matmul_i8(a: Array, b: Array) -> Computation:
    """In single precision, which holds sums of 1024 products of 8-bit numbers exactly: they are below 2^24."""
    assert a.shape[1] <= 1024
    left, right = np.empty(a.shape, np.float32), np.empty(b.shape, np.float32)
    sums = np.empty((a.shape[0], b.shape[1]), np.float32)
    out = np.empty(sums.shape, np.int32)

    def compute() -> Array:
        np.copyto(left, a)
        np.copyto(right, b)
        np.matmul(left, right, out=sums)
        np.copyto(out, sums, casting="unsafe")
        return out

    return compute


def matmul_bf16(a: Array, b: Array) -> Computation:
    """In single precision; a bfloat16 is the upper half of one."""
    left, right = np.empty(a.shape, np.uint32), np.empty(b.shape, np.uint32)
    out = np.empty((a.shape[0], b.shape[1]), np.float32)

    def compute() -> Array:
        np.left_shift(a.view(np.uint16), 16, out=left, dtype=np.uint32)
        np.left_shift(b.view(np.uint16), 16, out=right, dtype=np.uint32)
        return np.matmul(left.view(np.float32), right.view(np.float32), out=out)

    return compute


REFERENCES: Mapping[str, Callable[..., Computation]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            *(matmul, matmul_bias_gelu, softmax, rmsnorm, layernorm, attention),
            *(conv2d_nhwc, conv1d_ncw, matmul_i8, matmul_bf16),
        )
    }
)
"""By computation. The last four do in NumPy what it has no function for, by way of single-precision matmuls."""


class NumpyProgram(LibraryProgram):
    def __init__(self, request: Mapping[str, Any], threads: int) -> None:
        super().__init__(REFERENCES[request["computation"]](*operands(request)), {}, threads)
        # The one that NumPy brought; SciPy has an OpenBLAS of its own.
        blas = next(pool for pool in threadpoolctl.threadpool_info() if "numpy" in pool["filepath"])
        self.facts = {name: str(blas.get(name)) for name in ("internal_api", "version", "architecture", "num_threads")}

"""What the rows compute, in PyTorch: eager, and with weights prepacked for oneDNN. Optional: `pip install torch`.

Eager float matmuls are MKL's, which does not run its AVX-512 kernels on CPUs of other makers; convolutions and
prepacked weights are oneDNN's, which does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from bench.programs import CannotRun, LibraryProgram, operands

Tensor = torch.Tensor
Computation = Callable[[], Tensor]


def matmul(a: Tensor, b: Tensor) -> Computation:
    """Also batched, and for a single row."""
    out = torch.empty((*a.shape[:-1], b.shape[-1]))
    return lambda: torch.matmul(a, b, out=out)


def matmul_bias_gelu(x: Tensor, w: Tensor, bias: Tensor) -> Computation:
    return lambda: functional.gelu(torch.addmm(bias, x, w))


def softmax(x: Tensor) -> Computation:
    return lambda: torch.softmax(x, -1)


def rmsnorm(x: Tensor, scale: Tensor) -> Computation:
    return lambda: functional.rms_norm(x, scale.shape, scale, 1e-5)


def layernorm(x: Tensor, scale: Tensor, bias: Tensor) -> Computation:
    return lambda: functional.layer_norm(x, scale.shape, scale, bias, 1e-5)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Computation:
    # With a batch of one: the fused kernel takes four dims only.
    q, k, v = q[None], k[None], v[None]
    return lambda: functional.scaled_dot_product_attention(q, k, v, scale=0.125)[0]


def conv2d_nhwc(x: Tensor, w: Tensor) -> Computation:
    """On the same memory: PyTorch calls it channels last, and oneDNN computes in it."""
    image = x.permute(0, 3, 1, 2)
    weights = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return lambda: functional.conv2d(image, weights).permute(0, 2, 3, 1)


def conv1d_ncw(x: Tensor, w: Tensor) -> Computation:
    return lambda: functional.conv1d(x, w)


def matmul_i8(a: Tensor, b: Tensor) -> Computation:
    return lambda: torch._int_mm(a, b)


COMPUTATIONS: Mapping[str, Callable[..., Computation]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            *(matmul, matmul_bias_gelu, softmax, rmsnorm, layernorm, attention),
            *(conv2d_nhwc, conv1d_ncw, matmul_i8),
        )
    }
)
"""Not matmul_bf16: on CPUs its result is rounded to bfloat16."""


def prepacked_matmul(a: Tensor, b: Tensor) -> Computation:
    """The weights in oneDNN's layout, made once; what `torch.compile` with `freezing` makes of a linear layer."""
    packed = torch.ops.mkldnn._reorder_linear_weight(b.t().contiguous(), a.shape[0])
    linear = torch.ops.mkldnn._linear_pointwise
    return lambda: linear(a, packed, None, "none", [], "")


class TorchProgram(LibraryProgram):
    def __init__(self, request: Mapping[str, Any], threads: int, *, prepacked: bool) -> None:
        torch.set_num_threads(threads)
        known = {"matmul": prepacked_matmul} if prepacked else COMPUTATIONS
        if request["computation"] not in known:
            raise CannotRun(f"no {request['computation']} in PyTorch")
        with torch.inference_mode():
            tensors = [torch.from_numpy(np.ascontiguousarray(array)) for array in operands(request)]
            try:
                super().__init__(known[request["computation"]](*tensors), _facts(), threads)
            except (RuntimeError, AttributeError, NotImplementedError) as error:
                raise CannotRun(str(error).splitlines()[0][:200]) from error

    def run(self, times: int) -> float:
        with torch.inference_mode():
            return super().run(times)


def _facts() -> Mapping[str, str]:
    libraries = [
        line.strip(" -") for line in torch.__config__.show().splitlines() if "Math Kernel" in line or "DNN v" in line
    ]
    return {
        "version": torch.__version__,
        "libraries": "; ".join(libraries),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "num_threads": str(torch.get_num_threads()),
    }

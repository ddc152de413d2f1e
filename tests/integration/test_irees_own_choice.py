"""IREE's own choice for every op is a point of the CUDA space, so that a search can walk around it.

The proof is the code: an assignment of the space compiles to the PTX of the untuned build, byte for byte. For common
ops it is one of a template in a file; for all it is the default of the template that takes the choice over.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from conftest import CudaSpaces
from cuda_op_texts import (
    ARCHITECTURES,
    OPS,
    SOFTMAX,
    batch_matmul,
    contraction,
    convolution,
    elementwise,
    in_turn,
    summed,
)

from mlsearch.builder import LocalBuilder
from mlsearch.candidate import BuildRequest, Built, Candidate
from mlsearch.cuda.executable import read_kernels
from mlsearch.ir.library import library_text
from mlsearch.space.derived import OWN_CHOICE
from mlsearch.space.space import Space
from mlsearch.target import resolve

TILE_AND_FUSE = "cuda/emitted_tile_and_fuse"
F16 = {"mma": "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>"}
F16_F16 = {"mma": "#iree_gpu.mma_layout<NV_MMA_SYNC_F16_16x8x16_F16>"}
BF16 = {"mma": "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>"}
TWO_AXES = {"promote": [], "counted": ["m", "n"]}

TRANSPOSE = """
func.func @f(%x: tensor<64x128xf32>) -> tensor<128x64xf32> {
  %empty = tensor.empty() : tensor<128x64xf32>
  %y = linalg.transpose ins(%x : tensor<64x128xf32>) outs(%empty : tensor<128x64xf32>) permutation = [1, 0]
  return %y : tensor<128x64xf32>
}
"""
ONTO_A_MATRIX = """
func.func @f(%a: tensor<128x128xf16>, %b: tensor<128x128xf16>, %c: tensor<128x128xf32>) -> tensor<128x128xf32> {
  %d = linalg.matmul ins(%a, %b : tensor<128x128xf16>, tensor<128x128xf16>)
                     outs(%c : tensor<128x128xf32>) -> tensor<128x128xf32>
  return %d : tensor<128x128xf32>
}
"""
TRANSPOSE_3D = """
func.func @f(%x: tensor<32x64x96xf32>) -> tensor<96x64x32xf32> {
  %empty = tensor.empty() : tensor<96x64x32xf32>
  %y = linalg.transpose ins(%x : tensor<32x64x96xf32>) outs(%empty : tensor<96x64x32xf32>) permutation = [2, 1, 0]
  return %y : tensor<96x64x32xf32>
}
"""
VECMAT = """
func.func @f(%a: tensor<1023xf32>, %b: tensor<1023x511xf32>) -> tensor<511xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<511xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<511xf32>) -> tensor<511xf32>
  %c = linalg.vecmat ins(%a, %b : tensor<1023xf32>, tensor<1023x511xf32>)
                     outs(%init : tensor<511xf32>) -> tensor<511xf32>
  return %c : tensor<511xf32>
}
"""
DEPTHWISE = """
func.func @f(%image: tensor<1x18x18x32xf16>, %filter: tensor<3x3x32xf16>) -> tensor<1x16x16x32xf16> {
  %zero = arith.constant 0.0 : f16
  %empty = tensor.empty() : tensor<1x16x16x32xf16>
  %init = linalg.fill ins(%zero : f16) outs(%empty : tensor<1x16x16x32xf16>) -> tensor<1x16x16x32xf16>
  %c = linalg.depthwise_conv_2d_nhwc_hwc ins(%image, %filter : tensor<1x18x18x32xf16>, tensor<3x3x32xf16>)
                                         outs(%init : tensor<1x16x16x32xf16>) -> tensor<1x16x16x32xf16>
  return %c : tensor<1x16x16x32xf16>
}
"""
MORE_OPS = {
    "matmul f32 of few rows": contraction("f32", 10, 64, 32),
    "softmax of odd rows": SOFTMAX.replace("64x256", "64x100"),
    "transpose": TRANSPOSE,
    "matmul f16 onto a matrix": ONTO_A_MATRIX,
    "conv2d f16 of 14x14": convolution("f16", 14),
}
CASES = [
    # Each on one of them, in turn; test_cuda_ops.py compiles each on the other.
    *in_turn(OPS, ARCHITECTURES[::-1]),
    *((op, "sm_90") for op in MORE_OPS),
]

Choice = tuple[str, dict[str, object]]
"""A template and its knobs; those left out have their defaults, or the only value that they can have."""


def simt(thread_n: int, threads_m: int, threads_n: int, step_k: int) -> Choice:
    sizes = {"thread_m": 1, "thread_n": thread_n, "threads_m": threads_m, "threads_n": threads_n, "step_k": step_k}
    return "cuda/contraction_simt", {**sizes, **TWO_AXES}


def rows(vector: int, subgroups: int) -> Choice:
    return "cuda/reduction_vector_distribute", {"vector": vector, "subgroups": subgroups, "rounds": 1}


def matrices(wg_0: int, wg_1: int, sg_0: int, sg_1: int, red_2: int) -> Choice:
    return TILE_AND_FUSE, {"wg_0": wg_0, "wg_1": wg_1, "sg_0": sg_0, "sg_1": sg_1, "red_2": red_2}


def attention(mma: dict[str, object]) -> Choice:
    sizes = {"subgroup_m": 1, "warps_m": 4, "subgroup_n": 4, "warps_n": 1, "step_s": 4}
    return "cuda/attention_vector_distribute", sizes | mma


BATCH = {"subgroup_m": 2, "subgroup_n": 2, "warps_m": 2, "warps_n": 2, "step_k": 4}
IMPLICIT_GEMM = {"wg_0": 8, "wg_1": 16, "wg_2": 32, "sg_0": 2, "sg_1": 1, "sg_2": 2, "red_5": 2}
PADDED = {"wg_0": 2, "wg_1": 16, "wg_2": 32, "sg_0": 1, "sg_1": 1, "sg_2": 1, "red_5": 2}
TAPS = {"thread_o": 1, "thread_n": 1, "threads_o": 1, "threads_n": 32, "threads_o1": 1, "step_k": 4, "step_f": 3}
OWN: dict[str, list[Choice]] = {
    "matmul f16": [matrices(64, 64, 2, 4, 8)],
    "matmul f16 onto a matrix": [matrices(64, 64, 2, 4, 8)],
    "matmul bf16": [matrices(64, 64, 2, 4, 8)],
    "matmul f32": [simt(16, 32, 8, 32)],
    "matmul f32 of few rows": [simt(16, 32, 8, 32)],
    "odd matmul f16": [matrices(64, 64, 2, 4, 1)],
    "batch matmul f16": [("cuda/contraction_mma", BATCH | F16)],
    "batch matmul f16 in f16": [("cuda/contraction_mma", BATCH | F16_F16)],
    "matmul bias GELU f16": [matrices(64, 32, 2, 2, 8)],
    "conv2d f16": [(f"{TILE_AND_FUSE}_2", IMPLICIT_GEMM)],
    "conv2d f16 of 14x14": [(f"{TILE_AND_FUSE}_2", PADDED)],
    "conv2d f32": [("cuda/convolution_simt", TAPS)],
    "softmax": [rows(4, 2)],
    "softmax of odd rows": [("cuda/reduction_tile_and_fuse", {"thread": 1, "threads": 32, "step": 4})],
    "RMSNorm": [rows(4, 4)],
    "attention": [simt(4, 8, 8, 32), rows(2, 1), simt(4, 8, 8, 32)],
    "attention op f16": [attention(F16)],
    "attention op bf16": [attention(BF16)],
    "attention op f32": [("cuda/attention_partial_rows", {})],
    "transpose": [
        (
            "cuda/elementwise_tile_and_fuse",
            {"vector": 4, "threads": 8, "rows": 32, "rounds": 1, "promote": [1], "counted": ["p", "p1"]},
        )
    ],
}


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBuilder]:
    with LocalBuilder(tmp_path_factory.mktemp("built"), 2, None) as builder:
        yield builder


def test_no_op_is_forgotten() -> None:
    assert sorted(OWN) == sorted([*OPS, *MORE_OPS])


@pytest.mark.parametrize(("op", "architecture"), CASES)
def test_irees_own_choice_is_in_the_space(
    op: str, architecture: str, builder: LocalBuilder, cuda_spaces: CudaSpaces
) -> None:
    flags = resolve(f"cuda:{architecture}", 1).compile_flags
    requests = []
    for (task, space), choice in zip(cuda_spaces({**OPS, **MORE_OPS}[op], architecture), OWN[op], strict=True):
        assert task.module is not None
        library = library_text([space.entry(task.entry_name, candidate_of(space, choice))])
        requests.append(BuildRequest(f"untuned-{task.id}", task.module, None, (), flags, 60.0))
        requests.append(BuildRequest(f"own-{task.id}", task.module, library, (task.entry_name,), flags, 60.0))
    ptx = {}
    for request, outcome in builder.build(requests):
        assert isinstance(outcome, Built), (request.library, outcome)
        [kernel] = read_kernels(outcome.artifact.read_bytes())
        ptx[request.key] = kernel.ptx
    for key in ptx:
        assert ptx[key] == ptx[key.replace("untuned", "own")]


ALONE = ("matmul f16 of 7x13x5", "conv2d f16", "sum of a prime", "sum of rows of 37", "elementwise 1x1", "softmax")
"""Another template has the tiles, or there is nothing to vary."""
ANY_OPS = {
    "matmul f32 of 16x4096x4096": contraction("f32", 16, 4096, 4096),
    "matmul f32 of 8x128x20": contraction("f32", 8, 128, 20),
    "matmul f32 of 5x5x64": contraction("f32", 5, 5, 64),
    "matmul f16 of 7x13x5": contraction("f16", 7, 13, 5),
    "batch matmul f16 of 3x33x17x65": batch_matmul("f16", 3, 33, 17, 65),
    "vecmat f32 of odd sizes": VECMAT,
    "sum of a prime": summed("1009", "reduction"),
    "sum of rows of 37": summed("64x37", "parallel", "reduction"),
    "sum of 0 and 2": summed("8x16x64", "reduction", "parallel", "reduction"),
    "conv2d f16": convolution("f16"),
    "conv2d f16 of 3 channels": convolution("f16", channels=3),
    "conv2d f32 of 11 channels": convolution("f32", 14, channels=11),
    "depthwise f16": DEPTHWISE,
    "transpose 210": TRANSPOSE_3D,
    "elementwise 1x1": elementwise("1x1"),
    "softmax": SOFTMAX,
}
NEAR = 3


@pytest.mark.parametrize(("op", "architecture"), in_turn(ANY_OPS, ARCHITECTURES))
def test_whatever_iree_chooses_is_a_candidate_and_those_near_it_compile(
    op: str, architecture: str, builder: LocalBuilder, cuda_spaces: CudaSpaces
) -> None:
    [(task, space)] = cuda_spaces(ANY_OPS[op], architecture)
    assert task.module is not None
    part = space.parts[OWN_CHOICE]
    own = part.template.candidate({knob.name: knob.default for knob in part.knobs})
    assert part.priors()[0] == own
    near = space.neighbours(own, np.random.default_rng(0), NEAR)
    assert len(near) == (0 if op in ALONE else NEAR)
    flags = resolve(f"cuda:{architecture}", 1).compile_flags
    requests = [BuildRequest("untuned", task.module, None, (), flags, 60.0)]
    for index, candidate in enumerate([own, *near]):
        library = library_text([space.entry(task.entry_name, candidate)])
        requests.append(BuildRequest(f"{index}", task.module, library, (task.entry_name,), flags, 60.0))
    ptx = {}
    for request, outcome in builder.build(requests):
        assert isinstance(outcome, Built), (request.library, outcome)
        [kernel] = read_kernels(outcome.artifact.read_bytes())
        ptx[request.key] = kernel.ptx
    assert ptx["0"] == ptx["untuned"]
    assert len(set(ptx.values())) > 1 or op in ALONE


def candidate_of(space: Space, choice: Choice) -> Candidate:
    template, chosen = choice
    part = space.parts[template]
    knobs = {knob.name: knob.default if knob.default in knob.values else knob.values[0] for knob in part.knobs}
    candidate = part.template.candidate(knobs | part.template.normalized(chosen))
    outside = [knob.name for knob in part.knobs if candidate.knobs[knob.name] not in knob.values]
    assert not outside, (outside, candidate.knobs)
    assert not space.violations(candidate)
    return candidate

"""IREE's own choice for each kind of op is a point of the CUDA space, so that a search can walk around it.

The proof is the code: an assignment of the space compiles to the PTX of the untuned build, byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conftest import CudaSpaces
from cuda_op_texts import OPS, SOFTMAX, contraction, convolution

from mlsearch.builder import LocalBuilder
from mlsearch.candidate import BuildRequest, Built, Candidate
from mlsearch.cuda.executable import read_kernels
from mlsearch.ir.library import library_text
from mlsearch.space.space import Space
from mlsearch.target import resolve

TILE_AND_FUSE = "cuda/emitted_tile_and_fuse"
F16 = {"mma": "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>"}
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
MORE_OPS = {
    "matmul f32 of few rows": contraction("f32", 10, 64, 32),
    "softmax of odd rows": SOFTMAX.replace("64x256", "64x100"),
    "transpose": TRANSPOSE,
    "matmul f16 onto a matrix": ONTO_A_MATRIX,
    "conv2d f16 of 14x14": convolution("f16", 14),
}
CASES = [
    *((op, architecture) for op in OPS for architecture in ("sm_80", "sm_90")),
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


def candidate_of(space: Space, choice: Choice) -> Candidate:
    template, chosen = choice
    part = space.parts[template]
    knobs = {knob.name: knob.default if knob.default in knob.values else knob.values[0] for knob in part.knobs}
    candidate = part.template.candidate(knobs | part.template.normalized(chosen))
    outside = [knob.name for knob in part.knobs if candidate.knobs[knob.name] not in knob.values]
    assert not outside, (outside, candidate.knobs)
    assert not space.violations(candidate)
    return candidate

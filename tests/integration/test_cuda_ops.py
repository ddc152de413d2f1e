"""Each kind of op, for two generations of chips: cut, given a space, built, proven applied, and read. Without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from mlsearch.builder import LocalBuilder
from mlsearch.candidate import BuildRequest, Built, Candidate
from mlsearch.cuda.executable import read_kernels
from mlsearch.cuda.ptx import count
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import Target, resolve
from mlsearch.task import Task, cut


def contraction(inputs: str, m: int, n: int, k: int) -> str:
    return f"""
func.func @f(%a: tensor<{m}x{k}x{inputs}>, %b: tensor<{k}x{n}x{inputs}>) -> tensor<{m}x{n}xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<{m}x{n}xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  %c = linalg.matmul ins(%a, %b : tensor<{m}x{k}x{inputs}>, tensor<{k}x{n}x{inputs}>)
                     outs(%init : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %c : tensor<{m}x{n}xf32>
}}
"""


BATCH_MATMUL = """
func.func @f(%a: tensor<4x64x64xf16>, %b: tensor<4x64x64xf16>) -> tensor<4x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %c = linalg.batch_matmul ins(%a, %b : tensor<4x64x64xf16>, tensor<4x64x64xf16>)
                           outs(%init : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  return %c : tensor<4x64x64xf32>
}
"""

MATMUL_BIAS_GELU = """
#row = affine_map<(i, j) -> (j)>
#all = affine_map<(i, j) -> (i, j)>
func.func @f(%a: tensor<64x128xf16>, %b: tensor<128x64xf16>, %bias: tensor<64xf32>) -> tensor<64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %one = arith.constant 1.0 : f32
  %scale = arith.constant 0.70710677 : f32
  %empty = tensor.empty() : tensor<64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
  %c = linalg.matmul ins(%a, %b : tensor<64x128xf16>, tensor<128x64xf16>)
                     outs(%init : tensor<64x64xf32>) -> tensor<64x64xf32>
  %gelu = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%c, %bias : tensor<64x64xf32>, tensor<64xf32>) outs(%empty : tensor<64x64xf32>) {
  ^bb0(%x: f32, %add: f32, %out: f32):
    %sum = arith.addf %x, %add : f32
    %scaled = arith.mulf %sum, %scale : f32
    %erf = math.erf %scaled : f32
    %shifted = arith.addf %erf, %one : f32
    %product = arith.mulf %sum, %shifted : f32
    %result = arith.mulf %product, %half : f32
    linalg.yield %result : f32
  } -> tensor<64x64xf32>
  return %gelu : tensor<64x64xf32>
}
"""


def convolution(inputs: str) -> str:
    return f"""
func.func @f(%image: tensor<1x18x18x32x{inputs}>, %filter: tensor<3x3x32x32x{inputs}>) -> tensor<1x16x16x32xf32> {{
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<1x16x16x32xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1x16x16x32xf32>) -> tensor<1x16x16x32xf32>
  %c = linalg.conv_2d_nhwc_hwcf ins(%image, %filter : tensor<1x18x18x32x{inputs}>, tensor<3x3x32x32x{inputs}>)
                                outs(%init : tensor<1x16x16x32xf32>) -> tensor<1x16x16x32xf32>
  return %c : tensor<1x16x16x32xf32>
}}
"""


SOFTMAX = """
func.func @f(%x: tensor<64x256xf32>) -> tensor<64x256xf32> {
  %empty = tensor.empty() : tensor<64x256xf32>
  %y = linalg.softmax dimension(1) ins(%x : tensor<64x256xf32>) outs(%empty : tensor<64x256xf32>) -> tensor<64x256xf32>
  return %y : tensor<64x256xf32>
}
"""

RMSNORM = """
#row = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @f(%x: tensor<64x512xf32>) -> tensor<64x512xf32> {
  %zero = arith.constant 0.0 : f32
  %length = arith.constant 512.0 : f32
  %epsilon = arith.constant 1.0e-5 : f32
  %rows = tensor.empty() : tensor<64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%rows : tensor<64xf32>) -> tensor<64xf32>
  %squares = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x512xf32>) outs(%init : tensor<64xf32>) {
  ^bb0(%in: f32, %sum: f32):
    %square = arith.mulf %in, %in : f32
    %next = arith.addf %square, %sum : f32
    linalg.yield %next : f32
  } -> tensor<64xf32>
  %empty = tensor.empty() : tensor<64x512xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %squares : tensor<64x512xf32>, tensor<64xf32>) outs(%empty : tensor<64x512xf32>) {
  ^bb0(%in: f32, %sum: f32, %out: f32):
    %mean = arith.divf %sum, %length : f32
    %safe = arith.addf %mean, %epsilon : f32
    %scale = math.rsqrt %safe : f32
    %result = arith.mulf %in, %scale : f32
    linalg.yield %result : f32
  } -> tensor<64x512xf32>
  return %y : tensor<64x512xf32>
}
"""

# Scores, softmax and weighted sum as ops of their own: three tasks.
ATTENTION = """
#scores = affine_map<(b, m, n, k) -> (b, m, n)>
func.func @f(%q: tensor<4x64x64xf32>, %k: tensor<4x64x64xf32>, %v: tensor<4x64x64xf32>) -> tensor<4x64x64xf32> {
  %zero = arith.constant 0.0 : f32
  %empty = tensor.empty() : tensor<4x64x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %scores = linalg.generic {
      indexing_maps = [affine_map<(b, m, n, k) -> (b, m, k)>, affine_map<(b, m, n, k) -> (b, n, k)>, #scores],
      iterator_types = ["parallel", "parallel", "parallel", "reduction"]}
      ins(%q, %k : tensor<4x64x64xf32>, tensor<4x64x64xf32>) outs(%init : tensor<4x64x64xf32>) {
  ^bb0(%x: f32, %y: f32, %sum: f32):
    %product = arith.mulf %x, %y : f32
    %next = arith.addf %sum, %product : f32
    linalg.yield %next : f32
  } -> tensor<4x64x64xf32>
  %weights = linalg.softmax dimension(2)
      ins(%scores : tensor<4x64x64xf32>) outs(%empty : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  %out = linalg.batch_matmul ins(%weights, %v : tensor<4x64x64xf32>, tensor<4x64x64xf32>)
                             outs(%init : tensor<4x64x64xf32>) -> tensor<4x64x64xf32>
  return %out : tensor<4x64x64xf32>
}
"""


def attention_op(inputs: str) -> str:
    tensor = f"tensor<4x128x64x{inputs}>"
    return f"""
#q = affine_map<(b, m, n, k, s) -> (b, m, k)>
#k = affine_map<(b, m, n, k, s) -> (b, s, k)>
#v = affine_map<(b, m, n, k, s) -> (b, s, n)>
#scale = affine_map<(b, m, n, k, s) -> ()>
#o = affine_map<(b, m, n, k, s) -> (b, m, n)>
func.func @f(%q: {tensor}, %k: {tensor}, %v: {tensor}) -> {tensor} {{
  %scale = arith.constant 0.125 : {inputs}
  %empty = tensor.empty() : {tensor}
  %r = iree_linalg_ext.attention <{{indexing_maps = [#q, #k, #v, #scale, #o]}}>
      ins(%q, %k, %v, %scale : {tensor}, {tensor}, {tensor}, {inputs})
      outs(%empty : {tensor}) {{
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  }} -> {tensor}
  return %r : {tensor}
}}
"""


OPS = {
    "matmul f16": contraction("f16", 128, 128, 128),
    "matmul bf16": contraction("bf16", 128, 128, 128),
    "matmul f32": contraction("f32", 128, 128, 64),
    "odd matmul f16": contraction("f16", 91, 127, 33),
    "batch matmul f16": BATCH_MATMUL,
    "matmul bias GELU f16": MATMUL_BIAS_GELU,
    "conv2d f16": convolution("f16"),
    "conv2d f32": convolution("f32"),
    "softmax": SOFTMAX,
    "RMSNorm": RMSNORM,
    "attention": ATTENTION,
    "attention op f16": attention_op("f16"),
    "attention op bf16": attention_op("bf16"),
}
EMITTED = ("matmul f16", "matmul bf16", "odd matmul f16", "matmul bias GELU f16", "conv2d f16")
"""IREE emits a space; for a contraction with a batch loop it fails to, and the templates step in."""
PIPELINED = ("matmul f16", "matmul bf16", "batch matmul f16", "matmul bias GELU f16")
"""All loops are multiples of a matrix instruction's."""
WITH_MATRIX_INSTRUCTIONS = ("cuda/emitted_", "cuda/contraction_mma", "cuda/attention_")
CANDIDATES = 3


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBuilder]:
    with LocalBuilder(tmp_path_factory.mktemp("built"), 2, None) as builder:
        yield builder


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
@pytest.mark.parametrize("op", list(OPS))
def test_candidates_of_every_op_compile_and_are_applied(
    op: str, architecture: str, builder: LocalBuilder, tmp_path: Path
) -> None:
    target = resolve(f"cuda:{architecture}", 1)
    module = tmp_path / "payload.mlir"
    module.write_text(OPS[op])
    tasks = cut(load_payload(module, target, tmp_path), target, tmp_path)
    tunable = [task for task in tasks if task.view is not None]
    assert tunable, [task.not_tunable for task in tasks]
    for task in tunable:
        space = space_of(task, templates_for(target, None), target)
        assert isinstance(space, Space), space
        assert any(template.startswith("cuda/emitted_") for template in space.parts) == (op in EMITTED)
        assert ("cuda/contraction_mma" in space.parts) == (op == "batch matmul f16")
        assert ("cuda/contraction_mma_pipelined" in space.parts) == (op in PIPELINED)
        candidates = chosen(space)
        for request, outcome in builder.build(requests(task, space, target, candidates)):
            assert isinstance(outcome, Built), (request.library, outcome)
            [kernel] = read_kernels(outcome.artifact.read_bytes())
            counts = count(kernel.ptx)
            assert counts.target == architecture
            template = candidates[request.key.partition("-")[2]].template
            assert (counts.mma > 0) == template.startswith(WITH_MATRIX_INSTRUCTIONS)


def chosen(space: Space) -> dict[str, Candidate]:
    """Of each template its first candidate, and some drawn at random."""
    drawn = space.sample(np.random.default_rng(0), CANDIDATES)
    return {each.key: each for each in (*(part.row(0) for part in space.parts.values()), *drawn)}


def requests(task: Task, space: Space, target: Target, candidates: dict[str, Candidate]) -> list[BuildRequest]:
    assert task.module is not None
    return [
        BuildRequest(
            key=f"{task.id}-{key}",
            module=task.module,
            library=library_text([space.entry(task.entry_name, candidate)]),
            entries=(task.entry_name,),
            flags=target.compile_flags,
            timeout_s=60.0,
        )
        for key, candidate in candidates.items()
    ]


@pytest.mark.parametrize("stages", [2, 4])
def test_the_strategy_compiles_to_the_code_that_it_promises(stages: int, builder: LocalBuilder, tmp_path: Path) -> None:
    target = resolve("cuda:sm_90", 1)
    module = tmp_path / "payload.mlir"
    module.write_text(contraction("f16", 256, 256, 512))
    [task] = cut(load_payload(module, target, tmp_path), target, tmp_path)
    space = space_of(task, templates_for(target, None), target)
    assert isinstance(space, Space)
    wanted = {"subgroup_m": 4, "subgroup_n": 8, "warps_m": 2, "warps_n": 2, "step_k": 2, "stages": stages}
    part = space.parts["cuda/contraction_mma_pipelined"]
    candidate = next(each for each in part if each.knobs | wanted == each.knobs)
    [(_, outcome)] = builder.build(requests(task, space, target, {f"strategy-{stages}": candidate}))
    assert isinstance(outcome, Built), outcome
    [kernel] = read_kernels(outcome.artifact.read_bytes())
    counts = count(kernel.ptx)
    assert kernel.threads == 4 * 32
    # A warp's 4 x 8 tiles of 16 x 8, two instructions deep.
    assert counts.mma == 4 * 8 * 2
    # 16 bytes of each thread at a time, all stages ahead of the loop and one more in it; nothing is loaded otherwise.
    copies = (128 + 128) * 32 * 2 // (16 * kernel.threads)
    assert counts.async_copies == (stages + 1) * copies
    assert counts.global_loads == 0
    assert f"cp.async.wait_group {stages - 1}" in re.sub(r"\s+", " ", kernel.ptx)
    assert kernel.shared_bytes == stages * (128 + 128) * 32 * 2


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_irees_own_choice_for_attention_is_in_the_space(
    architecture: str, builder: LocalBuilder, tmp_path: Path
) -> None:
    target = resolve(f"cuda:{architecture}", 1)
    module = tmp_path / "payload.mlir"
    module.write_text(attention_op("f16"))
    [task] = cut(load_payload(module, target, tmp_path), target, tmp_path)
    space = space_of(task, templates_for(target, None), target)
    assert isinstance(space, Space) and task.module is not None
    wanted = {"subgroup_m": 1, "warps_m": 4, "subgroup_n": 4, "warps_n": 1, "step_s": 4}
    own = next(each for each in space if each.knobs | wanted == each.knobs)
    untuned = BuildRequest("untuned", task.module, None, (), target.compile_flags, 60.0)
    ptx = []
    for request in (untuned, *requests(task, space, target, {f"own-{architecture}": own})):
        [(_, outcome)] = builder.build([request])
        assert isinstance(outcome, Built), outcome
        [kernel] = read_kernels(outcome.artifact.read_bytes())
        ptx.append(kernel.ptx)
    assert count(ptx[0]).mma > 0
    assert ptx[0] == ptx[1]

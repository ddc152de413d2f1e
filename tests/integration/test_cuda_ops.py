"""Each kind of op, for two generations of chips: cut, given a space, built, proven applied, and read. Without a GPU."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import CudaSpaces
from cuda_op_texts import ARCHITECTURES, OPS, contraction, in_turn

from mlsearch.builder import LocalBuilder
from mlsearch.candidate import BuildRequest, Built, Candidate
from mlsearch.cuda.executable import read_kernels
from mlsearch.cuda.ptx import count
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.space.derived import OWN_CHOICE
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import Target, resolve
from mlsearch.task import Task, cut

EMITTED = ("matmul f16", "matmul bf16", "odd matmul f16", "matmul bias GELU f16", "conv2d f16")
"""IREE emits a space; for a contraction with a batch loop it fails to, and the templates step in."""
PIPELINED = ("matmul f16", "matmul bf16", "batch matmul f16", "batch matmul f16 in f16", "matmul bias GELU f16")
"""All loops are multiples of a matrix instruction's."""
WITH_MATRIX_INSTRUCTIONS = ("cuda/emitted_", "cuda/contraction_mma", "cuda/attention_vector_distribute")
CANDIDATES = 3


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalBuilder]:
    with LocalBuilder(tmp_path_factory.mktemp("built"), 2, None) as builder:
        yield builder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("op", OPS)
def test_every_op_has_the_templates_that_suit_it(op: str, architecture: str, cuda_spaces: CudaSpaces) -> None:
    for _, space in cuda_spaces(OPS[op], architecture):
        assert any(template.startswith("cuda/emitted_") for template in space.parts) == (op in EMITTED)
        assert ("cuda/contraction_mma" in space.parts) == op.startswith("batch matmul f16")
        assert ("cuda/contraction_mma_pipelined" in space.parts) == (op in PIPELINED)


# Each on one of them, in turn; test_irees_own_choice.py compiles each on the other.
@pytest.mark.parametrize(("op", "architecture"), in_turn(OPS, ARCHITECTURES))
def test_candidates_of_every_op_compile_and_are_applied(
    op: str, architecture: str, builder: LocalBuilder, cuda_spaces: CudaSpaces
) -> None:
    target = resolve(f"cuda:{architecture}", 1)
    for task, space in cuda_spaces(OPS[op], architecture):
        candidates = chosen(space)
        for request, outcome in builder.build(requests(task, space, target, candidates)):
            assert isinstance(outcome, Built), (request.library, outcome)
            [kernel] = read_kernels(outcome.artifact.read_bytes())
            counts = count(kernel.ptx)
            assert counts.target == architecture
            template = candidates[request.key.partition("-")[2]].template
            if template != OWN_CHOICE:
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

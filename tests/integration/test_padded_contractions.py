"""What `cpu/contraction_padded` makes of contractions with ragged columns computes the same numbers, in any type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from op_kind_texts import MULTIPLY_ADD, generic, named

from mlsearch.candidate import BuildRequest, Built, Measured, RunRequest, reason
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import resolve
from mlsearch.task import Task, cut
from mlsearch.tune.trials import build_untuned
from mlsearch.workbench import Workbench, open_workbench

TARGET = resolve("llvm-cpu", 1)
PADDED = "cpu/contraction_padded"
DRAWN = 6


def matmul(m: int, n: int, k: int, inputs: str, output: str) -> str:
    start = "0.0" if output[0] == "f" else "0"
    operands = [f"tensor<{m}x{k}x{inputs}>", f"tensor<{k}x{n}x{inputs}>"]
    return named("matmul", operands, f"tensor<{m}x{n}x{output}>", start=start)


TRANSPOSED = generic(
    ["(m, n, k) -> (m, k)", "(m, n, k) -> (n, k)", "(m, n, k) -> (m, n)"],
    "ppr",
    ["tensor<131x137xf32>", "tensor<203x137xf32>"],
    "tensor<131x203xf32>",
    MULTIPLY_ADD,
)

WITH_GELU = """func.func @main(%x: tensor<128x96xf32>, %w: tensor<96x301xf32>, %bias: tensor<301xf32>)
    -> tensor<128x301xf32> {
  %zero = arith.constant 0.0 : f32
  %root = arith.constant 0.707106769 : f32
  %e = tensor.empty() : tensor<128x301xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<128x301xf32>) -> tensor<128x301xf32>
  %m = linalg.matmul ins(%x, %w : tensor<128x96xf32>, tensor<96x301xf32>) outs(%f : tensor<128x301xf32>)
      -> tensor<128x301xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%m, %bias : tensor<128x301xf32>, tensor<301xf32>) outs(%e : tensor<128x301xf32>) {
  ^bb0(%v: f32, %b: f32, %out: f32):
    %s = arith.addf %v, %b : f32
    %scaled = arith.mulf %s, %root : f32
    %erf = math.erf %scaled : f32
    %y = arith.mulf %s, %erf : f32
    linalg.yield %y : f32
  } -> tensor<128x301xf32>
  return %r : tensor<128x301xf32>
}
"""

RAGGED = {
    "ragged": matmul(131, 203, 137, "f32", "f32"),
    "bytes": matmul(67, 101, 96, "i8", "i32"),
    "halves": matmul(67, 101, 96, "f16", "f32"),
    "transposed": TRANSPOSED,
    "gelu": WITH_GELU,
    "row": matmul(1, 1003, 256, "f32", "f32"),
}


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with open_workbench(TARGET, lambda event: None, jobs=2) as bench:
        yield bench


def laid_out(text: str, folder: Path) -> tuple[Task, Space]:
    path = folder / "payload.mlir"
    path.write_text(text)
    [task] = cut(load_payload(path, TARGET, folder / "work"), TARGET, folder / "work")
    space = space_of(task, templates_for(TARGET, None), TARGET)
    assert isinstance(space, Space), space
    return task, space


@pytest.mark.parametrize("kind", RAGGED)
def test_padded_tiles_compute_the_same(kind: str, bench: Workbench, tmp_path: Path) -> None:
    own = replace(bench, scope=f"{kind}-")
    task, space = laid_out(RAGGED[kind], tmp_path)
    assert task.module is not None and task.signature is not None
    part = space.parts[PADDED]
    rows = np.random.default_rng(0).choice(len(part), min(DRAWN, len(part)), replace=False)
    candidates = [prior for prior in space.priors() if prior.template == PADDED] + [part.row(int(row)) for row in rows]
    untuned = build_untuned(own, task)
    requests = {
        f"{task.id}-{candidate.key}": BuildRequest(
            f"{task.id}-{candidate.key}",
            task.module,
            library_text([space.entry("e", candidate)]),
            ("e",),
            TARGET.compile_flags,
            timeout_s=120.0,
        )
        for candidate in candidates
    }
    knobs = {f"{task.id}-{candidate.key}": candidate.knobs for candidate in candidates}
    for request, built in list(own.build(list(requests.values()))):
        assert isinstance(built, Built), (knobs[request.key], built)
        plan = own.plan(min_samples=1, max_samples=1, warmup=0, timeout_s=60.0)
        outcome = own.run(RunRequest(built.artifact, untuned.artifact, task.signature, plan))
        assert isinstance(outcome, Measured), (knobs[request.key], reason(outcome))
        assert outcome.numerics.agrees


def test_columns_that_tiles_divide_are_left_to_other_templates(tmp_path: Path) -> None:
    _, space = laid_out(matmul(64, 512, 64, "f32", "f32"), tmp_path)
    assert PADDED not in space.parts or not len(space.parts[PADDED])

"""Attention as one op on a CPU: the suggestions build, are applied, compute the same, and touch nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from mlsearch.candidate import BuildRequest, Built, Candidate, Measured, RunRequest, TimingPlan
from mlsearch.ir.library import library_text, readable
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.spec import application
from mlsearch.target import resolve
from mlsearch.task import Task, cut
from mlsearch.tune.trials import build_request, build_untuned, measure_baseline
from mlsearch.workbench import Workbench, open_workbench

TARGET = resolve("llvm-cpu", 1)
SAMPLES = Path(__file__).parents[2] / "samples"
DRAWN = 3


def attention(
    name: str = "main",
    heads: int = 2,
    queries: int = 32,
    keys: int = 64,
    *,
    types: str = "f32",
    mask: str = "",
    then: str = "",
) -> str:
    """Attention of depth and width 32; `mask` is its element type, `then` turns %x into %y behind it."""
    q, kv = f"tensor<{heads}x{queries}x32x{types}>", f"tensor<{heads}x{keys}x32x{types}>"
    masks = f"tensor<{heads}x{queries}x{keys}x{mask}>" if mask else ""
    maps = ["b, m, k1", "b, k2, k1", "b, k2, n", "", *(["b, m, k2"] if mask else []), "b, m, n"]
    shown = ", ".join(f"affine_map<(b, m, n, k1, k2) -> ({each})>" for each in maps)
    epilogue = f"""
  %o = linalg.generic {{
      indexing_maps = [affine_map<(b, m, n) -> (b, m, n)>, affine_map<(b, m, n) -> (b, m, n)>],
      iterator_types = ["parallel", "parallel", "parallel"]}} ins(%r : {q}) outs(%e : {q}) {{
  ^bb0(%x: {types}, %unused: {types}):
    {then}
    linalg.yield %y : {types}
  }} -> {q}"""
    return f"""
func.func @{name}(%q: {q}, %k: {kv}, %v: {kv}{f", %mask: {masks}" if mask else ""}) -> {q} {{
  %scale = arith.constant 0.25 : {types}
  %e = tensor.empty() : {q}
  %r = iree_linalg_ext.attention <{{indexing_maps = [{shown}]}}>
      ins(%q, %k, %v, %scale{", %mask" if mask else ""} : {q}, {kv}, {kv}, {types}{f", {masks}" if mask else ""})
      outs(%e : {q}) {{
  ^bb0(%score: f32):
    iree_linalg_ext.yield %score : f32
  }} -> {q}
  {epilogue if then else ""}
  return {"%o" if then else "%r"} : {q}
}}
"""


@pytest.fixture(scope="module")
def bench() -> Iterator[Workbench]:
    with open_workbench(TARGET, lambda event: None, jobs=2) as bench:
        yield bench


def tasks_of(path: Path, folder: Path) -> dict[str, tuple[Task, Space]]:
    """By the name of the function that dispatches it."""
    found = {}
    for task in cut(load_payload(path, TARGET, folder), TARGET, folder):
        space = space_of(task, templates_for(TARGET, None), TARGET)
        assert isinstance(space, Space), space
        found[task.functions[0].split("_dispatch")[0]] = task, space
    return found


def measured(
    bench: Workbench, task: Task, space: Space, untuned: Path, candidates: Sequence[Candidate], plan: TimingPlan
) -> Iterator[Measured]:
    assert task.signature is not None
    requests = [build_request(bench, task, space, candidate, 120.0) for candidate in candidates]
    assert all(isinstance(request, BuildRequest) for request in requests), requests
    for request, built in list(bench.build([each for each in requests if isinstance(each, BuildRequest)])):
        assert isinstance(built, Built), (request.library, built)
        outcome = bench.run(RunRequest(built.artifact, untuned, task.signature, plan))
        assert isinstance(outcome, Measured), (request.library, outcome)
        yield outcome


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(attention(), id="f32"),
        pytest.param(attention(types="f16"), id="f16"),
        pytest.param(attention(types="bf16"), id="bf16"),
        pytest.param(attention(mask="f32"), id="additive mask"),
        pytest.param(attention(mask="i1"), id="boolean mask"),
        pytest.param(attention(then="%y = math.absf %x : f32"), id="something fused behind it"),
        pytest.param(attention(heads=3, queries=77, keys=77), id="odd length"),
        pytest.param(attention(queries=1), id="one query"),
    ],
)
def test_candidates_compute_what_the_untuned_build_does(text: str, bench: Workbench, tmp_path: Path) -> None:
    (tmp_path / "payload.mlir").write_text(text)
    [(task, space)] = tasks_of(tmp_path / "payload.mlir", tmp_path).values()
    assert task.workload is not None
    assert task.workload.op_kind == "attention"
    assert list(space.parts) == ["cpu/attention_hybrid"]
    untuned = build_untuned(bench, task).artifact
    candidates = [*space.priors(), *space.sample(np.random.default_rng(0), DRAWN)]
    once = bench.plan(timeout_s=60.0, warmup=0, min_samples=1, max_samples=1)
    outcomes = list(measured(bench, task, space, untuned, list(dict.fromkeys(candidates)), once))
    assert len(outcomes) >= DRAWN
    for outcome in outcomes:
        assert outcome.numerics.agrees and outcome.numerics.unwritten == 0, outcome.numerics


def test_the_first_suggestion_on_the_sample_is_several_times_faster(bench: Workbench, tmp_path: Path) -> None:
    [(task, space)] = tasks_of(SAMPLES / "attention_op_12x128x64.mlir", tmp_path).values()
    baseline = measure_baseline(bench, task)
    plan = bench.plan(timeout_s=60.0, max_seconds=0.2)
    [outcome] = measured(bench, task, space, baseline.artifact, space.priors()[:1], plan)
    # 26x on an idle AVX-512 core; other work beside it takes some of that.
    assert baseline.time_us / outcome.time_us > 2


LOOK_ALIKES = {
    "plain": attention("plain"),
    "longer": attention("longer", keys=128),
    "half": attention("half", types="f16"),
    "masked": attention("masked", mask="f32"),
    "fused": attention("fused", then="%y = math.absf %x : f32"),
}


def test_an_entry_fires_on_its_own_dispatch_only(tmp_path: Path) -> None:
    path = tmp_path / "payload.mlir"
    path.write_text("".join(LOOK_ALIKES.values()))
    tasks = tasks_of(path, tmp_path)
    assert sorted(tasks) == sorted(LOOK_ALIKES)
    for task, space in tasks.values():
        library = readable(library_text([space.entry(task.entry_name, space.priors()[0])]))
        found = application(library, "x", path, None, TARGET, tmp_path)
        assert found.functions == {task.entry_name: task.functions}

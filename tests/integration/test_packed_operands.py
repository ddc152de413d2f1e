"""Packing as dispatches of their own: they are tuned, and what is tuned computes the same."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import mlsearch
from payload_texts import matmul

from mlsearch.candidate import BuildRequest, Built, Measured, RunRequest, reason
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.spec import spec_text
from mlsearch.target import resolve
from mlsearch.task import Task, cut
from mlsearch.tune.trials import measure_baseline
from mlsearch.variant import variant_named
from mlsearch.workbench import open_workbench

PLAIN = resolve("llvm-cpu", 1)
LEFT = "affine_map<(m, n, k) -> (m, k)>"
OUTPUT = "affine_map<(m, n, k) -> (m, n)>"
RIGHT = {"plain": "affine_map<(m, n, k) -> (k, n)>", "transposed": "affine_map<(m, n, k) -> (n, k)>"}


def bytes_matmul(form: str) -> str:
    """Rows, columns and depth are multiples of nothing, and the sums do not start from zero."""
    right = "tensor<50x100xi8>" if form == "plain" else "tensor<100x50xi8>"
    return f"""
func.func @main(%a: tensor<37x50xi8>, %b: {right}) -> tensor<37x100xi32> {{
  %five = arith.constant 5 : i32
  %e = tensor.empty() : tensor<37x100xi32>
  %f = linalg.fill ins(%five : i32) outs(%e : tensor<37x100xi32>) -> tensor<37x100xi32>
  %r = linalg.matmul indexing_maps = [{LEFT}, {RIGHT[form]}, {OUTPUT}]
      ins(%a, %b : tensor<37x50xi8>, {right}) outs(%f : tensor<37x100xi32>) -> tensor<37x100xi32>
  return %r : tensor<37x100xi32>
}}
"""


def tasks_of(folder: Path, text: str, name: str) -> list[Task]:
    (folder / "mm.mlir").write_text(text)
    variant = variant_named(PLAIN, None, name)
    target = variant.on(PLAIN)
    return cut(load_payload(folder / "mm.mlir", target, folder / "work", None, variant), target, folder / "work")


@pytest.mark.parametrize("form", RIGHT)
def test_bytes_as_unsigned_times_signed_give_the_same_numbers(tmp_path: Path, form: str) -> None:
    (tmp_path / "mm.mlir").write_text(bytes_matmul(form))
    variant = variant_named(PLAIN, None, "unsigned_left")
    (tmp_path / "s.mlir").write_text(spec_text([], Path("mm.mlir"), PLAIN, "now", "not timed", variant))
    done = mlsearch(tmp_path, "verify", "mm.mlir", "--spec", "s.mlir", "--json", "v.json")
    numerics = json.loads((tmp_path / "v.json").read_text())["whole"]["numerics"]
    assert numerics["agrees"], done.stderr
    assert numerics["max_abs_error"] == 0
    flow = load_payload(tmp_path / "mm.mlir", variant.on(PLAIN), tmp_path / "work", None, variant).flow_module
    assert "arith.xori" in flow.read_text()


def test_generated_inner_tiles_are_not_taken_for_the_fill_beside_them(tmp_path: Path) -> None:
    inner = [task for task in tasks_of(tmp_path, bytes_matmul("plain"), "unsigned_left") if task.view is None]
    assert [task.not_tunable for task in inner] == ["no loops can be read from iree_codegen.inner_tiled"]


@pytest.mark.parametrize(
    ("text", "name", "kinds"),
    [
        (matmul(37, 100, 50), "data_tiling_early", ["pack", "pack", "contraction", "unpack"]),
        (bytes_matmul("plain"), "unsigned_left", ["elementwise", "pack", "reduction", "elementwise"]),
    ],
    ids=["f32", "bytes"],
)
def test_dispatches_that_pack_and_unpack_are_tuned_and_compute_the_same(
    tmp_path: Path, text: str, name: str, kinds: list[str]
) -> None:
    target = variant_named(PLAIN, None, name).on(PLAIN)
    tasks = [task for task in tasks_of(tmp_path, text, name) if task.view is not None]
    assert [task.view.workload.op_kind for task in tasks if task.view] == kinds
    rng = np.random.default_rng(5)
    with open_workbench(target, lambda event: None, jobs=2) as bench:
        for task in tasks:
            assert task.view is not None and task.module is not None and task.signature is not None
            if not task.view.packed_tile:
                continue
            space = space_of(task, templates_for(target, None), target)
            assert isinstance(space, Space), space
            baseline = measure_baseline(bench, task)
            for candidate in dict.fromkeys([*space.priors()[:2], *space.sample(rng, 3)]):
                library = library_text([space.entry("e", candidate)])
                built = bench.build_one(
                    BuildRequest(candidate.key, task.module, library, ("e",), target.compile_flags, 60.0)
                )
                assert isinstance(built, Built), (task.functions, candidate, reason(built))
                plan = bench.plan(min_samples=1, max_samples=1, warmup=0, timeout_s=60.0)
                ran = bench.run(RunRequest(built.artifact, baseline.artifact, task.signature, plan))
                assert isinstance(ran, Measured), (task.functions, candidate, reason(ran))
                assert ran.numerics.agrees

"""Variants of the payload with the real compiler and the real runner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import mlsearch, told
from payload_texts import DYNAMIC, matmul

from mlsearch.spec import spec_text
from mlsearch.target import resolve
from mlsearch.variant import variant_of, variants_for

TARGET = resolve("llvm-cpu", 1)
# One chain of additions per row; added up in vectors it takes about half the time on any SIMD machine.
ROW_SUMS = """
func.func @main(%a: tensor<64x16384xf32>) -> tensor<64xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<64xf32>) -> tensor<64xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%a : tensor<64x16384xf32>) outs(%f : tensor<64xf32>) {
  ^bb0(%x: f32, %sum: f32):
    %s = arith.addf %x, %sum : f32
    linalg.yield %s : f32
  } -> tensor<64xf32>
  return %r : tensor<64xf32>
}
"""


def test_a_variant_that_wins_is_in_the_spec_and_the_other_commands_follow_it(tmp_path: Path) -> None:
    (tmp_path / "sums.mlir").write_text(ROW_SUMS)
    # The one trial is the untuned build: a schedule found for the payload as it is can't win instead.
    arguments = ["tune", "sums.mlir", "--variants", "reassociate", "--trials", "1", "-o", "s.mlir", "--json", "-"]
    done = mlsearch(tmp_path, *arguments)
    summary = told(done)
    assert summary["variant"] == "reassociate"
    assert summary["speedup"] > 1.1
    # Each variant counts its tasks from t0.
    about_t0 = [line for line in done.stderr.splitlines() if "t0 " in line]
    assert any(line.startswith("t0 (1 of 1) ") for line in about_t0)
    assert any(line.startswith("variant reassociate: t0 (1 of 1) ") for line in about_t0)
    assert next(line for line in about_t0 if "done: " in line).startswith("variant reassociate: t0 done: ")
    assert variant_of((tmp_path / "s.mlir").read_text(), "s").flags == ("--iree-llvmcpu-reassociate-fp-reductions",)
    plain = {each["name"]: each for each in summary["variants"]}["default"]
    assert plain["speedup"] < summary["speedup"]
    verified = told(mlsearch(tmp_path, "verify", "sums.mlir", "--spec", "s.mlir", "--json", "-"))
    assert verified["ok"]
    assert verified["whole"]["speedup"] > 1.1
    assert mlsearch(tmp_path, "compile", "sums.mlir", "--spec", "s.mlir", "-o", "s.vmfb").returncode == 0


@pytest.mark.parametrize("name", ["pack_right-n32", "pack_right-n64"])
def test_a_rewritten_payload_computes_the_same(tmp_path: Path, name: str) -> None:
    (tmp_path / "mm.mlir").write_text(matmul(37, 100, 50))
    [variant] = [each for each in variants_for(TARGET, None, "pack_right") if each.name == name]
    (tmp_path / "s.mlir").write_text(spec_text([], Path("mm.mlir"), TARGET, "now", "not timed", variant))
    done = mlsearch(tmp_path, "verify", "mm.mlir", "--spec", "s.mlir", "--json", "v.json")
    verified = json.loads((tmp_path / "v.json").read_text())
    assert verified["whole"]["numerics"]["agrees"], done.stderr
    assert mlsearch(tmp_path, "compile", "mm.mlir", "--spec", "s.mlir", "-o", "packed.vmfb").returncode == 0
    assert b"pack" in (tmp_path / "packed.vmfb").read_bytes()


FAILING = """// A factor that does not divide.
module attributes {transform.with_named_sequence, mlsearch.domains = {parts = [4, 5]}} {

  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %sum = transform.structured.match ops{["linalg.generic"]} in %payload : (!transform.any_op) -> !transform.any_op

    %start, %fill, %partial, %combining = transform.structured.split_reduction %sum
        <{split_factor = 4 : i64, insert_split_dimension = 0 : i64}> {mlsearch.knobs = ["parts"]}
        : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.yield
  }
}
"""


def test_a_script_that_fails_is_told_with_its_file_and_line_and_a_spec_of_it_too(tmp_path: Path) -> None:
    (tmp_path / "sums.mlir").write_text(ROW_SUMS)
    folder = tmp_path / "mine" / "preprocessing" / "cpu"
    folder.mkdir(parents=True)
    (folder / "cut.mlir").write_text(FAILING)
    told = "variant 'cut-parts5' fails on sums.mlir: {}:{}:"
    done = mlsearch(tmp_path, "inspect", "sums.mlir", "--templates", "mine", "--variant", "cut-parts5")
    assert told.format("mine/preprocessing/cpu/cut.mlir", 7) in done.stderr.splitlines()[-1]
    assert mlsearch(tmp_path, "inspect", "sums.mlir", "--templates", "mine", "--variant", "cut-parts4").returncode == 0
    [variant] = [each for each in variants_for(TARGET, tmp_path / "mine", "cut") if each.name == "cut-parts5"]
    spec = spec_text([], Path("sums.mlir"), TARGET, "now", "not timed", variant)
    (tmp_path / "s.mlir").write_text(spec)
    line = 1 + spec[: spec.index("split_reduction")].count("\n")
    done = mlsearch(tmp_path, "verify", "sums.mlir", "--spec", "s.mlir")
    assert told.format("s.mlir", line) in done.stderr.splitlines()[-1]


TOTAL = ROW_SUMS.replace("64x16384", "65536").replace("tensor<64xf32>", "tensor<f32>")
TOTAL = (
    TOTAL.replace("(i, j) -> (i, j)", "(i) -> (i)").replace("(i, j) -> (i)", "(i) -> ()").replace('"parallel", ', "")
)


@pytest.mark.parametrize("parts", [4, 16])
@pytest.mark.parametrize(("payload", "kind"), [(matmul(6, 20, 65536), "matmul"), (TOTAL, "reduction")])
def test_a_split_reduction_computes_the_same_in_parts(tmp_path: Path, payload: str, kind: str, parts: int) -> None:
    (tmp_path / "long.mlir").write_text(payload)
    [variant] = [each for each in variants_for(TARGET, None, "split_reduction") if each.name.endswith(f"parts{parts}")]
    (tmp_path / "s.mlir").write_text(spec_text([], Path("long.mlir"), TARGET, "now", "not timed", variant))
    done = mlsearch(tmp_path, "verify", "long.mlir", "--spec", "s.mlir", "--json", "v.json")
    verified = json.loads((tmp_path / "v.json").read_text())
    assert verified["whole"]["numerics"]["agrees"], done.stderr
    tasks = told(mlsearch(tmp_path, "inspect", "long.mlir", "--variant", variant.name, "--json", "-"))["tasks"]
    assert [task["op_kind"] for task in tasks] == [f"batch_{kind}" if kind == "matmul" else kind, "reduction"]
    assert set(tasks[0]["dims"].values()) >= {parts, 65536 // parts}


@pytest.mark.parametrize("length", [4096, 65537])
def test_a_reduction_that_is_short_or_of_odd_length_is_not_split(tmp_path: Path, length: int) -> None:
    (tmp_path / "sum.mlir").write_text(TOTAL.replace("65536", str(length)))
    arguments = ["tune", "sum.mlir", "--variants", "split_reduction", "--trials", "1", "-o", "s.mlir", "--json", "-"]
    summary = told(mlsearch(tmp_path, *arguments))
    assert summary["variant"] == "default"
    assert all(each["dropped"] for each in summary["variants"] if each["name"] != "default")


def test_all_built_in_variants_compute_the_same_or_say_why_not(tmp_path: Path) -> None:
    (tmp_path / "mm.mlir").write_text(matmul(37, 100, 50))
    summary = told(mlsearch(tmp_path, "tune", "mm.mlir", "--trials", "1", "-o", "s.mlir", "--json", "-"))
    assert len(summary["variants"]) == len(variants_for(TARGET, None, "all"))
    for variant in summary["variants"]:
        assert variant["untuned_speedup"] is not None or "the same code" in variant["dropped"], variant


def test_a_variants_spec_is_not_verified_where_a_function_of_the_payload_is_never_run(tmp_path: Path) -> None:
    (tmp_path / "two.mlir").write_text(matmul(name="fixed") + DYNAMIC)
    [variant] = [each for each in variants_for(TARGET, None, "reassociate") if not each.is_default]
    (tmp_path / "s.mlir").write_text(spec_text([], Path("two.mlir"), TARGET, "now", "not timed", variant))
    done = mlsearch(tmp_path, "verify", "two.mlir", "--spec", "s.mlir")
    assert done.returncode == 1
    assert "variant 'reassociate' is not checked everywhere: function 'main' can't be run" in done.stderr

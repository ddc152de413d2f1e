"""`mlsearch verify` fails loudly on each thing that can be wrong with a spec."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from command import mlsearch
from payload_texts import matmul

M, N, K = 64, 96, 48

LIBRARY = """
module attributes {{transform.with_named_sequence}} {{
  {strategy}
  transform.named_sequence @match_it(%op: !transform.any_op {{transform.readonly}}) -> !transform.any_op {{
    transform.match.operation_name %op ["{op}"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }}
  transform.named_sequence @act(%op: !transform.any_op {{transform.readonly}}) {{
    {config}
    %function = transform.get_parent_op %op <{{op_name = "func.func"}}> : (!transform.any_op) -> !transform.any_op
    %info = transform.param.constant #iree_codegen.translation_info<pipeline = {pipeline}> -> !transform.any_param
    transform.annotate %function "translation_info" = %info : !transform.any_op, !transform.any_param
    transform.yield
  }}
  transform.named_sequence @__kernel_config(%v: !transform.any_op {{transform.consumed}}) {{
    transform.foreach_match in %v @match_it -> @act : (!transform.any_op) -> !transform.any_op
    transform.yield
  }}
}}
"""

# Distributes the rows in two halves and never says how many workgroups there are, so one half is computed.
HALF = f"""
  transform.named_sequence @strategy(%variant: !transform.any_op) {{
    %mm = transform.structured.match ops{{["linalg.matmul"]}} in %variant : (!transform.any_op) -> !transform.any_op
    %fill = transform.structured.match ops{{["linalg.fill"]}} in %variant : (!transform.any_op) -> !transform.any_op
    %tiled, %forall = transform.structured.tile_using_forall %mm tile_sizes [{M // 2}]
        (mapping = [#gpu.block<x>]) : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    %fused, %same = transform.structured.fuse_into_containing_op %fill into %forall
        : (!transform.any_op, !transform.any_op) -> (!transform.any_op, !transform.any_op)
    %f = transform.structured.match ops{{["func.func"]}} in %variant : (!transform.any_op) -> !transform.any_op
    transform.iree.eliminate_empty_tensors %variant : (!transform.any_op) -> ()
    %b = transform.apply_registered_pass "iree-codegen-llvmcpu-bufferization-pipeline" to %f
        : (!transform.any_op) -> !transform.any_op
    transform.iree.forall_to_workgroup %b : (!transform.any_op) -> ()
    %none = transform.param.constant #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>
        -> !transform.any_param
    transform.annotate %b "translation_info" = %none : !transform.any_op, !transform.any_param
    transform.yield
  }}
"""
CONFIG = """%config = transform.param.constant #iree_cpu.lowering_config<{levels}> -> !transform.any_param
    transform.annotate %op "lowering_config" = %config : !transform.any_op, !transform.any_param"""
EXPERT = "#iree_cpu.pipeline<DoubleTilingExpert>"
SINGLE_ELEMENTS = CONFIG.format(
    levels="distribution = [64, 96, 0], vector_common_parallel = [1, 1, 0], vector_reduction = [0, 0, 1]"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("verify")
    (path / "payload.mlir").write_text(matmul(M, N, K))
    return path


def verified(folder: Path, spec: str) -> tuple[subprocess.CompletedProcess[str], dict[str, object]]:
    (folder / "spec.mlir").write_text(spec)
    (folder / "out.json").unlink(missing_ok=True)
    done = mlsearch(folder, "verify", "payload.mlir", "--spec", "spec.mlir", "--json", "out.json")
    told = json.loads((folder / "out.json").read_text()) if (folder / "out.json").exists() else {}
    return done, told


def failed(folder: Path, spec: str, words: str) -> None:
    done, told = verified(folder, spec)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("mlsearch: error: spec.mlir: ")
    assert "entry 'it'" in last
    assert words in last
    assert told["ok"] is False


def test_a_matcher_that_no_longer_fits(folder: Path) -> None:
    spec = LIBRARY.format(strategy="", op="linalg.conv_2d_nhwc_hwcf", config=SINGLE_ELEMENTS, pipeline=EXPERT)
    failed(folder, spec, "applied to nothing")


def test_a_strategy_that_computes_half_of_the_output(folder: Path) -> None:
    pipeline = "#iree_codegen.transform_dialect_codegen codegen_spec = @strategy"
    spec = LIBRARY.format(strategy=HALF, op="linalg.matmul", config="", pipeline=pipeline)
    failed(folder, spec, f"{M * N // 2} of {M * N} output elements stay unwritten")
    # So it is in the whole payload, whose output is memory that an untuned run gave back.
    whole = json.loads((folder / "out.json").read_text())["whole"]
    assert (whole["numerics"]["agrees"], whole["numerics"]["unwritten"]) == (False, M * N // 2)


def test_a_spec_that_is_slower_than_untuned(folder: Path) -> None:
    spec = LIBRARY.format(strategy="", op="linalg.matmul", config=SINGLE_ELEMENTS, pipeline=EXPERT)
    failed(folder, spec, "slower than untuned")


def test_a_spec_that_matches_and_changes_nothing(folder: Path) -> None:
    misspelled = SINGLE_ELEMENTS.replace('"lowering_config"', '"lowering_cfg"')
    spec = LIBRARY.format(strategy="", op="linalg.matmul", config=misspelled, pipeline=EXPERT)
    failed(folder, spec.replace('"translation_info"', '"translation_inf"'), "changes nothing")


def test_a_spec_that_breaks_the_compilation_is_told(folder: Path) -> None:
    config = CONFIG.format(levels="distribution = [64], vector_common_parallel = [1, 1, 0, 5, 5]")
    spec = LIBRARY.format(strategy="", op="linalg.matmul", config=config, pipeline=EXPERT)
    done, _ = verified(folder, spec)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("mlsearch: error: ")


def test_a_spec_without_entries_is_fine(folder: Path) -> None:
    from mlsearch.ir.library import EMPTY_LIBRARY

    done, told = verified(folder, EMPTY_LIBRARY)
    assert done.returncode == 0
    assert (told["ok"], told["entries"]) == (True, [])

"""Variants of the payload as files, and as what a spec carries."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsearch.errors import MlsearchError, SpecError, TemplateError
from mlsearch.ir.library import EMPTY_LIBRARY
from mlsearch.ir.module import new_context, parse
from mlsearch.ir.preprocessing import bind_preprocessing, carry, read_preprocessing
from mlsearch.ir.proof import instrumented
from mlsearch.spec import spec_text
from mlsearch.target import resolve
from mlsearch.toolchain import PREPROCESSING_FLAG
from mlsearch.variant import DEFAULT, Variant, check_flags, variant_of, variants_for

TARGET = resolve("llvm-cpu", 1)
PACK = """
module attributes {transform.with_named_sequence, mlsearch.flags = ["--iree-opt-level=O3"],
                   mlsearch.domains = {m = [4, 8], n = [16, 32]}} {
  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %matmul = transform.structured.match ops{["linalg.matmul"]} in %payload : (!transform.any_op) -> !transform.any_op
    %packed = transform.structured.pack %matmul packed_sizes = [8, 32, 1] {mlsearch.knobs = ["m", "n", ""]}
      : (!transform.any_op) -> !transform.op<"linalg.generic">
    transform.yield
  }
}
"""
SPLIT = """
module attributes {transform.with_named_sequence, mlsearch.domains = {parts = [2, 8]}} {
  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %matmul = transform.structured.match ops{["linalg.matmul"]} in %payload : (!transform.any_op) -> !transform.any_op
    %a, %b, %c, %d = transform.structured.split_reduction %matmul
      <{split_factor = 4 : i64, insert_split_dimension = 0 : i64}> {mlsearch.knobs = ["parts"]}
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op, !transform.any_op, !transform.any_op)
    transform.yield
  }
}
"""
FLAGS_ONLY = 'module attributes {mlsearch.flags = ["--iree-opt-data-tiling"]} {}'


def folder_with(tmp_path: Path, **files: str) -> Path:
    place = tmp_path / "preprocessing" / "cpu"
    place.mkdir(parents=True)
    for name, text in files.items():
        (place / f"{name}.mlir").write_text(text)
    return tmp_path


def test_each_combination_of_knobs_is_a_variant_of_its_own(tmp_path: Path) -> None:
    found = variants_for(TARGET, folder_with(tmp_path, mine=PACK), "mine")
    assert [each.name for each in found] == ["default", "mine-m4-n16", "mine-m4-n32", "mine-m8-n16", "mine-m8-n32"]
    assert found[2].flags == ("--iree-opt-level=O3",)
    assert found[2].script is not None
    assert "packed_sizes = [4, 32, 1]" in found[2].script
    assert "mlsearch" not in found[2].script


def test_the_factor_of_a_split_is_a_knob_like_a_packed_size(tmp_path: Path) -> None:
    found = variants_for(TARGET, folder_with(tmp_path, mine=SPLIT), "mine")
    assert [each.name for each in found] == ["default", "mine-parts2", "mine-parts8"]
    assert found[2].script is not None
    assert "split_factor = 8" in found[2].script
    assert "mlsearch" not in found[2].script


def test_the_built_in_ones_are_there_and_the_default_is_the_first() -> None:
    names = [each.name for each in variants_for(TARGET, None, "all")]
    assert names[0] == "default"
    assert {
        "reassociate",
        "o3",
        "data_tiling",
        "im2col",
        "channels_last",
        "pack_right-n64",
        "split_reduction-parts16",
    } <= set(names)
    assert {"data_tiling_early", "unsigned_left"} <= set(names)
    assert variants_for(TARGET, None, "default") == [DEFAULT]
    assert [each.name for each in variants_for(TARGET, None, "im2col, default,im2col")] == ["default", "im2col"]
    assert variants_for(TARGET, None, "o3,all") == [
        *variants_for(TARGET, None, "o3"),
        *(each for each in variants_for(TARGET, None, "all")[1:] if each.name != "o3"),
    ]


def test_one_of_a_files_variants_goes_by_its_own_name() -> None:
    assert [each.name for each in variants_for(TARGET, None, "pack_right-n64,o3")] == [
        "default",
        "pack_right-n64",
        "o3",
    ]


def test_another_backend_has_others() -> None:
    assert variants_for(resolve("cuda:sm_80", 1), None, "all") == [DEFAULT]


def test_a_name_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(MlsearchError, match=r"--variants 'o4': there is no variant 'o4'; there are all, default, .*o3"):
        variants_for(TARGET, None, "o4")
    with pytest.raises(MlsearchError, match="--variants '': there is no variant ''"):
        variants_for(TARGET, None, "")


def test_a_second_file_of_the_same_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match=r"o3\.mlir: there is a variant 'o3' already"):
        variants_for(TARGET, folder_with(tmp_path, o3=FLAGS_ONLY), "all")


def test_a_file_with_the_name_of_another_ones_variant_is_refused(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, **{"pack_right-n32": FLAGS_ONLY})
    with pytest.raises(TemplateError, match=r"n32\.mlir: there is a variant 'pack_right-n32' already"):
        variants_for(TARGET, folder, "all")


@pytest.mark.parametrize(
    "flag",
    [
        "--iree-hal-dump-executable-files-to=/somewhere",
        "--iree-opt-level=O3 --iree-hal-dump-executable-files-to=x",
        "--iree-preprocessing-pass-pipeline=builtin.module(transform-interpreter{library=x})",
        "--iree-preprocessing-transform-spec-filename=x.mlir",
        "--iree-llvmcpu-target-cpu=generic",
        "-o",
        "--iree-opt-data-tiling\n--iree-hal-dump-executable-files-to=x",
    ],
)
def test_flags_that_do_more_than_change_code_are_refused(flag: str) -> None:
    with pytest.raises(TemplateError, match="none of the flags that a variant may set"):
        check_flags([flag], "x.mlir")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("module {", "is not a transform library"),
        ("module {}", "sets no mlsearch.flags and has no sequence @__transform_main"),
        ("module attributes {mlsearch.flags = 3 : i64} {}", "is not a list of strings"),
        (PACK.replace("m = [4, 8]", "m = []"), "list of integers"),
        (PACK.replace("m = [4, 8]", "q = [4, 8]"), "do not name the same knobs: m, q"),
        (PACK.replace('["m", "n", ""]', '["m", "n"]'), "one name, or an empty one, per size"),
    ],
)
def test_a_file_that_is_no_variant_is_told_why(text: str, words: str) -> None:
    with pytest.raises(TemplateError, match=rf"x\.mlir.*{words}"):
        read_preprocessing(text, "x.mlir")


def test_a_spec_carries_its_variant_and_gives_it_back() -> None:
    script = bind_preprocessing(PACK, {"m": 4, "n": 16})
    variant = Variant("mine", ("--iree-opt-level=O3",), script)
    text = spec_text([], Path("p.mlir"), TARGET, "now", "2.00x", variant)
    header = "\n".join(line for line in text.splitlines() if line.startswith("//"))
    assert "Variant of the payload: mine (@__transform_main in here rewrites the payload)" in header
    assert f"--iree-opt-level=O3 {PREPROCESSING_FLAG}=SPEC" in header
    assert "changes nothing" not in header
    back = variant_of(text, "spec")
    assert (back.name, back.flags) == ("mine", ("--iree-opt-level=O3",))
    assert back.script is not None
    assert "packed_sizes = [4, 16, 1]" in back.script
    assert back.on(TARGET).compile_flags == (*TARGET.compile_flags, "--iree-opt-level=O3")
    # Entries are found in it as in any other spec.
    assert instrumented(text, "spec")[1] == ()


def test_a_spec_for_the_payload_as_it_is_carries_nothing() -> None:
    text = spec_text([], Path("p.mlir"), TARGET, "now")
    assert "mlsearch.variant" not in text
    assert variant_of(text, "spec") == DEFAULT
    assert DEFAULT.on(TARGET) == TARGET


def test_a_script_with_a_sequence_of_the_specs_name_is_refused() -> None:
    script = PACK.replace("@__transform_main", "@__kernel_config")
    with pytest.raises(TemplateError, match="@__kernel_config has the name of a spec's own"):
        carry(EMPTY_LIBRARY, "mine", (), script)


def test_a_spec_can_not_set_other_flags() -> None:
    text = EMPTY_LIBRARY.replace(
        "transform.with_named_sequence}",
        'transform.with_named_sequence, mlsearch.flags = ["--mlir-print-ir-tree-dir=x"]}',
    )
    assert "tree-dir" in text
    with pytest.raises(SpecError, match="tree-dir=x' is none of the flags"):
        variant_of(text, "spec")


def test_a_script_can_not_have_the_compiler_write_files(tmp_path: Path) -> None:
    dumping = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%payload: !transform.any_op) {
    %same = transform.apply_registered_pass "iree-hal-dump-executable-sources" with options = {"path" = "x"}
      to %payload : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""
    told = (
        r"may not have the compiler read or write files, nor run programs: "
        r"pass 'iree-hal-dump-executable-sources' with option 'path'"
    )
    with pytest.raises(SpecError, match=rf"spec: a script {told}"):
        variant_of(dumping, "spec")
    with pytest.raises(TemplateError, match=told):
        variants_for(TARGET, folder_with(tmp_path, mine=dumping), "mine")
    variant_of(dumping.replace('with options = {"path" = "x"}', ""), "spec")


@pytest.mark.parametrize(
    ("passes", "told"),
    [
        ("iree-hal-dump-executable-sources{path=x}", "pass 'iree-hal-dump-executable-sources' with option 'path'"),
        (
            "canonicalize{max-iterations=1},builtin.module(cse,transform-interpreter{entry-point=a},"
            "iree-transform-dialect-interpreter{entry-point=a library-file-name=x})",
            "pass 'iree-transform-dialect-interpreter' with option 'library-file-name'",
        ),
        (
            "hal.executable(iree-hal-preprocess-executables-with-tool{command=x})",
            "nor run programs: pass .* with option 'command'",
        ),
        ("hal.executable(iree-hal-preprocess-executables-with-pipeline{pipeline=cse})", "with option 'pipeline'"),
    ],
)
def test_passes_written_out_can_not_name_files_either(passes: str, told: str) -> None:
    script = f"""
module attributes {{transform.with_named_sequence}} {{
  transform.named_sequence @strategy(%function: !transform.any_op) {{
    %info = transform.param.constant #iree_codegen.translation_info<
      pipeline = #iree_codegen.pass_pipeline<"{passes}">> -> !transform.any_param
    transform.annotate %function "translation_info" = %info : !transform.any_op, !transform.any_param
    transform.yield
  }}
}}
"""
    with pytest.raises(SpecError, match=f"may not have the compiler read or write files, .*{told}"):
        variant_of(script, "spec")


def test_passes_written_out_with_other_options_are_none_of_that() -> None:
    passes = "iree-llvmcpu-tile{tiling-level=vector_reduction},func.func(canonicalize,cse)"
    script = f"""
module attributes {{transform.with_named_sequence, mlsearch.note = #iree_codegen.pass_pipeline<"{passes}">}} {{
}}
"""
    assert variant_of(script, "spec") == DEFAULT


def test_a_carried_variant_is_still_a_library_that_mlir_accepts() -> None:
    text = carry(EMPTY_LIBRARY, 'odd "name"', ("--iree-opt-level=O3",), bind_preprocessing(PACK, {"m": 8, "n": 32}))
    parse(text, new_context())
    assert variant_of(text, "spec").name == 'odd "name"'

from __future__ import annotations

from mlsearch.builder.diagnostics import entries_in, failed_stage, headline, ran_out_of_memory


def test_entries_are_found_on_any_op_and_with_other_attributes() -> None:
    ir = b"""
      %7 = linalg.matmul {lowering_config = #cpu.config<tile = [8, 32]>, mlsearch.entry = "a"} ins(%3 : f32)
      "linalg.fill"(%1) {mlsearch.entry = "b"} : (f32) -> f32
    """
    assert entries_in(ir) == {"a", "b"}


def test_entry_names_are_unescaped_as_mlir_escapes_them() -> None:
    assert entries_in(rb'{mlsearch.entry = "a \22b\22 \\ \C3\A4\0A"}') == {'a "b" \\ ä\n'}


def test_text_that_looks_like_an_entry_inside_a_string_is_none() -> None:
    assert entries_in(rb'{note = "mlsearch.entry = ", other = "x", end = "\22mlsearch.entry = \22y\22"}') == set()
    assert entries_in(rb'{note = "ends in \\", mlsearch.entry = "real"}') == {"real"}


def test_an_attribute_with_a_longer_name_is_no_entry() -> None:
    assert entries_in(b'{my.mlsearch.entry = "a", mlsearch.entry_note = "b"}') == set()


def test_headline_keeps_error_lines_and_leaves_out_the_ir() -> None:
    said = "m.mlir:3:1: warning: hm\nm.mlir:4:1: error: first\n  op {\n" + "x\n" * 9 + "m.mlir:5:1: error: second\n"
    assert headline(said) == "m.mlir:4:1: error: first\nm.mlir:5:1: error: second"


def test_headline_is_short_whatever_the_compiler_prints() -> None:
    said = "\n".join(f"error: {'x' * 9999}" for _ in range(9))
    assert len(headline(said)) < 1000


def test_headline_without_an_error_line_is_the_first_line() -> None:
    assert headline("\n  terminate called\nmore\n") == "terminate called"
    assert headline("") == ""


def test_what_iree_passes_over_is_a_failure() -> None:
    assert failed_stage("error: Failed to load transform library module: l.mlir") == "library"
    assert failed_stage("warning: tiling is not thread safe at axis #2") == "compile"
    assert failed_stage("warning: something else") is None


def test_memory_signs_are_known() -> None:
    assert ran_out_of_memory("LLVM ERROR: out of memory\nAllocation failed")
    assert ran_out_of_memory("terminate called after throwing an instance of 'std::bad_alloc'")
    assert not ran_out_of_memory("error: failed to legalize")

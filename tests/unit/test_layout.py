"""From knob values to lowering configs of all ops of a dispatch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from small_templates import load, template_text
from spec_time_functions import function_text, matmul, matmul_then, read, softmax

from mlsearch.candidate import KnobValue
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.module import new_context, parse
from mlsearch.space.layout import Layout, lay_out


def knob(name: str) -> str:
    return f'#iree_codegen.smt.int_knob<"{name}">'


def laid_out(
    folder: Path, view: DispatchView, knobs: str, values: Mapping[str, KnobValue], choices: str = ""
) -> Layout:
    numbers = [name for name, value in values.items() if isinstance(value, int)]
    text = template_text(
        knobs=knobs,
        domains=", ".join(f"{name} = [{values[name]}]" for name in numbers),
        defaults=", ".join([f"{name} = {values[name]}" for name in numbers] + ([choices] if choices else [])),
    )
    return lay_out(load(folder, text).declarations, view, values, lanes=16)


def sizes(layout: Layout, level: str) -> tuple[int, ...] | None:
    return layout.tiling.by_level.get(level)


def test_knobs_go_to_the_loop_of_their_role(tmp_path: Path) -> None:
    knobs = f"""distribution = {{m = {knob("a")}, n = {knob("b")}}},
                vector_common_parallel = {{m = {knob("c")}, n = {knob("b")}}}, vector_reduction = {{k = {knob("c")}}}"""
    layout = laid_out(tmp_path, read(matmul()), knobs, {"a": 32, "b": 16, "c": 4})
    assert layout.root_config == (
        "#iree_cpu.lowering_config<distribution = [32, 16, 0], vector_common_parallel = [4, 16, 0],"
        " vector_reduction = [0, 0, 4]>"
    )


def test_a_list_of_knobs_is_their_product_and_numbers_stand_for_themselves(tmp_path: Path) -> None:
    knobs = f"distribution = {{m = [{knob('a')}, {knob('b')}, 2], n = 24}}"
    layout = laid_out(tmp_path, read(matmul()), knobs, {"a": 4, "b": 3})
    assert sizes(layout, "distribution") == (24, 24, 0)


def test_sizes_are_clipped_to_their_loops(tmp_path: Path) -> None:
    knobs = f"distribution = {{m = {knob('a')}, n = {knob('a')}}}, vector_reduction = {{k = {knob('a')}}}"
    layout = laid_out(tmp_path, read(matmul(64, 96, 48)), knobs, {"a": 80})
    assert sizes(layout, "distribution") == (64, 80, 0)
    assert sizes(layout, "vector_reduction") == (0, 0, 48)


def test_loops_that_no_knob_names_are_cut_to_single_iterations_only_where_vectors_form(tmp_path: Path) -> None:
    layout = laid_out(tmp_path, read(matmul()), f"cache_parallel = {{m = {knob('a')}}}", {"a": 8})
    assert layout.tiling.by_level == {
        "distribution": (1, 1, 0),
        "cache_parallel": (8, 0, 0),
        "vector_common_parallel": (1, 1, 0),
        "vector_reduction": (0, 0, 1),
    }


def test_a_level_of_zeros_is_left_out_but_for_the_distribution(tmp_path: Path) -> None:
    knobs = f"""distribution = {{m = {knob("none")}, n = {knob("none")}}}, cache_parallel = {{m = {knob("none")}}},
                cache_reduction = {{k = {knob("none")}}}"""
    layout = laid_out(tmp_path, read(matmul()), knobs, {"none": 0})
    assert sizes(layout, "distribution") == (0, 0, 0)
    assert sizes(layout, "cache_parallel") is None
    assert "distribution = [0, 0, 0]" in layout.root_config
    assert "cache" not in layout.root_config


ORDERED = """cache_parallel = {m = #iree_codegen.smt.int_knob<"a">, n = #iree_codegen.smt.int_knob<"a">,
             order = #iree_codegen.smt.one_of_knob<"order", [["m", "n"], ["n", "m"]]>}"""


def test_an_order_of_roles_becomes_an_interchange(tmp_path: Path) -> None:
    values: dict[str, KnobValue] = {"a": 8, "order": '["n", "m"]'}
    layout = laid_out(tmp_path, read(matmul()), ORDERED, values, 'order = ["m", "n"]')
    assert "cache_parallel = {sizes = [8, 8, 0], interchange = [1, 0, 2]}" in layout.root_config
    assert ("cache_parallel.order", "1,0,2") in layout.tiling.options


def test_an_interchange_says_which_loop_stands_at_each_place(tmp_path: Path) -> None:
    knobs = """cache_parallel = {m = 8, order = #iree_codegen.smt.one_of_knob<"order", [["m"], ["k", "m", "n"]]>}"""
    values: dict[str, KnobValue] = {"order": '["k", "m", "n"]'}
    layout = laid_out(tmp_path, read(matmul()), knobs, values, 'order = ["m"]')
    assert "interchange = [2, 0, 1]" in layout.root_config


def test_the_ops_own_order_needs_no_interchange(tmp_path: Path) -> None:
    layout = laid_out(tmp_path, read(matmul()), ORDERED, {"a": 8, "order": '["m", "n"]'}, 'order = ["m", "n"]')
    assert "interchange" not in layout.root_config
    uncut = laid_out(tmp_path, read(matmul()), ORDERED, {"a": 0, "order": '["n", "m"]'}, 'order = ["m", "n"]')
    assert "interchange" not in uncut.root_config


def test_an_order_permutes_only_the_loops_that_it_names_and_that_are_there(tmp_path: Path) -> None:
    from test_read_dispatch import contraction

    view = contraction(
        "tensor<12x64x48xf32>",
        "tensor<12x48x96xf32>",
        "tensor<12x64x96xf32>",
        ["(b, i, j, l) -> (b, i, l)", "(b, i, j, l) -> (b, l, j)", "(b, i, j, l) -> (b, i, j)"],
        "pppr",
    )
    layout = laid_out(tmp_path, view, ORDERED, {"a": 8, "order": '["n", "m"]'}, 'order = ["m", "n"]')
    assert "interchange = [0, 2, 1, 3]" in layout.root_config


PEEL = 'options = {enable_loop_peeling = #iree_codegen.smt.one_of_knob<"peel", [false, true]>}'


def test_options_that_are_false_are_left_out(tmp_path: Path) -> None:
    on = laid_out(tmp_path, read(matmul()), PEEL, {"peel": "true"}, "peel = true")
    off = laid_out(tmp_path, read(matmul()), PEEL, {"peel": "false"}, "peel = true")
    assert (on.options, off.options) == ("{enable_loop_peeling}", "")
    assert dict(off.tiling.options) == {"enable_loop_peeling": "false"}


def test_fixed_options_are_attributes_of_mlir(tmp_path: Path) -> None:
    fixed = 'options = {on = true, off = false, flag, count = 3 : i64, text = "a \\22b\\22", list = [1, 2]}'
    layout = laid_out(tmp_path, read(matmul()), fixed, {})
    attributes = parse(f"module attributes {{mlsearch.x = {layout.options}}} {{}}", new_context()).operation.attributes
    wanted = '{count = 3 : i64, flag, list = [1, 2], on, text = "a \\22b\\22"}'
    assert str(attributes["mlsearch.x"]) == wanted


def test_what_is_fused_after_the_root_op_follows_its_tiles(tmp_path: Path) -> None:
    view = read(matmul_then("%y = math.exp %x0 : f32"))
    knobs = f"vector_common_parallel = {{m = {knob('a')}, n = {knob('b')}}}, vector_reduction = {{k = {knob('a')}}}"
    layout = laid_out(tmp_path, view, knobs, {"a": 4, "b": 32})
    assert layout.companion_configs == {
        0: "#iree_cpu.lowering_config<vector_common_parallel = [4, 32]>",
        2: "#iree_cpu.lowering_config<vector_common_parallel = [4, 32]>",
    }


def test_the_ops_of_a_softmax_are_cut_along_its_rows_and_columns(tmp_path: Path) -> None:
    knobs = f"vector_common_parallel = {{p = {knob('rows')}}}, vector_reduction = {{r = {knob('step')}}}"
    view = read(softmax(16, 32))
    layout = laid_out(tmp_path, view, knobs, {"rows": 4, "step": 8})
    configs = layout.companion_configs
    assert configs[0] == configs[2] == "#iree_cpu.lowering_config<vector_common_parallel = [4]>"
    assert configs[1] == ("#iree_cpu.lowering_config<vector_common_parallel = [4, 0], vector_reduction = [0, 8]>")
    # The last op runs along the reduced loop in parallel: one register at a time where no knob says more.
    assert configs[4] == ("#iree_cpu.lowering_config<vector_common_parallel = [4, 0], vector_inner_parallel = [0, 16]>")


def test_each_reduction_of_a_chain_is_told_with_its_tile_sizes(tmp_path: Path) -> None:
    knobs = f"vector_common_parallel = {{p = {knob('rows')}}}, vector_reduction = {{r = {knob('step')}}}"
    view = read(softmax(16, 32))
    layout = laid_out(tmp_path, view, knobs, {"rows": 4, "step": 8})
    assert view.root == 3
    assert layout.reductions == {1: (0, 8), 3: (0, 8)}


def test_an_op_without_loops_gets_no_config(tmp_path: Path) -> None:
    body = """
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<f32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<f32>) -> tensor<f32>
      %r = linalg.dot ins(%a, %b : tensor<32xf32>, tensor<32xf32>) outs(%f : tensor<f32>) -> tensor<f32>
    """
    view = read(function_text({"%a": "tensor<32xf32>", "%b": "tensor<32xf32>"}, body, {"%r": "tensor<f32>"}))
    layout = laid_out(tmp_path, view, f"vector_reduction = {{k = {knob('a')}}}", {"a": 8})
    assert layout.companion_configs == {}
    assert layout.root_config == "#iree_cpu.lowering_config<distribution = [0], vector_reduction = [8]>"

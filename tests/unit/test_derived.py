"""Templates that are derived from a dispatch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from iree.compiler import ir as mlir
from small_templates import template_text
from spec_time_functions import MULTIPLY_ADD, elementwise, filled, function_text, generic, matmul, read

from mlsearch.ir.access import accesses, contiguous_loop, strides, window_loops
from mlsearch.ir.dispatch import DispatchView, body_operations
from mlsearch.ir.module import new_context, parse
from mlsearch.ir.taps import MOST_TAPS, tapped
from mlsearch.ir.template import read_declarations
from mlsearch.ir.writing import annotating_text
from mlsearch.space.derived import derived_templates
from mlsearch.space.derived_taps import WindowTaps
from mlsearch.space.knobs import nearest
from mlsearch.space.sketch import divisors, unroll_domain, vector_domain
from mlsearch.space.space import build_space, dims_and_facts
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import Hardware, Target

HARDWARE = Hardware("test", 64, 32, 32 * 1024, 1024 * 1024, 16 * 1024 * 1024, 2)
TARGET = Target("llvm-cpu", HARDWARE, (), 1)


def window(stride: int = 1, dilation: int = 1, size: int = 3, channels: int = 32) -> DispatchView:
    """A depthwise convolution: rows, columns, channels, and a square window."""
    reach = 13 * stride + (size - 1) * dilation + 1
    image, weight, output = (
        f"tensor<{reach}x{reach}x{channels}xf32>",
        f"tensor<{size}x{size}x{channels}xf32>",
        f"tensor<14x14x{channels}xf32>",
    )
    rows, columns = f"h * {stride} + y * {dilation}", f"w * {stride} + x * {dilation}"
    op = f"""%r = linalg.generic {{
        indexing_maps = [affine_map<(h, w, c, y, x) -> ({rows}, {columns}, c)>,
                         affine_map<(h, w, c, y, x) -> (y, x, c)>, affine_map<(h, w, c, y, x) -> (h, w, c)>],
        iterator_types = ["parallel", "parallel", "parallel", "reduction", "reduction"]}}
        ins(%a, %b : {image}, {weight}) outs(%init : {output}) {{
      ^bb0(%i: f32, %f: f32, %o: f32):
        %m = arith.mulf %i, %f : f32
        %s = arith.addf %o, %m : f32
        linalg.yield %s : f32
      }} -> {output}"""
    return read(function_text({"%a": image, "%b": weight}, filled(output) + "\n" + op, {"%r": output}))


def convolution() -> DispatchView:
    """Channels in front: output channels, rows, columns, input channels, and a window of 3x3."""
    image, weight, output = "tensor<16x38x34xf32>", "tensor<24x16x3x3xf32>", "tensor<24x36x32xf32>"
    maps = [
        "(n, h, w, k, y, x) -> (k, h + y, w + x)",
        "(n, h, w, k, y, x) -> (n, k, y, x)",
        "(n, h, w, k, y, x) -> (n, h, w)",
    ]
    op = generic("%r", {"%a": image, "%b": weight}, ("%init", output), maps, "ppprrr", MULTIPLY_ADD)
    return read(function_text({"%a": image, "%b": weight}, filled(output) + "\n" + op, {"%r": output}))


def facts(view: DispatchView, target: Target = TARGET) -> dict[str, int]:
    return dims_and_facts(view, target)


def derived(view: DispatchView, target: Target = TARGET, *, is_covered: bool = False) -> list[TemplateSpace]:
    found = derived_templates(view, view, facts(view, target), is_covered=is_covered)
    return [TemplateSpace(template, facts(view, target)) for template in found]


# ------------------------------------------------------------------------------------- what is read


def test_strides_and_windows_are_read_from_the_indexing_maps() -> None:
    view = window(stride=2, dilation=3)
    loops, found = view.workload.loops, accesses(view)
    assert found[0].dims == ({0: 2, 3: 3}, {1: 2, 4: 3}, {2: 1})
    assert [access.is_output for access in found] == [False, False, True]
    assert window_loops(loops, found) == (3, 4)
    assert strides(loops, found) == {0: 2, 1: 2}
    assert contiguous_loop(loops, found) == 2


def test_a_matmul_has_no_window() -> None:
    view = read(matmul())
    assert window_loops(view.workload.loops, accesses(view)) == ()


# ------------------------------------------------------------------------------------------ writing


def test_what_is_written_reads_back_as_the_same_declarations() -> None:
    declared = read_declarations(
        template_text(
            asserts="""
              %tile = iree_codegen.smt.knob "tile" : !smt.int
              %peel = iree_codegen.smt.knob "peel" : !smt.int
              %two = smt.int.constant 2
              %rest = smt.int.mod %m, %tile
              %even = smt.eq %rest, %two : !smt.int
              %less = smt.int.cmp lt %tile, %m
              %both = smt.or %even, %less
              iree_codegen.smt.assert %both, "tile ({}) of {}", %tile, %m : !smt.bool, !smt.int, !smt.int
            """,
            priors="{tile = 2, peel = false}",
        ),
        "the small one",
    )
    view = read(matmul())
    config = "#iree_cpu.lowering_config<distribution = [1, 1, 0]>"
    translation = "#iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>"
    text = annotating_text(declared, view.workload.loops, config, translation)
    # MLIR sorts dictionaries, and the order of the knobs is that of the file.
    assert read_declarations(text, "written") == declared


def test_a_derived_template_applies_to_its_own_dispatch_only() -> None:
    [part] = derived(read(matmul()))
    assert part.template.applies_to(read(matmul()))
    assert not part.template.applies_to(read(elementwise()))
    [taps] = derived(window())
    assert not taps.template.applies_to(window(channels=16))


def test_the_same_dispatch_on_the_same_hardware_gives_the_same_text() -> None:
    texts = [[part.template.text for part in derived(window())] for _ in range(2)]
    assert texts[0] == texts[1]
    narrow = replace(TARGET, hardware=replace(HARDWARE, vector_bytes=16))
    assert derived(window(), narrow)[0].template.digest != derived(window())[0].template.digest


# --------------------------------------------------------------------------------- windows as taps


def test_a_window_becomes_a_chain_of_taps_without_one() -> None:
    view = window(dilation=2)
    found = tapped(view, view)
    assert found is not None
    assert found.taps == 9
    assert [loop.role for loop in found.view.workload.loops] == ["o1", "o", "d"]
    assert len(found.view.compute_ops) == len(view.compute_ops) + 8
    after = accesses(found.view)
    assert window_loops(found.view.workload.loops, after) == ()
    assert {len(steps or {}) for access in after for steps in access.dims} == {1}


def test_all_taps_have_the_same_tiles_and_only_the_last_one_is_distributed() -> None:
    [part] = derived(convolution())
    template = part.template
    assert isinstance(template, WindowTaps)
    view = template.tapped.view
    layout = template.layout(view, {**part.priors()[0].knobs, "step_k": 4}, 16)
    taps = [layout.companion_configs[index] for index in template.tapped.chain if index != view.root]
    assert len(taps) == 8
    assert len(set(taps)) == 1
    assert "distribution" not in taps[0]
    assert "distribution" in layout.root_config
    assert "vector_reduction = [0, 0, 0, 4]" in taps[0]
    assert taps[0].partition("vector_common_parallel")[2] == layout.root_config.partition("vector_common_parallel")[2]


def test_loops_of_the_left_operand_come_before_those_of_the_right_one() -> None:
    view = convolution()
    found = tapped(view, view)
    assert found is not None
    assert [loop.role for loop in view.workload.loops] == ["n", "o1", "o", "k", "f1", "f"]
    assert [loop.role for loop in found.view.workload.loops] == ["o1", "o", "n", "k"]


def test_products_of_vectors_are_never_masked() -> None:
    [part] = derived(convolution())
    for knobs in (candidate.knobs for candidate in part):
        assert 24 % int(knobs["tile_n"]) == 0
        assert 32 % int(knobs["tile_o"]) == 0
        rows = int(knobs["tile_o1"]) * int(knobs["dist_o1"])
        assert rows == 0 or 36 % rows == 0


def test_tilings_are_told_in_the_loops_of_the_dispatch_itself() -> None:
    view = window()
    [part] = derived(view)
    knobs = {"tile_d": 32, "tile_o": 7, "tile_o1": 2, "dist_d": 0, "dist_o1": 2, "peel": "false"}
    levels = part.template.tiling(view, knobs, 16).by_level
    assert levels["distribution"] == (4, 0, 0, 0, 0)
    assert levels["vector_common_parallel"] == (2, 7, 32, 0, 0)


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(window(stride=2), id="a window that moves by two"),
        pytest.param(window(size=6), id="too many taps"),
        pytest.param(read(matmul()), id="no window"),
    ],
)
def test_what_can_not_be_unrolled_has_no_taps(view: DispatchView) -> None:
    assert MOST_TAPS < 6 * 6
    assert tapped(view, view) is None


# --------------------------------------------------------------------------------------- the spaces


@pytest.mark.parametrize(
    "view", [window(), read(matmul()), read(elementwise())], ids=["window", "matmul", "elementwise"]
)
def test_a_derived_space_has_priors_and_none_breaks_a_constraint(view: DispatchView) -> None:
    [part] = derived(view)
    assert part.size > 10
    assert len(part.priors()) >= 3
    for prior in part.priors():
        assert part.violations(prior.knobs) == ()


def test_where_only_narrow_tiles_divide_the_loop_of_vectors_whole_ones_with_a_rest_come_first() -> None:
    body = generic(
        "%r",
        {"%x": "tensor<8x32x64xf32>", "%w": "tensor<64x32x5xf32>"},
        ("%e", "tensor<8x64x60xf32>"),
        [
            "(n, o, t, c, w) -> (n, c, t + w)",
            "(n, o, t, c, w) -> (o, c, w)",
            "(n, o, t, c, w) -> (n, o, t)",
        ],
        "ppprr",
        MULTIPLY_ADD,
    )
    text = function_text(
        {"%x": "tensor<8x32x64xf32>", "%w": "tensor<64x32x5xf32>"},
        "%e = tensor.empty() : tensor<8x64x60xf32>\n" + body,
        {"%r": "tensor<8x64x60xf32>"},
    )
    [part] = derived(read(text))
    first, second, third = [prior.knobs for prior in part.priors()][:3]
    assert [first["tile_o"], second["tile_o"], third["tile_o"]] == [16, 32, 4]
    assert [first["peel"], second["peel"], third["peel"]] == ["true", "true", "false"]


def test_the_tiles_of_a_matmul_are_kept_in_registers() -> None:
    [part] = derived(read(matmul()))
    assert part.template.id == "derived/loop_tiles"
    sizes = {knob.name: knob.values for knob in part.knobs}
    assert set(sizes) >= {"tile_m", "tile_n", "step_k"}
    wide = {knob.name: max(knob.values) if not knob.is_choice else knob.values[0] for knob in part.knobs}
    assert any("vectors of the output" in violation for violation in part.violations(wide))


def test_what_another_template_covers_gets_no_tiles_but_its_window_does() -> None:
    assert derived(read(matmul()), is_covered=True) == []
    assert [part.template.id for part in derived(window(), is_covered=True)] == ["derived/window_taps"]


def test_a_dispatch_that_no_template_applies_to_still_has_a_space() -> None:
    space = build_space(read(elementwise()), [], TARGET)
    assert list(space.parts) == ["derived/loop_tiles"]
    assert space.size > 0


# ----------------------------------------------------------------------------------------- domains


def test_vectors_are_powers_of_two_and_narrower_only_where_whole_ones_do_not_divide() -> None:
    assert vector_domain(128, 16, 4) == [16, 32, 64]
    assert vector_domain(56, 16, 4) == [8, 16, 32]
    assert vector_domain(14, 16, 4) == [4, 8]
    assert vector_domain(3, 16, 4) == [1]


def test_unrolled_loops_are_cut_by_what_divides_them() -> None:
    assert divisors(56, 16) == [1, 2, 4, 7, 8, 14]
    assert unroll_domain(6, 16) == [1, 2, 3, 4, 6]


def test_a_prior_between_two_values_takes_the_smaller_one() -> None:
    assert nearest([1, 4, 8], 6) == 4
    assert nearest([4, 8], 2) == 4


def permuted(order: str) -> DispatchView:
    """Three dims that change places: loops follow the input, the output is written in `order`."""
    sizes = {"i": 64, "j": 48, "k": 96}
    image = "tensor<64x48x96xf32>"
    output = f"tensor<{'x'.join(str(sizes[letter]) for letter in order)}xf32>"
    maps = ["(i, j, k) -> (i, j, k)", f"(i, j, k) -> ({', '.join(order)})"]
    body = "%y = math.exp %x0 : f32\nlinalg.yield %y : f32"
    op = generic("%r", {"%a": image}, ("%init", output), maps, "ppp", body)
    return read(function_text({"%a": image}, f"%init = tensor.empty() : {output}\n{op}", {"%r": output}))


def test_dims_that_change_places_beyond_what_files_cut_get_both_sides_of_the_square() -> None:
    assert derived(permuted("ikj"), is_covered=True) == []
    [part] = derived(permuted("kji"), is_covered=True)
    assert part.template.id == "derived/loop_tiles"
    assert {"tile_p2", "tile_p", "dist_p2", "dist_p"} <= {knob.name for knob in part.knobs}
    assert any(prior.knobs["tile_p2"] == prior.knobs["tile_p"] == 16 for prior in part.priors())


def test_the_first_prior_has_irees_own_workgroups() -> None:
    view = permuted("kji")
    config = "#iree_cpu.lowering_config<distribution = [32, 48, 96], vector_common_parallel = [16, 1, 16]>"
    late = replace(view, function=_configured(view, config))
    found = derived_templates(view, late, facts(view), is_covered=True)
    [part] = [TemplateSpace(template, facts(view)) for template in found]
    first = part.priors()[0].knobs
    assert {name: first[name] for name in ("tile_p2", "tile_p", "dist_p2", "dist_p")} == {
        "tile_p2": 16,
        "tile_p": 16,
        "dist_p2": 2,
        "dist_p": 0,
    }


def _configured(view: DispatchView, config: str) -> str:
    """The dispatch's function with a lowering config on its root op."""
    module = parse(view.function, new_context())
    with module.context:
        root = body_operations(module.body.operations[0].operation)[view.compute_ops[view.root].position]
        root.attributes["lowering_config"] = mlir.Attribute.parse(config)
    return str(module.body.operations[0])

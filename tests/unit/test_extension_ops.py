"""IREE's own ops that have loops, but no indexing maps."""

from __future__ import annotations

import pytest
from spec_time_functions import filled, function_text, generic, read
from test_transform_library import fired

from mlsearch.ir.dispatch import DispatchView, NotReadable
from mlsearch.ir.library import library_text
from mlsearch.space.space import Space, build_space
from mlsearch.target import Hardware, Target

TARGET = Target("llvm-cpu", Hardware("test", 64, 32, 32 * 1024, 1024 * 1024, 16 * 1024 * 1024, 2), (), 1)
X, ROW, COLUMN = "tensor<40x96xf32>", "tensor<40xf32>", "tensor<96xf32>"
GREATER = """^bb0(%l: f32, %r: f32):
    %more = arith.cmpf ogt, %l, %r : f32
    iree_linalg_ext.yield %more : i1"""
SQUARE = "%y = arith.mulf %x0, %x0 : f32\nlinalg.yield %y : f32"


def scan(dimension: int = 1, then: str = "", *, inclusive: str = "true", kind: str = X) -> str:
    """A cumulative sum, and what follows it."""
    carry = (ROW if dimension else COLUMN) if kind == X else "tensor<?xf32>"
    empty = f"%e = tensor.empty() : {X}" if kind == X else f"%e = tensor.empty(%offset) : {kind}"
    start = filled(carry) if kind == X else f"%init = tensor.empty(%offset) : {carry}"
    steps = f"""{empty}
{start}
%s:2 = iree_linalg_ext.scan dimension({dimension}) inclusive({inclusive}) ins(%a : {kind})
    outs(%e, %init : {kind}, {carry}) {{
  ^bb0(%l: f32, %acc: f32):
    %sum = arith.addf %l, %acc : f32
    iree_linalg_ext.yield %sum : f32
}} -> {kind}, {carry}
{then}"""
    return function_text({"%a": X}, steps, {"%y" if then else "%s#0": X})


def sort() -> str:
    steps = f"%s = iree_linalg_ext.sort dimension(0) outs(%a : {X}) {{\n{GREATER}\n}} -> {X}"
    return function_text({"%a": X}, steps, {"%s": X})


def arg_compare() -> str:
    places = "tensor<40xi32>"
    steps = f"""{filled(ROW, "%v")}\n{filled(places, "%p", "0 : i32")}
%t:2 = iree_linalg_ext.arg_compare dimension(1) ins(%a : {X}) outs(%v, %p : {ROW}, {places}) {{
{GREATER}
}} -> {ROW}, {places}"""
    return function_text({"%a": X}, steps, {"%t#1": places})


def topk(k: int = 5) -> str:
    values, places = f"tensor<40x{k}xf32>", f"tensor<40x{k}xi32>"
    steps = f"""{filled(values, "%v")}\n{filled(places, "%p", "0 : i32")}
%t:2 = iree_linalg_ext.topk dimension(1) ins(%a : {X}) outs(%v, %p : {values}, {places}) {{
{GREATER}
}} -> {values}, {places}"""
    return function_text({"%a": X}, steps, {"%t#0": values, "%t#1": places})


def topk_v2() -> str:
    out = "tensor<40x5xf32>"
    steps = f"""%e = tensor.empty() : {out}
%t = iree_linalg_ext.topk_v2 dimension(1) ins(%a : {X}) outs(%e : {out}) {{
{GREATER}
}} -> {out}"""
    return function_text({"%a": X}, steps, {"%t": out})


def scatter(unique: str = "true") -> str:
    updates, indices = "tensor<16x96xf32>", "tensor<16x1xi32>"
    steps = f"""%e = tensor.empty() : {X}
%s = iree_linalg_ext.scatter dimension_map = [0] unique_indices({unique}) ins(%a, %i : {updates}, {indices})
    outs(%e : {X}) {{
  ^bb0(%new: f32, %old: f32):
    iree_linalg_ext.yield %new : f32
}} -> {X}"""
    return function_text({"%a": updates, "%i": indices}, steps, {"%s": X})


def gather() -> str:
    indices, result = "tensor<16x1xi32>", "tensor<16x96xf32>"
    steps = f"""%e = tensor.empty() : {result}
%g = iree_linalg_ext.gather dimension_map = [0] ins(%a, %i : {X}, {indices}) outs(%e : {result}) -> {result}"""
    return function_text({"%a": X, "%i": indices}, steps, {"%g": result})


def fft(stage: int = 3) -> str:
    x, half = "tensor<24x64xf32>", f"tensor<{1 << (stage - 1)}xf32>"
    steps = f"""%stage = arith.constant {stage} : index
%f:2 = iree_linalg_ext.fft ins(%stage, %c, %d : index, {half}, {half}) outs(%a, %b : {x}, {x}) : {x}, {x}"""
    return function_text({"%a": x, "%b": x, "%c": half, "%d": half}, steps, {"%f#0": x, "%f#1": x})


def winograd_output() -> str:
    x, out = "tensor<8x8x1x2x3x40xf32>", "tensor<1x12x18x40xf32>"
    steps = f"""%e = tensor.empty() : {out}
%w = iree_linalg_ext.winograd.output_transform output_tile_size(6) kernel_size(3) image_dimensions([1, 2])
    ins(%a : {x}) outs(%e : {out}) -> {out}"""
    return function_text({"%a": x}, steps, {"%w": out})


def winograd_filter() -> str:
    x, out = "tensor<3x3x16x24xf32>", "tensor<8x8x16x24xf32>"
    steps = f"""%e = tensor.empty() : {out}
%w = iree_linalg_ext.winograd.filter_transform output_tile_size(6) kernel_size(3) kernel_dimensions([0, 1])
    ins(%a : {x}) outs(%e : {out}) -> {out}"""
    return function_text({"%a": x}, steps, {"%w": out})


def relayout(op: str = "map_store") -> str:
    out = "tensor<96x40xf32>"
    last = "%mask = arith.constant true" if op == "map_store" else "%mask = arith.constant 0.0 : f32"
    kind = "i1" if op == "map_store" else "f32"
    steps = f"""%e = tensor.empty() : {out}
%m = iree_linalg_ext.{op} %a into %e {{
  ^bb0(%i: index, %j: index):
    {last}
    iree_linalg_ext.yield %j, %i, %mask : index, index, {kind}
}} : {X} into {out} -> {out}"""
    return function_text({"%a": X}, steps, {"%m": out})


@pytest.mark.parametrize(
    ("text", "kind", "loops"),
    [
        (scan(1), "scan", [("p", 40), ("r", 96)]),
        (scan(0), "scan", [("r", 40), ("p", 96)]),
        (sort(), "sort", [("r", 40), ("p", 96)]),
        (arg_compare(), "arg_compare", [("p", 40), ("r", 96)]),
        (topk(), "topk", [("p", 40), ("r", 96)]),
        (topk_v2(), "topk_v2", [("p", 40), ("r", 96)]),
        (scatter("true"), "scatter", [("p1", 16), ("p", 96)]),
        (scatter("false"), "scatter", [("r", 16), ("p", 96)]),
        (gather(), "gather", [("p1", 16), ("p", 96)]),
        (fft(), "fft", [("p1", 24), ("p", 64)]),
        (winograd_output(), "winograd_output_transform", [("p3", 1), ("p2", 2), ("p1", 3), ("p", 40)]),
        (winograd_filter(), "winograd_filter_transform", [("p1", 16), ("p", 24)]),
        (relayout("map_store"), "map_store", [("p1", 40), ("p", 96)]),
        (relayout("map_load"), "map_load", [("p1", 96), ("p", 40)]),
    ],
)
def test_the_loops_are_those_that_iree_tiles_and_a_space_is_derived_from_them(
    text: str, kind: str, loops: list[tuple[str, int]]
) -> None:
    view = read(text)
    assert view.workload.op_kind == kind
    assert [(loop.role, loop.size) for loop in view.workload.loops] == loops
    assert all(loop.kind == ("reduction" if loop.role == "r" else "parallel") for loop in view.workload.loops)
    found = space(view)
    assert list(found.parts) == ["derived/extension_tiles"]
    assert found.size > 5
    assert len(found.priors()) >= 3


def space(view: DispatchView) -> Space:
    return build_space(view, [], TARGET, view)


def configs(view: DispatchView, **knobs: int) -> tuple[str, list[str]]:
    """Of the root op, and of those beside it."""
    [part] = space(view).parts.values()
    layout = part.template.layout(view, {**{each.name: 0 for each in part.knobs}, **knobs}, 16)
    return layout.root_config, list(layout.companion_configs.values())


def test_a_scanned_row_stays_whole_and_the_fill_of_the_carry_is_cut_with_the_rows() -> None:
    root, companions = configs(read(scan()), tile_p=8, dist_p=2)
    assert root == "#iree_cpu.lowering_config<distribution = [16, 0], vector_common_parallel = [8, 0]>"
    assert companions == ["#iree_cpu.lowering_config<vector_common_parallel = [8]>"]


def test_rows_that_may_meet_in_a_scatter_are_not_shared_out() -> None:
    root, _ = configs(read(scatter("false")), tile_p=32, dist_p=1)
    assert root == "#iree_cpu.lowering_config<distribution = [0, 32], vector_common_parallel = [0, 32]>"


def test_a_stage_of_a_fourier_transform_is_cut_into_whole_groups() -> None:
    root, _ = configs(read(fft(3)), tile_p1=2, tile_p=4, dist_p1=2, dist_p=1)
    assert root == "#iree_cpu.lowering_config<distribution = [4, 32], vector_common_parallel = [2, 32]>"
    assert {candidate.knobs["tile_p"] for candidate in space(read(fft(6)))} == {1}


def test_a_gather_moves_one_row_at_a_time_because_several_come_out_wrong() -> None:
    [part] = space(read(gather())).parts.values()
    assert [each.name for each in part.knobs] == ["dist_p", "tile_p", "dist_p1"]
    root, _ = configs(read(gather()), tile_p=32, dist_p=0, dist_p1=4)
    assert root == "#iree_cpu.lowering_config<distribution = [4, 0], vector_common_parallel = [1, 32]>"


def test_the_matrices_of_a_winograd_transform_are_taken_one_by_one() -> None:
    root, _ = configs(read(winograd_output()), dist_p=8, dist_p1=2, dist_p2=1)
    assert root == ("#iree_cpu.lowering_config<distribution = [0, 1, 2, 8], vector_common_parallel = [1, 1, 1, 1]>")


@pytest.mark.parametrize("text", [scan(), arg_compare(), topk(), scatter()])
def test_an_entry_fires_on_its_own_op_and_on_no_other(text: str) -> None:
    view = read(text)
    found = space(view)
    library = library_text([found.entry("own", found.priors()[0])])
    assert fired(library, text) == ["own"]
    squared = generic("%y", {"%s#0": X}, ("%e", X), ["(i, j) -> (i, j)"] * 2, "pp", SQUARE)
    others = [scan(0), scan(inclusive="false"), scan(then=squared), scatter("false"), topk(6), sort()]
    assert [other for other in others if fired(library, other)] == []


def sort_from(start: str, *, predicate: str = "ogt") -> str:
    """A sort that compares with a constant, which IREE keeps outside of the comparison."""
    body = f"""%c = arith.constant {start} : f32
%s = iree_linalg_ext.sort dimension(0) outs(%a : {X}) {{
  ^bb0(%l: f32, %r: f32):
    %sum = arith.addf %l, %c : f32
    %more = arith.cmpf {predicate}, %sum, %r : f32
    iree_linalg_ext.yield %more : i1
}} -> {X}"""
    return function_text({"%a": X}, body, {"%s": X})


def test_an_entry_of_an_op_that_compares_with_a_constant_fires_on_that_comparison_only() -> None:
    found = space(read(sort_from("0.5")))
    library = library_text([found.entry("own", found.priors()[0])])
    assert fired(library, sort_from("0.5")) == ["own"]
    others = [sort_from("0.25"), sort_from("0.5", predicate="olt"), sort()]
    assert [other for other in others if fired(library, other)] == []


def test_an_op_behind_a_scan_is_cut_with_it() -> None:
    squared = generic("%y", {"%s#0": X}, ("%e", X), ["(i, j) -> (i, j)"] * 2, "pp", SQUARE)
    view = read(scan(then=squared))
    assert (view.workload.op_kind, view.workload.fused) == ("scan", ("fill", "elementwise(mulf)"))
    found = space(view)
    assert fired(library_text([found.entry("own", found.priors()[0])]), scan(then=squared)) == ["own"]


def test_a_relayout_beside_an_op_that_decides_the_loops_can_not_be_laid_out() -> None:
    out = "tensor<96x40xf32>"
    body = f"""{generic("%y", {"%a": X}, ("%a", X), ["(i, j) -> (i, j)"] * 2, "pp", SQUARE)}
%e = tensor.empty() : {out}
%m = iree_linalg_ext.map_store %y into %e {{
  ^bb0(%i: index, %j: index):
    %mask = arith.constant true
    iree_linalg_ext.yield %j, %i, %mask : index, index, i1
}} : {X} into {out} -> {out}"""
    with pytest.raises(NotReadable, match=r"map_store stands beside an op that decides the loops"):
        read(function_text({"%a": X}, body, {"%m": out}))


def test_a_scan_with_dynamic_dims_says_so() -> None:
    kind, carry = "tensor<?x96xf32>", "tensor<?xf32>"
    text = f"""func.func @d(%a: {kind}, %c: {carry}) {{
%s:2 = iree_linalg_ext.scan dimension(1) inclusive(true) ins(%a : {kind}) outs(%a, %c : {kind}, {carry}) {{
  ^bb0(%l: f32, %acc: f32):
    %sum = arith.addf %l, %acc : f32
    iree_linalg_ext.yield %sum : f32
}} -> {kind}, {carry}
return
}}"""
    with pytest.raises(NotReadable, match="it has dynamic dims"):
        read(text)


# ----------------------------------------------------------------------------- copies between buffers


def copy(offset: int = 195, width: int = 90) -> str:
    """What IREE makes of a pad, a concatenation, or the insertion of a slice."""
    binding = "hal.interface.binding.subspan layout(<bindings = [#hal.pipeline.binding<storage_buffer>]>) binding"
    x, out = f"memref<60x{width}xf32>", "memref<64x96xf32>"
    part = f"memref<60x{width}xf32, strided<[96, 1], offset: {offset}>>"
    return f"""func.func @d() {{
%zero = arith.constant 0 : index
%a = {binding}(0) alignment(64) offset(%zero) : {x}
%b = {binding}(0) alignment(64) offset(%zero) : {out}
%part = memref.subview %b[{offset // 96}, {offset % 96}] [60, {width}] [1, 1] : {out} to {part}
linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>],
                iterator_types = ["parallel", "parallel"]}} ins(%a : {x}) outs(%part : {part}) {{
  ^bb0(%from: f32, %to: f32):
    linalg.yield %from : f32
}}
return
}}"""


def test_a_copy_into_a_slice_has_loops_bytes_and_a_space() -> None:
    view = read(copy())
    assert (view.workload.op_kind, view.workload.dims) == ("copy", {"p1": 60, "p": 90})
    assert [(each.loops, each.is_output) for each in view.workload.operands] == [((0, 1), False), ((0, 1), True)]
    assert view.workload.bytes == 2 * 60 * 90 * 4
    root, _ = configs(view, tile_p1=4, tile_p=64, dist_p1=2, dist_p=0)
    assert root == "#iree_cpu.lowering_config<distribution = [8, 0], vector_common_parallel = [4, 64]>"
    assert list(space(view).parts) == ["derived/copy_tiles"]


def test_no_file_is_asked_about_a_copy_because_only_one_pipeline_takes_buffers() -> None:
    class AnyFile:
        def applies_to(self, view: DispatchView) -> bool:
            raise AssertionError("asked")

    assert list(build_space(read(copy()), [AnyFile()], TARGET).parts) == ["derived/copy_tiles"]  # type: ignore[list-item]


def test_an_entry_fires_on_a_copy_to_the_same_place_only() -> None:
    view = read(copy())
    found = space(view)
    library = library_text([found.entry("own", found.priors()[0])])
    assert fired(library, copy()) == ["own"]
    assert fired(library, copy(offset=194)) == []
    assert fired(library, copy(width=80)) == []
    assert read(copy(194)).workload.key != view.workload.key


def behind_others(text: str) -> str:
    """The copy with both of its buffers at places of their bindings that aren't known, and aligned as those are."""
    x, out = "memref<60x90xf32>", "memref<64x96xf32>"
    far_x, far = "memref<60x90xf32, strided<[90, 1], offset: ?>>", "memref<64x96xf32, strided<[96, 1], offset: ?>>"
    part = "memref<60x90xf32, strided<[96, 1], offset: ?>>"
    text = text.replace("memref<60x90xf32, strided<[96, 1], offset: 195>>", part)
    return text.replace(x, far_x).replace(out, far).replace("alignment(64)", "alignment(16)")


def test_an_entry_fires_on_a_copy_wherever_its_buffers_lie() -> None:
    near, far = copy(), behind_others(copy())
    for seen in (near, far):
        found = space(read(seen))
        library = library_text([found.entry("own", found.priors()[0])])
        assert fired(library, near) == ["own"]
        assert fired(library, far) == ["own"]
        assert fired(library, far.replace("[2, 3]", "[2, 4]")) == []

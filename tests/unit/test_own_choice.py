"""IREE's own choice as a template: taken over to the letter, with knobs around it where nothing else has its tiles."""

from __future__ import annotations

import numpy as np
import pytest
from spec_time_functions import elementwise, filled, function_text, generic, matmul, read

from mlsearch.candidate import Candidate, KnobValue
from mlsearch.ir.dispatch import DispatchView
from mlsearch.space.derived import OWN_CHOICE
from mlsearch.space.own_choice import OwnChoice, has_tiles, own_choice
from mlsearch.space.space import Space, build_space, dims_and_facts
from mlsearch.space.template import Template, built_in_folder
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import resolve

SM_90 = resolve("cuda:sm_90", 1)
MMA = "mma_kind = #iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>"
WIDE = "reduction = [0, 0, 32], thread = [1, 128, 0], workgroup = [16, 256, 1]"
"""More threads than rows: 16 x 2 tiles for 64 x 2 threads."""


def configured(text: str, config: str, threads: str) -> DispatchView:
    """A dispatch as IREE leaves it behind: an op has a lowering config, its function a translation info."""
    translation = (
        f"#iree_codegen.translation_info<pipeline = #iree_gpu.pipeline<TileAndFuse> workgroup_size = [{threads}]"
        " subgroup_size = 32>"
    )
    given = f"{{lowering_config = #iree_gpu.lowering_config<{{{config}}}>}}"
    marked = text.replace("linalg.matmul", f"linalg.matmul {given}").replace(") {\n^bb0", f") attrs = {given} {{\n^bb0")
    return read(marked.replace("() {", f"() attributes {{translation_info = {translation}}} {{"))


def space_of(text: str, config: str, threads: str, *, templates: tuple[Template, ...] = ()) -> Space:
    return build_space(read(text), templates, SM_90, configured(text, config, threads))


def own(space: Space, **knobs: KnobValue) -> Candidate:
    template = space.parts[OWN_CHOICE].template
    return template.candidate({knob.name: knob.default for knob in template.knobs} | knobs)


def built_in(name: str) -> Template:
    return Template.load(built_in_folder() / "cuda" / f"{name}.mlir", built_in_folder())


def test_the_choice_itself_is_taken_over_to_the_letter() -> None:
    space = space_of(matmul(16, 4096, 64), WIDE, "64, 2, 1")
    entry = space.entry("x", own(space)).sequences
    assert f"#iree_gpu.lowering_config<{{{WIDE}}}>" in entry
    assert "workgroup_size = [64, 2, 1]" in entry


def test_it_is_valid_and_tried_first_whatever_holds_for_others() -> None:
    # 8 rows for 32 threads, and a step of 4 along 6.
    space = space_of(
        matmul(8, 128, 6), "reduction = [0, 0, 4], thread = [4, 128, 0], workgroup = [2, 128, 1]", "8, 1, 1"
    )
    assert space.priors() == [own(space)]
    assert not space.violations(own(space))
    assert space.violations(own(space, tile_n=64)) == (
        "a thread's 4 of m <= 2, or all is IREE's own",
        "a thread's 128 of n <= 64, or all is IREE's own",
    )


def test_others_have_as_many_threads_as_tiles_in_whole_warps() -> None:
    space = space_of(matmul(16, 4096, 64), WIDE, "64, 2, 1")
    entry = space.entry("x", own(space, tile_n=128, thread_n=32, step_k=16)).sequences
    assert "reduction = [0, 0, 16], thread = [1, 32, 0], workgroup = [16, 128, 1]" in entry
    assert "workgroup_size = [64, 1, 1]" in entry
    odd = space_of(matmul(5, 5, 64), "reduction = [0, 0, 4], thread = [1, 1, 0], workgroup = [5, 5, 1]", "5, 5, 1")
    assert "workgroup_size = [5, 5, 1]" in odd.entry("x", own(odd)).sequences
    assert "workgroup_size = [32, 1, 1]" in odd.entry("x", own(odd, tile_n=4)).sequences
    assert dict(odd.tiling(own(odd)).options)["threads"] == 25
    assert dict(odd.tiling(own(odd, tile_n=4)).options)["threads"] == 32


def test_no_fewer_threads_have_a_tile_than_in_irees_own() -> None:
    space = space_of(matmul(16, 4096, 64), WIDE, "64, 2, 1")
    message = "{} threads have a tile, at least 32, or all is IREE's own"
    assert space.violations(own(space, tile_m=8)) == (message.format(16),)
    assert not space.violations(own(space, tile_m=8, thread_n=64))


def test_a_search_can_walk_on_from_it() -> None:
    space = space_of(matmul(16, 4096, 64), WIDE, "64, 2, 1")
    near = space.neighbours(own(space), np.random.default_rng(0), 8)
    assert len(near) == 8
    assert all(not space.violations(each) for each in near)


def test_it_has_no_knobs_where_another_template_has_its_tiles() -> None:
    simt = built_in("contraction_simt")
    held = space_of(
        matmul(128, 128, 64),
        "reduction = [0, 0, 32], thread = [1, 16, 0], workgroup = [32, 128, 1]",
        "32, 8, 1",
        templates=(simt,),
    )
    assert [len(part.knobs) for part in held.parts.values()] == [8, 0]
    wide = space_of(matmul(16, 4096, 64), WIDE, "64, 2, 1", templates=(simt,))
    assert [len(part.knobs) for part in wide.parts.values()] == [8, 5]


@pytest.mark.parametrize(("threads", "expected"), [("32, 8, 1", True), ("32, 4, 1", False)])
def test_tiles_are_the_same_only_on_as_many_threads(threads: str, expected: bool) -> None:
    text = matmul(128, 128, 64)
    late = configured(text, "reduction = [0, 0, 32], thread = [1, 16, 0], workgroup = [32, 128, 1]", threads)
    view = read(text)
    template = own_choice(view, late, dims_and_facts(view, SM_90), [], "own")
    assert isinstance(template, OwnChoice)
    part = TemplateSpace(built_in("contraction_simt"), dims_and_facts(view, SM_90))
    assert has_tiles(part, template.choice, view) == expected


def test_padding_follows_the_tiles_of_matrix_instructions() -> None:
    config = f"{MMA}, padding = [32, 32, 16], promote_operands = [0, 1], reduction = [0, 0, 1], subgroup = [1, 2, 0]"
    space = space_of(matmul(17, 33, 65, types="f16"), f"{config}, workgroup = [32, 32, 0]", "128, 1, 1")
    entry = space.entry("x", own(space, subgroup_n=1, warps_m=1, step_k=2)).sequences
    for text in ("padding = [16, 16, 32]", "reduction = [0, 0, 2]", "subgroup = [1, 1, 0]", "workgroup = [16, 16, 0]"):
        assert text in entry
    assert "workgroup_size = [64, 1, 1]" in entry
    assert "padding = [32, 32, 16]" in space.entry("x", own(space)).sequences


def test_without_padding_tiles_of_matrix_instructions_divide_their_loops() -> None:
    config = f"{MMA}, promote_operands = [0, 1], reduction = [0, 0, 1], subgroup = [1, 2, 0], workgroup = [32, 32, 0]"
    space = space_of(matmul(96, 96, 64, types="f16"), config, "128, 1, 1")
    assert not space.violations(own(space))
    [message] = space.violations(own(space, warps_m=4))
    assert message == "tiles of 64 divide m, or all is IREE's own"


def test_tiles_of_an_implicit_gemm_grow_with_their_warps() -> None:
    # As IREE has it for 16 x 16 pixels, 3 channels and 32 filters of 3 x 3: all reductions are one loop.
    config = (
        f"{MMA}, padding = [8, 16, 32, 32], padding_conv = [8, 16, 32, 0, 0, 0], promote_operands = [0, 1],"
        " reduction = [0, 0, 0, 2], subgroup = [2, 1, 2, 0], workgroup = [8, 16, 32, 0]"
    )
    image, filters, out = "tensor<18x18x3xf16>", "tensor<3x3x3x32xf16>", "tensor<16x16x32xf32>"
    loops = "(y, x, n, i, j, c) -> "
    multiply = "%a = arith.extf %x0 : f16 to f32\n%b = arith.extf %x1 : f16 to f32\n%p = arith.mulf %a, %b : f32"
    convolution = generic(
        "%r",
        {"%image": image, "%filters": filters},
        ("%init", out),
        [f"{loops}(y + i, x + j, c)", f"{loops}(i, j, c, n)", f"{loops}(y, x, n)"],
        "ppprrr",
        f"{multiply}\n%s = arith.addf %acc, %p : f32\nlinalg.yield %s : f32",
    )
    text = function_text({"%image": image, "%filters": filters}, f"{filled(out)}\n{convolution}", {"%r": out})
    space = space_of(text, config, "256, 1, 1")
    roles = [loop.role for loop in space.view.workload.loops]
    entry = space.entry("x", own(space, step=4, **{f"times_{roles[0]}": 2})).sequences
    for changed in ("[16, 16, 32, 64]", "[16, 16, 32, 0, 0, 0]", "[0, 0, 0, 4]", "[16, 16, 32, 0]", "= [512, 1, 1]"):
        assert changed in entry
    assert space.violations(own(space, **{f"times_{roles[1]}": 4})) == (
        "1024 threads <= 512",
        "tiles of 64 fit o (16), or all is IREE's own",
    )


def test_what_every_op_gets_is_part_of_the_template_and_nothing_else_of_the_dispatch() -> None:
    text = matmul(16, 4096, 64)
    view = read(text)

    def template(late: DispatchView) -> Template:
        found = own_choice(view, late, dims_and_facts(view, SM_90), [], "own")
        assert found is not None
        return found

    late = configured(text, WIDE, "64, 2, 1")
    plain = template(late)
    filled = late.function.replace(
        "linalg.fill ins", "linalg.fill {lowering_config = #iree_gpu.lowering_config<{}>} ins"
    )
    moved = configured(matmul(16, 4096, 64, name="other", offset=64), WIDE, "64, 2, 1")
    assert plain.text != template(read(filled)).text
    assert plain.text == template(moved).text
    assert "mlsearch.op1 = {lowering_config" in plain.text


def test_a_pipeline_without_tiles_has_no_knobs() -> None:
    space = space_of(elementwise("1x1"), "thread = [0, 0]", "1, 1, 1")
    assert [(len(part), part.knobs) for part in space.parts.values()] == [(1, ())]


def test_there_is_none_for_a_dispatch_that_is_not_configured_or_became_another() -> None:
    view = read(matmul(16, 4096, 64))
    facts = dims_and_facts(view, SM_90)
    assert own_choice(view, None, facts, [], "own") is None
    assert own_choice(view, view, facts, [], "own") is None
    assert own_choice(view, configured(matmul(16, 2048, 64), WIDE, "64, 2, 1"), facts, [], "own") is None


def test_it_is_for_gpus() -> None:
    text = matmul(16, 4096, 64)
    space = build_space(read(text), [], resolve("llvm-cpu", 1), configured(text, WIDE, "64, 2, 1"))
    assert OWN_CHOICE not in space.parts

"""Layouts for a GPU: who shares a tile, how threads are counted, which options reach the pipeline."""

from __future__ import annotations

from spec_time_functions import elementwise, matmul, read

from mlsearch.candidate import KnobValue
from mlsearch.ir.dispatch import DispatchView
from mlsearch.space.layout import Layout
from mlsearch.space.template import Template, built_in_folder


def layout(name: str, view: DispatchView, **knobs: object) -> Layout:
    template = Template.load(built_in_folder() / "cuda" / f"{name}.mlir", built_in_folder())
    defaults: dict[str, KnobValue] = {knob.name: knob.default for knob in template.knobs}
    return template.layout(view, defaults | template.normalized(knobs), 16)


def test_a_tile_beyond_its_loop_goes_to_as_many_threads_as_any_other() -> None:
    laid_out = layout(
        "contraction_simt", read(matmul(100, 100, 64)), thread_n=16, threads_n=8, threads_m=32, thread_m=1
    )
    assert laid_out.root_config == (
        "#iree_gpu.lowering_config<{workgroup = [32, 128, 0], reduction = [0, 0, 8], thread = [1, 16, 0]}>"
    )
    assert laid_out.launch == " workgroup_size = [256, 1, 1] subgroup_size = 32"
    # What is told of it ends with the loop.
    assert laid_out.tiling.by_level["workgroup"] == (32, 100, 0)


def test_threads_are_counted_along_the_roles_that_a_choice_names() -> None:
    sizes = {"thread_m": 1, "thread_n": 4, "threads_m": 8, "threads_n": 16}
    in_a_row = layout("contraction_simt", read(matmul(64, 64, 64)), **sizes)
    by_rows = layout("contraction_simt", read(matmul(64, 64, 64)), **sizes, counted=["m", "n"])
    assert in_a_row.launch == " workgroup_size = [128, 1, 1] subgroup_size = 32"
    assert by_rows.launch == " workgroup_size = [8, 16, 1] subgroup_size = 32"
    assert in_a_row.root_config == by_rows.root_config


def test_the_innermost_loop_may_come_first() -> None:
    view = read(elementwise("64x64"))
    laid_out = layout("elementwise_tile_and_fuse", view, vector=4, threads=8, rows=32, counted=["p", "p1"])
    assert laid_out.launch == " workgroup_size = [8, 32, 1] subgroup_size = 32"


def test_options_of_the_pipeline_are_an_attribute_with_each_knob_in_it() -> None:
    laid_out = layout(
        "contraction_simt", read(matmul(64, 64, 64)), promote=[0, 1], no_reduce_shared_memory_bank_conflicts=True
    )
    assert laid_out.options == (
        "{gpu_pipeline_options = #iree_gpu.pipeline_options<no_reduce_shared_memory_bank_conflicts = true>}"
    )

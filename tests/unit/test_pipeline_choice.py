"""A template may leave IREE's lowering pipeline open: named ones, or passes written out."""

from __future__ import annotations

from pathlib import Path

from small_templates import KNOBS, load, template_text
from spec_time_functions import matmul, read

EXPERT = "#iree_cpu.pipeline<DoubleTilingExpert>"
WRITTEN = '#iree_codegen.pass_pipeline<"iree-llvmcpu-tile{tiling-level=vector_reduction},canonicalize,cse">'
CHOICE = f'options = {{pipeline = #iree_codegen.smt.one_of_knob<"lowering", [{EXPERT}, {WRITTEN}]>, '


def test_the_chosen_pipeline_is_the_one_that_lowers(tmp_path: Path) -> None:
    text = template_text(
        knobs=KNOBS.replace("options = {", CHOICE), defaults=f"tile = 4, count = 0, peel = true, lowering = {EXPERT}"
    )
    template = load(tmp_path, text)
    view = read(matmul(8, 8, 8))
    plain = {"tile": 4, "count": 0, "peel": "true", "lowering": EXPERT}
    expert = template.entry("mm", view, None, plain, 16).sequences
    assert f"pipeline = {EXPERT}, {{enable_loop_peeling}}" in expert
    written = template.entry("mm", view, None, {**plain, "lowering": WRITTEN}, 16).sequences
    assert f"pipeline = {WRITTEN}, {{enable_loop_peeling}}" in written
    assert EXPERT not in written


def test_without_a_choice_it_is_the_templates_own(tmp_path: Path) -> None:
    template = load(tmp_path, template_text())
    knobs = {"tile": 4, "count": 0, "peel": "false"}
    assert f"pipeline = {EXPERT}>" in template.entry("mm", read(matmul(8, 8, 8)), None, knobs, 16).sequences

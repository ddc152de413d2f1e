"""Attention as one op: its loops, its key, its matcher, and how tiles are laid out on it and on its two matmuls."""

from __future__ import annotations

import re

import pytest
from spec_time_functions import attention, matmul, read
from test_transform_library import entry, fired

from mlsearch.candidate import KnobValue
from mlsearch.ir.library import library_text
from mlsearch.space.layout import Layout
from mlsearch.space.space import build_space
from mlsearch.space.template import Template, built_in_folder, templates_for
from mlsearch.target import resolve

SIZES = {"b": 4, "m": 32, "n": 24, "k": 16, "s": 48}
CPU = built_in_folder() / "cpu" / "attention_hybrid.mlir"
CUDA = built_in_folder() / "cuda" / "attention_vector_distribute.mlir"


def test_each_loop_has_the_role_that_iree_gives_it() -> None:
    workload = read(attention()).workload
    assert workload.op_kind == "attention"
    assert [(loop.role, loop.size, loop.kind[0]) for loop in workload.loops] == [
        ("b", 4, "p"),
        ("m", 32, "p"),
        ("n", 24, "p"),
        ("k", 16, "r"),
        ("s", 48, "r"),
    ]
    assert workload.fused == ("fill", "fill", "fill", "elementwise(divf,mulf)")
    assert workload.label == "attention_4x32x24x16x48_f32"


@pytest.mark.parametrize("domain", ["b, m, k, s, n", "s, n, k, m, b"])
def test_the_order_of_the_loops_does_not_matter_to_their_roles(domain: str) -> None:
    workload = read(attention(domain=domain)).workload
    assert [loop.role for loop in workload.loops] == domain.split(", ")
    assert workload.dims == SIZES


def test_of_two_batch_loops_the_outer_one_has_a_number() -> None:
    assert read(attention(domain="a, b, m, n, k, s")).workload.dims == {"b1": 2, **SIZES}


def test_flops_are_those_of_two_matmuls_a_softmax_and_what_comes_after() -> None:
    scores, division = 4 * 32 * 48, 2 * 4 * 32 * 24
    assert read(attention()).workload.flops == scores * (2 * 16 + 2 * 24 + 5) + division


def test_the_two_sums_follow_one_another() -> None:
    assert read(attention()).workload.reduction_length == 16 + 48
    assert read(matmul(8, 8, 48)).workload.reduction_length == 48


def test_the_other_ops_move_with_the_queries() -> None:
    view = read(attention())
    assert [(op.name.split(".")[1], op.root_loops) for op in view.compute_ops] == [
        ("fill", (0, 1, 2)),
        ("fill", (0, 1)),
        ("fill", (0, 1)),
        ("online_attention", (0, 1, 2, 3, 4)),
        ("generic", (0, 1, 2)),
    ]
    assert view.compute_ops[view.root].name == "iree_linalg_ext.online_attention"


LOOK_ALIKES = {
    "plain": attention(),
    "more queries": attention(queries=64),
    "more keys": attention(keys=64),
    "f16": attention(types="f16"),
    "bf16": attention(types="bf16"),
    "masked": attention(mask=True),
    "another scale": attention(scale="0.25"),
    "capped scores": attention(score="%y = math.tanh %x : f32"),
    # All sizes agree, so that nothing but the maps tells which loop is which.
    "square": attention(16, 16, 16, 16, 16),
    "square, other loops": attention(16, 16, 16, 16, 16, domain="b, m, k, n, s"),
}


def test_look_alikes_are_different_workloads() -> None:
    assert len({read(text).workload.key for text in LOOK_ALIKES.values()}) == len(LOOK_ALIKES)


def test_an_entry_fires_on_its_own_attention_only() -> None:
    library = library_text([entry(name, read(text)) for name, text in LOOK_ALIKES.items()])
    assert {name: fired(library, text) for name, text in LOOK_ALIKES.items()} == {name: [name] for name in LOOK_ALIKES}


CAP = "%c = arith.divf %x, %cap : f32\n%t = math.tanh %c : f32\n%y = arith.mulf %t, %cap : f32"


def capped(**changes: str) -> str:
    """Scores capped by a constant that stands outside of the op's body, which IREE can't compare."""
    constant = "%cap = arith.constant 30.0 : f32"
    return attention(8, 8, 8, 8, 8, score=CAP, **changes).replace("%scale =", f"{constant}\n%scale =")


def test_with_a_constant_in_its_body_an_attention_is_told_by_types_and_maps() -> None:
    library = library_text([entry("capped", read(capped()))])
    assert fired(library, capped()) == ["capped"]
    for other in (
        capped(domain="b, m, k, n, s"),
        capped(types="f16"),
        capped(scale="0.25"),
        attention(8, 8, 8, 8, 16, score=CAP).replace("%scale =", "%cap = arith.constant 30.0 : f32\n%scale ="),
    ):
        assert fired(library, other) == []


def layout(path: str, text: str, **knobs: KnobValue) -> Layout:
    template = Template.load(built_in_folder() / path, built_in_folder())
    defaults = {knob.name: knob.default for knob in template.knobs}
    return template.layout(read(text), {**defaults, **knobs}, 16)


CPU_KNOBS: dict[str, KnobValue] = {
    "tile_m": 8, "tile_s": 16, "dist_m": 2, "score_m": 4, "score_s": 8, "score_k": 2, "value_m": 2, "value_n": 8,
    "value_s": 1,
}  # fmt: skip


def test_on_a_cpu_the_op_and_both_matmuls_get_their_tiles() -> None:
    laid_out = layout("cpu/attention_hybrid.mlir", attention(), **CPU_KNOBS)
    assert laid_out.root_config == (
        "#iree_cpu.lowering_config<distribution = [1, 16, 0, 0, 0], vector_common_parallel = [1, 8, 0, 0, 0],"
        " vector_reduction = [0, 0, 0, 0, 16]>"
    )
    assert laid_out.decomposition == (
        "{qk_attrs = {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 4, 0, 8],"
        " vector_reduction = [0, 0, 2, 0]>},"
        " pv_attrs = {lowering_config = #iree_cpu.lowering_config<vector_common_parallel = [1, 2, 8, 0],"
        " vector_reduction = [0, 0, 0, 1]>}}"
    )
    assert {("scores.m", 4), ("scores.s", 8), ("scores.k", 2), ("values.n", 8)} <= set(laid_out.tiling.options)


def test_tiles_of_the_matmuls_follow_the_loops_wherever_they_stand() -> None:
    laid_out = layout("cpu/attention_hybrid.mlir", attention(domain="a, b, m, k, s, n"), **CPU_KNOBS)
    assert re.findall(r"\[[\d, ]+\]", laid_out.decomposition) == [
        "[1, 1, 4, 0, 8]",
        "[0, 0, 0, 2, 0]",
        "[1, 1, 2, 0, 8]",
        "[0, 0, 0, 1, 0]",
    ]


def test_on_a_gpu_warps_are_a_basis_of_each_matmuls_own_loops() -> None:
    text = attention(queries=128, keys=64, columns=64, types="f16", domain="b, m, k, s, n")
    laid_out = layout("cuda/attention_vector_distribute.mlir", text, warps_m=4, warps_n=2, step_s=2)
    assert "reduction = [0, 0, 0, 32, 0], workgroup = [1, 64, 0, 0, 64]" in laid_out.root_config
    assert laid_out.launch == " workgroup_size = [256, 1, 1] subgroup_size = 32"
    assert re.findall(r"subgroup_basis = (\S+ \S+ \S+ \S+ \S+ \S+ \S+ \S+ \S+)}>", laid_out.decomposition) == [
        "[[1, 4, 1, 1, 2], [0, 1, 2, 3]]",
        "[[1, 4, 1, 1, 2], [0, 1, 3, 4]]",
    ]


@pytest.mark.parametrize("domain", ["b, m, n, k, s", "b, m, s, k, n"])
def test_neighbouring_lanes_have_neighbouring_keys_in_whatever_order_the_loops_are(domain: str) -> None:
    text = attention(queries=128, keys=128, columns=64, domain=domain)
    laid_out = layout("cuda/attention_partial_rows.mlir", text, queries=2, vector_k=2)
    keys = domain.split(", ").index("s")
    assert laid_out.tiling.by_level["step"][keys] == 128
    assert laid_out.launch == " workgroup_size = [256, 1, 1] subgroup_size = 32"
    for matmul_config in re.findall(r"lowering_config<(.*?)>}", laid_out.decomposition):
        counts, places = re.findall(r"lane_basis = \[(\[.*?\]), (\[.*?\])\]", matmul_config)[0]
        assert counts == "[1, 1, 2, 16]"
        assert places == ("[0, 1, 2, 3]" if domain.endswith("s") else "[0, 1, 3, 2]")


@pytest.mark.parametrize(
    ("architecture", "types", "default"),
    [
        ("sm_80", "f16", {"mma": "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>"}),
        ("sm_90", "bf16", {"mma": "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_BF16>"}),
    ],
)
def test_irees_own_choice_for_a_gpu_is_among_the_first_suggestions(
    architecture: str, types: str, default: dict[str, str]
) -> None:
    target = resolve(f"cuda:{architecture}", 1)
    view = read(attention(12, 128, 128, 64, 64, types=types))
    space = build_space(view, templates_for(target, None), target)
    wanted = {"subgroup_m": 1, "warps_m": 4, "subgroup_n": 4, "warps_n": 1, "step_s": 4, **default}
    assert any(candidate.knobs | wanted == candidate.knobs for candidate in space.priors())


@pytest.mark.parametrize("shape", [(12, 128, 128, 64, 64), (32, 512, 512, 128, 128), (8, 77, 77, 64, 64)])
def test_a_cpu_with_wide_vectors_has_a_suggestion_for_usual_shapes(shape: tuple[int, int, int, int, int]) -> None:
    target = resolve("llvm-cpu", 1)
    view = read(attention(*shape))
    space = build_space(view, templates_for(target, None), target, view)
    assert list(space.parts) == ["cpu/attention_hybrid"]
    assert space.priors()

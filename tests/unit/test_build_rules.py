"""What keeps candidates out that IREE refuses to build: docs/templates.md, "When a build fails"."""

from __future__ import annotations

import pytest
from spec_time_functions import filled, function_text, generic, matmul, matmul_then, read, softmax

from mlsearch.candidate import KnobValue
from mlsearch.space.space import build_space, dims_and_facts
from mlsearch.space.template import Template, built_in_folder, load_templates
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import Hardware, Target, resolve

TARGET = resolve("llvm-cpu", 1)
AVX512 = Target("llvm-cpu", Hardware("AVX-512", 64, 32, 48 * 1024, 1 << 20, 1 << 25, 8), (), 1)
NEON = Target("llvm-cpu", Hardware("NEON", 16, 32, 64 * 1024, 1 << 20, 1 << 25, 8), (), 1)
NAMES = ("tile_m", "tile_n", "cache_m", "cache_n", "dist_m", "dist_n")

MEASURED = [
    # m, n, k, the knobs of NAMES, peel, bytes that IREE 3.13 puts on the stack
    (256, 256, 128, 5, 64, 8, 2, 4, 16, False, 61440),
    (256, 256, 128, 10, 32, 4, 2, 16, 16, False, 30720),
    (256, 256, 128, 6, 32, 16, 2, 4, 4, False, 73728),
    (256, 256, 128, 16, 16, 4, 1, 0, 1, False, 8192),
    (256, 256, 128, 2, 32, 16, 2, 4, 1, False, 16384),
    (131, 203, 137, 5, 16, 16, 4, 4, 16, False, 20480),
    (256, 256, 128, 10, 16, 4, 8, 4, 16, True, 100864),
    (256, 256, 128, 6, 16, 2, 8, 4, 16, True, 29184),
    (256, 256, 128, 6, 32, 4, 2, 0, 0, True, 20480),
    (256, 256, 128, 7, 64, 4, 4, 0, 0, True, 61440),
    (256, 256, 128, 14, 32, 16, 1, 0, 4, True, 65536),
    (128, 512, 256, 12, 32, 1, 16, 4, 0, True, 47104),
    (131, 203, 137, 8, 16, 16, 2, 16, 16, True, 38784),
    (131, 203, 137, 14, 16, 4, 1, 16, 1, True, 8192),
]
"""Of matmuls with an elementwise op behind them, f32; `cache_k` 64."""


def contraction(consumers: int, m: int, n: int, k: int) -> TemplateSpace:
    each = Template.load(built_in_folder() / "cpu" / "contraction_double_tiling.mlir", built_in_folder())
    return TemplateSpace(each, {**dims_and_facts(read(matmul(m, n, k)), AVX512), "consumers": consumers})


@pytest.mark.parametrize("case", MEASURED, ids=str)
def test_cache_tiles_that_wait_for_what_is_fused_behind_have_to_fit_on_the_stack(case: tuple[int, ...]) -> None:
    m, n, k, *sizes, peel, stack = case
    knobs: dict[str, KnobValue] = {
        **dict(zip(NAMES, sizes, strict=True)),
        **{"step_k": 1, "cache_k": 64, "cache_order": '["m", "n"]', "after_m": 0, "peel": "true" if peel else "false"},
    }
    waiting = [each for each in contraction(1, m, n, k).violations(knobs) if "of stack" in each]
    assert bool(waiting) == (stack > 32768)
    assert not [each for each in contraction(0, m, n, k).violations(knobs) if "of stack" in each]
    uncut = contraction(1, m, n, k).violations({**knobs, "cache_k": 0})
    assert not [each for each in uncut if "of stack" in each]


def test_what_padding_leaves_of_k_has_buffers_of_its_own() -> None:
    each = Template.load(built_in_folder() / "cpu" / "contraction_padded.mlir", built_in_folder())
    facts = {**dims_and_facts(read(matmul(200, 333, 97)), AVX512), "consumers": 1}
    # IREE 3.13 puts 34432 bytes on the stack for it, with a ReLU behind.
    knobs: dict[str, KnobValue] = {
        **{"tile_m": 16, "tile_n": 16, "step_k": 4, "cache_k": 64},
        **{"dist_m": 0, "panel": 1},
    }
    assert [text for text in TemplateSpace(each, facts).violations(knobs) if "of stack" in text]
    assert not TemplateSpace(each, facts).violations({**knobs, "cache_k": 0})
    assert not TemplateSpace(each, {**facts, "consumers": 0}).violations(knobs)


@pytest.mark.parametrize(
    ("text", "consumers"),
    [(matmul(), 0), (matmul_then("%y = arith.negf %x0 : f32"), 1), (softmax(), 1)],
    ids=["alone", "with an op behind", "softmax"],
)
def test_ops_after_the_root_are_counted(text: str, consumers: int) -> None:
    assert dims_and_facts(read(text), TARGET)["consumers"] == consumers


@pytest.mark.parametrize(
    ("body", "partial"),
    [
        ("%s = arith.addf %x0, %acc : f32", True),
        ("%e = math.exp %x0 : f32\n%s = arith.addf %acc, %e : f32", True),
        ("%s = arith.mulf %acc, %x0 : f32", True),
        ("%s = arith.maxnumf %acc, %x0 : f32", True),
        ("%s = arith.minimumf %acc, %x0 : f32", True),
        ("%s = arith.subf %acc, %x0 : f32", False),
        ("%s = math.fma %x0, %x0, %acc : f32", False),
        ("%t = arith.addf %acc, %acc : f32\n%s = arith.addf %t, %x0 : f32", False),
        ("%t = arith.addf %acc, %x0 : f32\n%s = math.sqrt %t : f32", False),
        ("%c = arith.cmpf ogt, %acc, %x0 : f32\n%s = arith.select %c, %acc, %x0 : f32", False),
    ],
)
def test_partial_rows_are_offered_only_where_parts_can_be_put_together(body: str, partial: bool) -> None:
    rows, sums = "tensor<64x512xf32>", "tensor<64xf32>"
    maps = ["(i, j) -> (i, j)", "(i, j) -> (i)"]
    steps = [filled(sums), generic("%r", {"%a": rows}, ("%init", sums), maps, "pr", f"{body}\nlinalg.yield %s : f32")]
    view = read(function_text({"%a": rows}, "\n".join(steps), {"%r": sums}))
    assert dims_and_facts(view, TARGET)["partial_results"] == int(partial)
    parts = build_space(view, load_templates(built_in_folder(), "cpu"), TARGET, view).parts
    assert ("cpu/reduction_partial_rows" in parts) == partial
    assert "cpu/reduction_double_tiling" in parts


def test_the_size_of_a_vector_that_is_refused_follows_the_registers() -> None:
    assert dims_and_facts(read(matmul()), AVX512)["vector_limit"] == 32768
    assert dims_and_facts(read(matmul()), NEON)["vector_limit"] == 8192
    space = build_space(read(matmul(512, 512, 512)), load_templates(built_in_folder(), "cpu"), NEON)
    [part] = space.parts.values()
    most = max(int(c.knobs["tile_m"]) * int(c.knobs["tile_n"]) * int(c.knobs["step_k"]) * 4 for c in part)
    assert 4096 <= most < 8192


@pytest.mark.parametrize(
    ("p", "r", "tile_p", "tile_r", "tile_in", "dist_p", "stack"),
    [
        (256, 2048, 2, 512, 512, 64, 16384),
        (256, 2048, 4, 16, 128, 8, 32768),
        (256, 2048, 8, 64, 64, 0, 65536),
        (256, 2048, 16, 16, 32, 1, 131072),
        (61, 997, 1, 512, 32, 2, 128),
        (61, 997, 2, 16, 32, 0, 24832),
        (61, 997, 2, 256, 32, 4, 30336),
        (61, 997, 4, 32, 32, 2, 57856),
        (61, 2000, 2, 512, 16, 0, 68608),
    ],
)
def test_rows_that_wait_between_ops_with_the_same_exponentials_have_to_fit_on_the_stack(
    p: int, r: int, tile_p: int, tile_r: int, tile_in: int, dist_p: int, stack: int
) -> None:
    each = Template.load(built_in_folder() / "cpu" / "reduction_partial_rows.mlir", built_in_folder())
    knobs: dict[str, KnobValue] = {
        "tile_p": tile_p,
        "tile_r": tile_r,
        "tile_in": tile_in,
        "dist_p": dist_p,
        "stored": 0,
    }
    facts = dims_and_facts(read(softmax(p, r)), AVX512)
    for exponentials, refused in ((2, stack > 32768), (1, False)):
        space = TemplateSpace(each, {**facts, "exponentials": exponentials})
        assert bool([each for each in space.violations(knobs) if "of stack" in each]) == refused


@pytest.mark.parametrize(("tile_s", "stack"), [(64, 32768), (32, 32768), (40, 34816), (16, 28672)])
def test_an_attention_with_short_tiles_of_keys_keeps_its_queries_twice(tile_s: int, stack: int) -> None:
    each = Template.load(built_in_folder() / "cpu" / "attention_hybrid.mlir", built_in_folder())
    sizes = {"b": 1, "m": 128, "n": 64, "k": 64, "s": 2 * tile_s}
    space = TemplateSpace(each, {**dims_and_facts(read(matmul()), AVX512), **sizes})
    knobs = {**{knob.name: knob.default for knob in each.knobs}, "tile_m": 32, "tile_s": tile_s}
    told = [text for text in space.violations(knobs) if text.startswith("buffers of")]
    assert told == ([f"buffers of {stack} bytes <= 32768 of stack"] if stack > 32768 else [])

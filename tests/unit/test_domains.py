"""Domains follow from the hardware: on AVX-512 they hold what was found there, and elsewhere what fits there."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_templates import load, template_text
from spec_time_functions import matmul, read

from mlsearch.errors import TemplateError
from mlsearch.space.domains import domain
from mlsearch.space.space import dims_and_facts
from mlsearch.space.template import Template, built_in_folder
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import Hardware, Target

KIB = 1024
AVX512 = Hardware("AVX-512", 64, 32, 48 * KIB, 1024 * KIB, 32 * KIB * KIB, 8)
AVX2 = Hardware("AVX2", 32, 16, 32 * KIB, 512 * KIB, 8 * KIB * KIB, 8)
NEON = Hardware("NEON", 16, 32, 64 * KIB, 1024 * KIB, 8 * KIB * KIB, 8)

FOUND_ON_AVX512 = {
    "contraction_double_tiling": {
        "tile_m": {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16},
        "tile_n": {1, 4, 8, 16, 32, 64, 128, 256, 512},
        "cache_k": {0, 64, 128, 256, 512},
        "dist_m": {0, 1, 4, 16},
        "dist_n": {0, 1, 4, 16},
    },
    "convolution_hybrid": {
        "tile_o": {1, 2, 4, 6, 7, 8, 12, 14, 16, 28},
        "tile_n": {1, 4, 8, 16, 32, 64},
        "dist_o1": {0, 1, 2, 4, 7, 8, 14, 16},
    },
    "attention_hybrid": {
        "dist_m": {0, 1, 2, 4, 8, 16},
        "score_m": {1, 2, 4, 6, 7, 8, 10, 11, 12, 14, 16},
        "score_s": {1, 4, 7, 8, 11, 16, 32, 64},
        "value_m": {1, 2, 4, 6, 7, 8, 10, 11, 12, 14, 16},
        "value_n": {1, 2, 4, 8, 16, 32, 64, 128},
    },
    "reduction_double_tiling": {
        "tile_p": {1, 2, 4, 8, 16, 32, 64, 128, 256},
        "tile_r": {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
        "tile_in": {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
        "dist_p": {0, 1, 2, 4, 8, 16, 32, 64},
    },
    "reduction_partial_rows": {
        "tile_p": {1, 2, 4, 8, 16},
        "tile_r": {4, 8, 16, 32, 64, 128, 256, 512, 1024},
        "tile_in": {1, 4, 8, 16, 32, 64, 128, 256, 512, 1024},
        "dist_p": {0, 1, 2, 4, 8, 16, 32, 64, 128},
    },
    "elementwise_double_tiling": {
        "tile_p": {1, 2, 4, 8, 16, 32, 64, 128, 256, 512},
        "tile_p1": {1, 2, 4, 8, 16},
        "dist_p": {0, 1, 2, 4, 8, 16, 32, 64, 128, 256},
        "dist_p1": {0, 1, 2, 4, 8, 16, 32, 64},
    },
}
"""Values that searches on AVX-512 chose from while the domains were written as numbers."""


def domains(template: str, hardware: Hardware, threads: int = 1, **roles: int) -> dict[str, tuple[object, ...]]:
    """Whole domains for f32, before constraints."""
    each = Template.load(built_in_folder() / "cpu" / f"{template}.mlir", built_in_folder())
    facts = {**dims_and_facts(read(matmul()), Target("llvm-cpu", hardware, (), threads)), **roles}
    dims = {name: facts.get(name, 64) for name in each.declarations.dims}
    return {knob.name: knob.values for knob in each.knobs_on(dims)}


def test_numbers_stand_as_they_are() -> None:
    assert domain([4, 1, 4, 0], {}) == (4, 1, 4, 0)


def test_arithmetic_is_put_in_order_and_repetitions_go() -> None:
    assert domain([0, "2 * lanes", 16, "lanes", "lanes + 1"], {"lanes": 16}) == (0, 16, 17, 32)


def test_two_dots_double_up_to_a_bound() -> None:
    facts = {"l1_bytes": 49152, "vector_bytes": 64}
    assert domain([0, "64 .. l1_bytes / vector_bytes"], facts) == (0, 64, 128, 256, 512)
    assert domain([1, "vector_bytes .. 63"], facts) == (1,)


@pytest.mark.parametrize("template", FOUND_ON_AVX512)
def test_on_avx512_no_value_that_was_searched_before_is_lost(template: str) -> None:
    found = domains(template, AVX512)
    for knob, values in FOUND_ON_AVX512[template].items():
        assert values <= set(found[knob]), knob


def test_register_tiles_follow_vectors_and_registers() -> None:
    assert domains("contraction_double_tiling", AVX2)["tile_m"] == (1, 2, 3, 4, 5, 6, 7, 8)
    assert domains("contraction_double_tiling", AVX2)["tile_n"] == (1, 4, 8, 16, 32, 64, 128)
    assert (
        domains("contraction_double_tiling", NEON)["tile_m"] == domains("contraction_double_tiling", AVX512)["tile_m"]
    )
    assert domains("elementwise_double_tiling", NEON)["tile_p"] == (1, 2, 4, 8, 16, 32, 64, 128)


def test_cache_tiles_follow_cache_sizes() -> None:
    assert domains("contraction_double_tiling", AVX2)["cache_k"] == (0, 64, 128, 256, 512, 1024)
    assert domains("contraction_double_tiling", NEON)["cache_k"] == (0, 64, 128, 256, 512, 1024, 2048, 4096)


def test_workgroups_grow_until_each_thread_has_one() -> None:
    rows = {threads: domains("elementwise_double_tiling", AVX512, threads, p=1 << 20)["dist_p"] for threads in (1, 8)}
    assert (max(map(int, map(str, rows[1]))), max(map(int, map(str, rows[8])))) == (32768, 4096)
    assert 28 in domains("convolution_hybrid", AVX512, 2, o1=56)["dist_o1"]


def test_a_domain_that_is_empty_elsewhere_is_told_with_file_and_knob(tmp_path: Path) -> None:
    each = load(tmp_path, template_text(domains='tile = ["4 .. m"], count = [0]'))
    with pytest.raises(TemplateError) as caught:
        TemplateSpace(each, {"m": 2, "n": 8, "k": 8})
    assert str(caught.value) == f"template {each.path}: mlsearch.domains, knob 'tile': the domain has no values"


def test_a_default_that_is_not_in_the_domain_elsewhere_gives_way(tmp_path: Path) -> None:
    each = load(
        tmp_path,
        template_text(domains='tile = [1, 4, "m / 2"], count = [0]', defaults="tile = 4, count = 0, peel = true"),
    )
    narrow = load(tmp_path, template_text(domains='tile = ["1 .. m / 2"], count = [0]'))
    assert [knob.default for knob in each.knobs_on({"m": 64})] == [4, 0, "true"]
    assert [knob.default for knob in narrow.knobs_on({"m": 4})] == [2, 0, "true"]
    assert [prior.knobs["tile"] for prior in TemplateSpace(narrow, {"m": 4, "n": 8, "k": 8}).priors()] == [2]


def test_what_constraints_see_of_each_row_is_in_the_domain_of_these_dims(tmp_path: Path) -> None:
    each = load(tmp_path, template_text(domains='tile = ["1 .. m"], count = [0]'))
    most = 4 * each.declarations.dims["m"]
    space = TemplateSpace(each, {"m": most, "n": 8, "k": 8})
    assert max(space.columns()["tile"]) == max(space.row(index).knobs["tile"] for index in range(len(space))) > most / 4


@pytest.mark.parametrize(
    "entry", ["9" * 30, "1 .. 10000000000 * 10000000000", "10000000000 / 1 * 10000000000", "4 .. n * n * n + 1"]
)
def test_what_64_bits_do_not_hold_is_an_error_and_does_not_wrap_around(entry: str) -> None:
    with pytest.raises(TemplateError, match="64 bits"):
        domain([entry], {"n": 2**24})


def test_large_numbers_on_the_way_to_a_small_one_are_exact() -> None:
    assert domain(["n * n * n * n / (n * n * n) - n + 3"], {"n": 2**24}) == (3,)
    assert domain(["n / (0 - n) + 5", "(0 - 7) / 2 + 8"], {"n": 2**40}) == (4,)

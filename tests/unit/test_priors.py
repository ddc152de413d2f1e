"""First suggestions follow from the hardware: the same ones as before on AVX-512, and others that fit elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_templates import load, template_text
from spec_time_functions import matmul, read

from mlsearch.errors import TemplateError
from mlsearch.space.arithmetic import arithmetic
from mlsearch.space.constraints import evaluate
from mlsearch.space.space import dims_and_facts
from mlsearch.space.template import Template, built_in_folder
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import Hardware, Target

KIB = 1024
MACHINES = {
    "avx512": Hardware("AVX-512", 64, 32, 48 * KIB, 1024 * KIB, 32 * KIB * KIB, 8),
    "avx512 with smaller caches": Hardware("AVX-512", 64, 32, 32 * KIB, 1024 * KIB, 16 * KIB * KIB, 8),
    "avx2": Hardware("AVX2", 32, 16, 32 * KIB, 512 * KIB, 8 * KIB * KIB, 8),
    "neon": Hardware("NEON", 16, 32, 64 * KIB, 1024 * KIB, 8 * KIB * KIB, 8),
    "sse": Hardware("SSE", 16, 16, 32 * KIB, 256 * KIB, 8 * KIB * KIB, 8),
}
WORKLOADS = {
    "cpu/contraction_double_tiling": {"m": 512, "n": 512, "k": 512},
    "cpu/contraction_padded": {"m": 731, "n": 1023, "k": 137},
    "cpu/convolution_hybrid": {"o1": 56, "o": 56, "n": 64, "f1": 3, "f": 3, "k": 64},
    "cpu/attention_hybrid": {"b": 12, "m": 128, "n": 64, "k": 64, "s": 128},
    "cpu/reduction_double_tiling": {"p": 1024, "r": 1024, "inner": 1024},
    "cpu/reduction_partial_rows": {"p": 1024, "r": 1024, "inner": 1024, "rows_contiguous": 1},
    "cpu/elementwise_double_tiling": {"p": 1024, "p1": 512},
}


def built_in(identifier: str) -> Template:
    return Template.load(built_in_folder() / f"{identifier}.mlir", built_in_folder())


def priors(identifier: str, machine: str, **roles: int) -> list[dict[str, object]]:
    facts = dims_and_facts(read(matmul()), Target("llvm-cpu", MACHINES[machine], (), 1))
    space = TemplateSpace(built_in(identifier), {**facts, **(roles or WORKLOADS[identifier])})
    return [dict(candidate.knobs) for candidate in space.priors()]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("identifier", WORKLOADS)
def test_each_template_has_three_first_suggestions_or_more_on_each_machine(identifier: str, machine: str) -> None:
    assert len(priors(identifier, machine)) >= 3


def test_no_template_for_this_backend_is_left_out() -> None:
    found = {path.stem for path in (built_in_folder() / "cpu").glob("*.mlir")}
    assert {identifier.rpartition("/")[2] for identifier in WORKLOADS} == found


@pytest.mark.parametrize("machine", ["avx512", "avx512 with smaller caches"])
def test_on_avx512_a_matmul_is_tried_with_the_tiles_that_were_found_there(machine: str) -> None:
    names = ("tile_m", "tile_n", "step_k", "cache_m", "cache_n", "cache_k", "dist_m", "dist_n", "peel")
    found = [
        tuple(prior[name] for name in names)
        for prior in priors("cpu/contraction_double_tiling", machine, m=731, n=1023, k=1137)
    ]
    assert found == [
        (12, 32, 8, 8, 2, 0, 4, 1, "true"),
        (12, 32, 1, 4, 2, 256, 0, 1, "true"),
        (12, 32, 1, 2, 4, 256, 0, 0, "true"),
        (6, 64, 1, 0, 1, 0, 0, 1, "true"),
        (6, 64, 2, 16, 1, 512, 0, 0, "true"),
        (7, 32, 1, 8, 1, 256, 0, 1, "true"),
        (8, 32, 4, 8, 2, 256, 4, 1, "false"),
        (14, 32, 1, 4, 2, 256, 0, 1, "true"),
        (6, 32, 8, 16, 1, 64, 16, 1, "true"),
        (6, 16, 1, 8, 2, 256, 0, 1, "true"),
        (1, 256, 2, 1, 4, 64, 0, 0, "false"),
        (1, 256, 1, 1, 1, 0, 0, 1, "false"),
        (8, 32, 4, 8, 1, 256, 0, 0, "false"),
    ]


def test_on_avx2_a_matmul_is_first_tried_with_tiles_of_its_registers() -> None:
    tiles = {(prior["tile_m"], prior["tile_n"]) for prior in priors("cpu/contraction_double_tiling", "avx2")}
    assert (6, 16) in tiles
    assert all(int(str(m)) * -(-int(str(n)) // 8) <= 14 for m, n in tiles)


def test_where_a_suggested_part_of_k_is_all_of_it_k_is_not_cut() -> None:
    small = priors("cpu/contraction_double_tiling", "avx512", b=12, m=128, n=64, k=128)
    tiles = {(prior["tile_m"], prior["tile_n"]) for prior in small if prior["cache_k"] == 0}
    assert {(12, 32), (6, 64), (8, 32), (14, 32)} <= tiles
    assert {prior["cache_k"] for prior in small} == {0, 64}


def test_where_a_loop_has_nothing_to_distribute_a_suggestion_keeps_its_tiles() -> None:
    wide, narrow = (next(iter(priors("cpu/contraction_double_tiling", "avx512", m=512, n=n, k=512))) for n in (512, 64))
    assert (wide["tile_m"], wide["tile_n"], wide["cache_n"], wide["dist_n"]) == (12, 32, 2, 1)
    assert narrow == {**wide, "dist_n": 0}


def test_what_comes_after_a_matmul_is_suggested_four_vectors_at_a_time() -> None:
    found = priors("cpu/contraction_double_tiling", "avx512", m=128, n=3072, k=768, consumers=1)
    vectors = {int(str(prior["after_m"])) * int(str(prior["tile_n"])) // 16 for prior in found if prior["after_m"]}
    assert vectors == {4}
    alone = priors("cpu/contraction_double_tiling", "avx512", m=128, n=3072, k=768)
    assert {prior["after_m"] for prior in alone} == {0}


def test_a_tile_that_was_cut_down_to_a_small_loop_is_not_made_valid_by_force() -> None:
    """For a vector times a matrix nearly all suggestions come down to one row of a narrow tile."""
    found = priors("cpu/contraction_double_tiling", "avx512", m=1, n=4096, k=4096)
    assert [(prior["tile_m"], prior["tile_n"]) for prior in found] == [(1, 256), (1, 256), (1, 32)]


def test_arithmetic_reads_as_it_stands() -> None:
    dims = {"lanes": 16, "registers": 32}
    values = {
        "3": 3,
        "lanes": 16,
        "2 * lanes": 32,
        "(registers - 4) / 2": 14,
        "registers / 4 - 1": 7,
        "registers / 3": 10,
        "registers - 4 / 2": 30,
    }
    assert {text: int(evaluate(arithmetic(text), {}, dims)) for text in values} == values


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2 *",
        "f(2)",
        "lanes.real",
        "lanes[0]",
        "2 ** lanes",
        "lanes if lanes else 1",
        "1.5",
        "True",
        "'a'",
        "-1",
        "1 +" * 99 + "1",
    ],
)
def test_what_is_no_arithmetic_is_told(text: str) -> None:
    with pytest.raises(TemplateError, match="no arithmetic"):
        arithmetic(text)


def test_a_prior_lies_between_the_values_of_its_domain_and_takes_the_lower_one(tmp_path: Path) -> None:
    each = load(tmp_path, template_text(priors='{tile = "m / 2 - 1"}'))
    found = TemplateSpace(each, {"m": 14, "n": 8, "k": 8}).priors()
    assert [candidate.knobs["tile"] for candidate in found] == [4]
    assert each.priors({"m": 14}) == [{"tile": 6}]


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        ('{tile = "2 * lanse"}', ["tile", "'lanse'", "m, n, k"]),
        ('{tile = "2 *"}', ["tile", "'2 \\*' is no arithmetic"]),
        ('{peel = "m"}', ["peel", "is not in"]),
    ],
)
def test_a_prior_that_can_not_be_worked_out_is_told(prior: str, words: list[str], tmp_path: Path) -> None:
    for word in words:
        with pytest.raises(TemplateError, match=word):
            load(tmp_path, template_text(priors=prior))

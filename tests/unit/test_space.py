"""The valid assignments of a template on a workload, and the space that proposers draw from."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_templates import load, template_text
from spec_time_functions import elementwise, function_text, matmul, read, softmax

from mlsearch.candidate import Candidate, KnobValue
from mlsearch.errors import KnobError
from mlsearch.space import template_space
from mlsearch.space.constraints import evaluate
from mlsearch.space.space import Space, build_space, dims_and_facts
from mlsearch.space.template import Template, built_in_folder, load_templates
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import resolve

FITS = """
  %tile = iree_codegen.smt.knob "tile" : !smt.int
  %count = iree_codegen.smt.knob "count" : !smt.int
  %peel = iree_codegen.smt.knob "peel" : !smt.int
  %zero = smt.int.constant 0
  %area = smt.int.mul %tile, %count
  %fits = smt.int.cmp le %area, %m
  iree_codegen.smt.assert %fits, "{} tiles of {} <= m ({})", %count, %tile, %m : !smt.bool, !smt.int, !smt.int, !smt.int
  %rest = smt.int.mod %m, %tile
  %even = smt.eq %rest, %zero : !smt.int
  %off = smt.eq %peel, %zero : !smt.int
  %no_peel = smt.implies %even, %off
  iree_codegen.smt.assert %no_peel, "nothing to peel" : !smt.bool
  %small = smt.int.cmp le %tile, %m
  iree_codegen.smt.assert %small, "tile ({}) <= m", %tile : !smt.bool, !smt.int
"""


def template(folder: Path, **changes: object) -> Template:
    return load(folder, template_text(**{"asserts": FITS, **changes}))  # type: ignore[arg-type]


def by_force(each: Template, dims: dict[str, int]) -> list[dict[str, KnobValue]]:
    found = []
    for values in product(*(knob.values for knob in each.knobs)):
        numbers = {knob.name: knob.number(value) for knob, value in zip(each.knobs, values, strict=True)}
        if all(bool(evaluate(a.condition, numbers, dims)) for a in each.declarations.assertions):
            found.append({knob.name: value for knob, value in zip(each.knobs, values, strict=True)})
    return found


@pytest.mark.parametrize("m", [1, 3, 4, 8, 100])
def test_the_join_is_the_filtered_product_of_the_domains(m: int, tmp_path: Path) -> None:
    each = template(tmp_path)
    dims = {"m": m, "n": 1, "k": 1}
    space = TemplateSpace(each, dims)
    joined = [candidate.knobs for candidate in space]
    expected = by_force(each, dims)
    assert {tuple(sorted(knobs.items())) for knobs in joined} == {tuple(sorted(knobs.items())) for knobs in expected}
    assert (len(joined), space.size) == (len(expected), len(expected))
    assert space.total == 4 * 3 * 2


def test_values_that_no_assignment_can_have_are_no_choice(tmp_path: Path) -> None:
    space = TemplateSpace(template(tmp_path), {"m": 3})
    assert {knob.name: knob.values for knob in space.knobs}["tile"] == (1, 2)


def test_an_assignment_that_breaks_constraints_hears_which(tmp_path: Path) -> None:
    space = TemplateSpace(template(tmp_path), {"m": 4})
    assert space.violations({"tile": 4, "count": 2, "peel": "true"}) == ("2 tiles of 4 <= m (4)", "nothing to peel")
    assert space.violations({"tile": 4, "count": 1, "peel": "false"}) == ()
    with pytest.raises(KnobError, match="'tile'=5"):
        space.violations({"tile": 5, "count": 1, "peel": "false"})


def test_a_constraint_on_no_knob_empties_the_space_of_a_workload_that_breaks_it(tmp_path: Path) -> None:
    asserts = """
      %one = smt.int.constant 1
      %big = smt.int.cmp gt %k, %one
      iree_codegen.smt.assert %big, "k ({}) > 1", %k : !smt.bool, !smt.int
    """
    each = template(tmp_path, asserts=asserts)
    assert len(TemplateSpace(each, {"k": 1})) == 0
    assert len(TemplateSpace(each, {"k": 2})) == 24
    knobless = load(tmp_path, template_text(knobs="", domains="", defaults="", asserts=asserts), "none.mlir")
    assert len(TemplateSpace(knobless, {"k": 1})) == 0
    assert len(TemplateSpace(knobless, {"k": 2})) == 1


def test_a_huge_space_is_thinned_to_the_same_valid_sample_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(template_space, "MOST_ROWS", 7)
    each, dims = template(tmp_path), {"m": 8}
    one, other = TemplateSpace(each, dims), TemplateSpace(each, dims)
    assert [candidate.key for candidate in one] == [candidate.key for candidate in other]
    assert 0 < len(one) <= 7
    assert all(not one.violations(candidate.knobs) for candidate in one)
    full = len(by_force(each, dims))
    assert full / 3 <= one.size <= full * 3
    assert one.size != len(one)


def test_priors_are_valid_distinct_and_end_with_the_default(tmp_path: Path) -> None:
    each = template(tmp_path, priors="{tile = 8, count = 2, peel = false}, {tile = 2}, {tile = 4, peel = false}")
    priors = TemplateSpace(each, {"m": 16}).priors()
    assert [prior.knobs for prior in priors] == [
        {"tile": 8, "count": 2, "peel": "false"},
        {"tile": 4, "count": 0, "peel": "false"},
    ]


def test_a_prior_beyond_the_loop_becomes_the_largest_value_that_fits(tmp_path: Path) -> None:
    each = template(tmp_path, priors="{tile = 8, count = 1, peel = true}")
    priors = TemplateSpace(each, {"m": 3}).priors()
    assert priors[0].knobs == {"tile": 2, "count": 1, "peel": "true"}


# ------------------------------------------------------------------------- spaces of several templates


@pytest.fixture
def two(tmp_path: Path) -> Space:
    """Two templates that mean different things by `tile` and the same by `peel`."""
    view = read(matmul(8, 8, 8))
    one = load(tmp_path, template_text(asserts=FITS), "cpu/one.mlir")
    other = load(tmp_path, template_text(domains="tile = [1, 4, 3], count = [0, 1, 2]"), "cpu/other.mlir")
    return Space([TemplateSpace(one, {"m": 8}), TemplateSpace(other, {"m": 8})], view, 16)


def test_parameters_are_knobs_and_clashing_ones_get_the_templates_name(two: Space) -> None:
    assert dict(two.distributions) == {
        "template": ("cpu/one", "cpu/other"),
        "one.tile": (1, 2, 4, 8),
        "other.tile": (1, 4, 3),
        "count": (0, 1, 2),
        "peel": ("false", "true"),
    }


def test_templates_of_one_name_in_two_folders_do_not_share_parameters(tmp_path: Path) -> None:
    one = load(tmp_path, template_text(asserts=FITS), "a/same.mlir")
    other = load(tmp_path, template_text(domains="tile = [1, 4, 3], count = [0, 1, 2]"), "b/same.mlir")
    space = Space([TemplateSpace(one, {"m": 8}), TemplateSpace(other, {"m": 8})], read(matmul(8, 8, 8)), 16)
    assert all(space.repair(space.params(candidate)) == candidate for candidate in space)
    for candidate in space:
        for name, value in space.params(candidate).items():
            assert value in space.distributions[name]


def test_repair_is_the_inverse_of_params(two: Space) -> None:
    everything = list(two)
    assert len(everything) == two.size
    assert len({candidate.key for candidate in everything}) == two.size
    for candidate in everything:
        params = two.params(candidate)
        assert all(params[name] in two.distributions[name] for name in params)
        assert two.repair(params) == candidate


def test_repair_gives_nothing_for_what_is_forbidden_missing_or_unknown(two: Space) -> None:
    assert two.repair({"template": "cpu/one", "one.tile": 8, "count": 2, "peel": "false"}) is None
    assert two.repair({"template": "cpu/one", "one.tile": 8, "count": 1}) is None
    assert two.repair({"template": "cpu/gone", "one.tile": 8, "count": 1, "peel": "false"}) is None
    assert two.repair({"template": "cpu/one", "one.tile": 5, "count": 1, "peel": "false"}) is None


def test_a_template_without_valid_assignments_is_not_in_the_space(tmp_path: Path) -> None:
    never = '%one = smt.int.constant 1\n%no = smt.int.cmp lt %m, %one\niree_codegen.smt.assert %no, "no" : !smt.bool'
    one = load(tmp_path, template_text(), "one.mlir")
    other = load(tmp_path, template_text(asserts=never), "other.mlir")
    space = Space([TemplateSpace(one, {"m": 8}), TemplateSpace(other, {"m": 8})], read(matmul()), 16)
    assert list(space.parts) == ["one"]
    assert "template" not in space.distributions
    with pytest.raises(KnobError, match="no template 'other'"):
        space.violations(Candidate.of("other", "", {}))


def test_samples_are_valid_distinct_and_spread_over_the_templates(two: Space) -> None:
    drawn = two.sample(np.random.default_rng(0), 12)
    assert len({candidate.key for candidate in drawn}) == len(drawn) > 6
    assert {candidate.template for candidate in drawn} == {"cpu/one", "cpu/other"}
    assert all(not two.violations(candidate) for candidate in drawn)
    assert len(two.sample(np.random.default_rng(0), 10_000)) == two.size
    assert drawn == two.sample(np.random.default_rng(0), 12)


def test_what_a_small_template_has_no_candidates_for_goes_to_the_others(tmp_path: Path) -> None:
    view = read(matmul(8, 8, 8))
    one = load(tmp_path, template_text(asserts=FITS), "cpu/one.mlir")
    single = load(tmp_path, template_text(domains="tile = [4], count = [0], peel = [false]"), "cpu/single.mlir")
    space = Space([TemplateSpace(one, {"m": 8}), TemplateSpace(single, {"m": 8})], view, 16)
    drawn = space.sample(np.random.default_rng(0), 10)
    assert len({candidate.key for candidate in drawn}) == 10
    assert sum(candidate.template == "cpu/single" for candidate in drawn) <= 2


def test_neighbours_are_valid_distinct_and_near(two: Space) -> None:
    rng = np.random.default_rng(1)
    for candidate in two.sample(rng, 10):
        near = two.neighbours(candidate, rng, 6)
        assert near
        assert len({each.key for each in near}) == len(near)
        for each in near:
            assert each != candidate
            assert each.template == candidate.template
            assert not two.violations(each)
            changed = [name for name, value in each.knobs.items() if value != candidate.knobs[name]]
            assert 1 <= len(changed) <= 2


def test_priors_of_several_templates_take_turns(tmp_path: Path) -> None:
    parts = [
        TemplateSpace(load(tmp_path, template_text(priors=priors), f"{name}.mlir"), {"m": 8})
        for name, priors in (("one", "{tile = 1}, {tile = 2}"), ("other", "{tile = 8}"))
    ]
    priors = Space(parts, read(matmul()), 16).priors()
    assert [(prior.template, prior.knobs["tile"]) for prior in priors] == [
        ("one", 1),
        ("other", 8),
        ("one", 2),
        ("other", 4),
        ("one", 4),
    ]


def test_a_fallback_is_used_only_where_nothing_else_applies(tmp_path: Path) -> None:
    fallback = "transform.with_named_sequence, mlsearch.fallback"
    anything = load(tmp_path, template_text(module_attributes=fallback), "anything.mlir")
    matmuls = load(tmp_path, template_text(), "matmuls.mlir")
    target, view = resolve("llvm-cpu", 1), read(matmul())
    assert list(build_space(view, [anything, matmuls], target).parts) == ["matmuls"]
    assert list(build_space(view, [anything], target).parts) == ["anything"]


def test_every_built_in_template_lays_out_what_it_offers() -> None:
    target = resolve("llvm-cpu", 1)
    templates = load_templates(built_in_folder(), "cpu")
    for view in (read(matmul(61, 67, 53)), read(matmul(1, 256, 64)), read(softmax(24, 96)), read(elementwise("999"))):
        space = build_space(view, templates, target)
        assert space.size > 0, view.workload.label
        priors = space.priors()
        assert priors, view.workload.label
        for candidate in [*priors, *space.sample(np.random.default_rng(0), 5)]:
            assert not space.violations(candidate)
            sizes = space.tiling(candidate).by_level
            loops = view.workload.loops
            assert all(
                0 <= size <= loop.size for level in sizes.values() for size, loop in zip(level, loops, strict=True)
            )
            assert f"@{'schedule'}_x" in space.entry("x", candidate).sequences


def test_rows_are_thinned_before_a_wide_domain_is_joined(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(template_space, "_MOST_JOINED", 1000)
    joined: list[int] = []
    repeat = np.repeat

    def counted(rows: Any, count: int, axis: int) -> Any:
        joined.append(len(rows) * count)
        return repeat(rows, count, axis=axis)

    monkeypatch.setattr(template_space.np, "repeat", counted)
    wide = ", ".join(map(str, range(1, 301)))
    text = template_text(domains=f"tile = [{wide}], count = [{wide}]", defaults="tile = 4, count = 1, peel = true")
    space = TemplateSpace(load(tmp_path, text), {"m": 8, "n": 8, "k": 8})
    assert space.size == pytest.approx(300 * 300 * 2, rel=0.01)
    assert max(joined) <= 1000


@pytest.mark.parametrize("shared", [True, False])
def test_exponentials_are_stored_only_where_two_ops_compute_them(shared: bool) -> None:
    t, row = "tensor<64x128xf32>", "tensor<64xf32>"
    second = "math.exp %v : f32" if shared else "arith.negf %v : f32"
    body = f"""
      %zero = arith.constant 0.0 : f32
      %rows = tensor.empty() : {row}
      %f = linalg.fill ins(%zero : f32) outs(%rows : {row}) -> {row}
      %s = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                            iterator_types = ["parallel", "reduction"]}} ins(%a : {t}) outs(%f : {row}) {{
      ^bb0(%v: f32, %sum: f32):
        %x = math.exp %v : f32
        %next = arith.addf %x, %sum : f32
        linalg.yield %next : f32
      }} -> {row}
      %e = tensor.empty() : {t}
      %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>,
                                             affine_map<(i, j) -> (i, j)>],
                            iterator_types = ["parallel", "parallel"]}} ins(%a, %s : {t}, {row}) outs(%e : {t}) {{
      ^bb0(%v: f32, %sum: f32, %out: f32):
        %x = {second}
        %q = arith.divf %x, %sum : f32
        linalg.yield %q : f32
      }} -> {t}
    """
    view = read(function_text({"%a": t}, body, {"%r": t}))
    target = resolve("llvm-cpu", 1)
    assert dims_and_facts(view, target)["exponentials"] == 1 + shared
    part = build_space(view, load_templates(built_in_folder(), "cpu"), target, view).parts["cpu/reduction_partial_rows"]
    [stored] = [knob.values for knob in part.knobs if knob.name == "stored"]
    assert stored == ((0, 1) if shared else (0,))


@pytest.mark.parametrize(("transposed", "expected"), [(False, 1), (True, 0)])
def test_a_reduction_along_rows_is_told_from_one_along_columns(transposed: bool, expected: int) -> None:
    map_, shape = ("(i, j) -> (j, i)", "32x16") if transposed else ("(i, j) -> (i, j)", "16x32")
    body = f"""
      %zero = arith.constant 0.0 : f32
      %e = tensor.empty() : tensor<16xf32>
      %f = linalg.fill ins(%zero : f32) outs(%e : tensor<16xf32>) -> tensor<16xf32>
      %r = linalg.generic {{indexing_maps = [affine_map<{map_}>, affine_map<(i, j) -> (i)>],
                            iterator_types = ["parallel", "reduction"]}}
          ins(%a : tensor<{shape}xf32>) outs(%f : tensor<16xf32>) {{
      ^bb0(%v: f32, %sum: f32):
        %next = arith.addf %v, %sum : f32
        linalg.yield %next : f32
      }} -> tensor<16xf32>
    """
    view = read(function_text({"%a": f"tensor<{shape}xf32>"}, body, {"%r": "tensor<16xf32>"}))
    assert dims_and_facts(view, resolve("llvm-cpu", 1))["rows_contiguous"] == expected
    spaces = build_space(view, load_templates(built_in_folder(), "cpu"), resolve("llvm-cpu", 1), view)
    assert ("cpu/reduction_partial_rows" in spaces.parts) == bool(expected)


def test_a_template_that_fails_on_a_dispatch_leaves_it_to_the_others(tmp_path: Path) -> None:
    """On their own example, where n is 8, all are fine."""
    texts = {
        "sound": template_text(asserts=FITS),
        "empty": template_text(
            domains='tile = [1, 2, 4, 8], count = ["2 .. n"]', defaults="tile = 4, count = 2, peel = true"
        ),
        "negative": template_text(domains='tile = [4, "n - 7"], count = [0]'),
    }
    templates = [load(tmp_path, text, f"{name}.mlir") for name, text in texts.items()]
    space = build_space(read(matmul(n=1)), templates, resolve("llvm-cpu", 1))
    assert set(space.parts) == {"sound"}
    for problem in ("'empty'", "knob 'count': the domain has no values", "'negative'", "knob 'tile': 'n - 7'"):
        assert problem in space.note


def test_the_default_of_a_narrowed_domain_is_one_of_its_values(tmp_path: Path) -> None:
    space = TemplateSpace(template(tmp_path), {"m": 3, "n": 1, "k": 1})
    [tile] = [knob for knob in space.knobs if knob.name == "tile"]
    assert (tile.values, tile.default) == ((1, 2), 2)  # the file's own is 4

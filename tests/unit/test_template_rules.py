"""What a template file must hold, and how a broken one is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_templates import ENTRY, SCHEDULE, load, template_text
from spec_time_functions import elementwise, matmul, read

from mlsearch.errors import TemplateError
from mlsearch.space.template import Template, load_templates, templates_for
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import resolve


def test_a_template_says_its_knobs_in_the_order_of_the_file(tmp_path: Path) -> None:
    template = load(tmp_path, template_text())
    assert template.id == "cpu/small"
    assert {knob.name: (knob.values, knob.default, knob.is_choice) for knob in template.knobs} == {
        "tile": ((1, 2, 4, 8), 4, False),
        "count": ((0, 1, 2), 0, False),
        "peel": (("false", "true"), "true", True),
    }
    assert template.declarations.dims == {"m": 8, "n": 8, "k": 8}
    assert not template.declarations.is_fallback


def test_a_template_can_be_a_fallback_or_a_strategy(tmp_path: Path) -> None:
    attributes = "transform.with_named_sequence, mlsearch.fallback, mlsearch.strategy"
    declared = load(tmp_path, template_text(module_attributes=attributes)).declarations
    assert (declared.is_fallback, declared.is_strategy) == (True, True)


def test_a_template_applies_where_it_annotates_something(tmp_path: Path) -> None:
    template = load(tmp_path, template_text())
    assert template.applies_to(read(matmul()))
    assert not template.applies_to(read(elementwise()))


def test_another_text_is_another_template(tmp_path: Path) -> None:
    one = load(tmp_path, template_text())
    other = load(tmp_path, template_text(domains="tile = [1, 2, 4], count = [0, 1, 2]"))
    assert one.digest != other.digest
    assert one.candidate({"tile": 1}).key != other.candidate({"tile": 1}).key


def cut(names: str) -> str:
    """A sequence that cuts an op of two loops, at sizes of these names."""
    return f"""
  transform.named_sequence @cut(%op: !transform.any_op {{transform.consumed}}) {{
    %tile, %loop = transform.structured.tile_using_for %op tile_sizes [0, 4] {{mlsearch.sizes = {names}}}
      : (!transform.any_op) -> (!transform.any_op, !transform.any_op)
    transform.yield
  }}
"""


BROKEN = {
    "no MLIR": ("module {", ["does not parse"]),
    "no constraints op": (template_text(constraints=False), ["0 iree_codegen.smt.constraints ops"]),
    "no schedule": (
        template_text(sequences=SCHEDULE.replace("@schedule", "@plan") + ENTRY.replace("@schedule", "@plan")),
        ["@schedule"],
    ),
    "no entry point": (template_text(sequences=SCHEDULE), ["@__kernel_config"]),
    "a knob without a domain": (template_text(domains="tile = [1]"), ["count", "no domain"]),
    "a knob with an empty domain": (template_text(domains="tile = [1, 4], count = []"), ["'count'", "no values"]),
    "a domain that is no list": (template_text(domains="tile = [1, 4], count = 2"), ["'count'", "no list"]),
    "a domain of fractions": (template_text(domains="tile = [1, 4], count = [0, 1.5]"), ["'count'", "no arithmetic"]),
    "a negative value": (template_text(domains="tile = [-1, 4], count = [0]"), ["'tile'", "-1 is negative"]),
    "a domain of an unknown fact": (
        template_text(domains='tile = [4, "2 * lanse"], count = [0]'),
        ["'tile'", "'2 * lanse' names 'lanse'", "m, n, k"],
    ),
    "a domain of no arithmetic": (template_text(domains='tile = [4, "2 *"], count = [0]'), ["'tile'", "no arithmetic"]),
    "a domain with a value of zero": (
        template_text(domains='tile = [4, "m / 9"], count = [0]'),
        ["'m / 9' comes to 0"],
    ),
    "doubles from zero": (template_text(domains='tile = [4, "m - 8 .. 4"], count = [0]'), ["comes to 0"]),
    "doubles without an end": (template_text(domains='tile = [4, "1 .."], count = [0]'), ["'tile'", "no arithmetic"]),
    "a knob without a default": (template_text(defaults="tile = 4, count = 0"), ["peel", "no default"]),
    "a domain for no knob": (
        template_text(domains="tile = [4], count = [0], other = [1]"),
        ["mlsearch.domains", "other"],
    ),
    "a default for no knob": (template_text(defaults="tile = 4, count = 0, peel = true, other = 1"), ["other"]),
    "a prior for no knob": (template_text(priors="{tile = 4}, {tiel = 4}"), ["mlsearch.priors", "tiel"]),
    "a default outside of the domain": (template_text(defaults="tile = 5, count = 0, peel = true"), ["tile", "5"]),
    "a default that is no option": (template_text(defaults="tile = 4, count = 0, peel = 3"), ["peel", "3"]),
    "a default that is no number": (template_text(defaults='tile = "big", count = 0, peel = true'), ["tile", "big"]),
    "a prior outside of the domain": (template_text(priors="{tile = 3}"), ["tile", "3"]),
    "dims without names": (template_text(named_dims=["m", "n"]), ["2 dims", "3"]),
    "an unknown knob in a constraint": (
        template_text(asserts='%x = iree_codegen.smt.knob "tiel" : !smt.int'),
        ["tiel"],
    ),
    "a size that is no number": (
        template_text(
            knobs='vector_common_parallel = {m = #iree_codegen.smt.one_of_knob<"tile", [false, true]>}',
            domains="",
            defaults="tile = false",
        ),
        ["tile"],
    ),
    "a level that IREE does not know": (
        template_text(knobs="cache_paralel = {m = 4}", domains="", defaults=""),
        ["cache_paralel"],
    ),
    "an order of numbers": (
        template_text(
            knobs='cache_parallel = {order = #iree_codegen.smt.one_of_knob<"tile", [false, true]>}',
            domains="",
            defaults="tile = false",
        ),
        ["order", "tile"],
    ),
    "an unknown place to bind": (
        template_text(sequences=SCHEDULE.replace('"lowering_config"}', '"lowerin_config"}') + ENTRY),
        ["lowerin_config", "every_op"],
    ),
    "no place for the tile sizes": (
        template_text(sequences=SCHEDULE.replace('{mlsearch.bind = "lowering_config"}', "") + ENTRY),
        ["nothing takes its knobs"],
    ),
    "a tile size of an unknown name": (
        template_text(sequences=SCHEDULE + cut('["", "tiel"]') + ENTRY),
        ["tiel", "knob"],
    ),
    "fewer names than tile sizes": (
        template_text(sequences=SCHEDULE + cut('["tile"]') + ENTRY),
        ["mlsearch.sizes", "tile_using_for", "per size"],
    ),
    "names on an op without tile sizes": (
        template_text(
            sequences=SCHEDULE.replace('mlsearch.bind = "translation_info"', 'mlsearch.sizes = ["m"]') + ENTRY
        ),
        ["mlsearch.sizes", "param.constant"],
    ),
    "an unknown SMT op": (
        template_text(asserts='%x = smt.declare_fun : !smt.bool\niree_codegen.smt.assert %x, "x" : !smt.bool'),
        ["smt.declare_fun"],
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_template_is_told_with_its_file_and_what_is_wrong(case: str, tmp_path: Path) -> None:
    text, words = BROKEN[case]
    with pytest.raises(TemplateError) as caught:
        load(tmp_path, text)
    for word in [str(tmp_path / "cpu/small.mlir"), *words]:
        assert word in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_no_text_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.mlir"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TemplateError, match=r"x\.mlir can't be read"):
        Template.load(path, tmp_path)


def test_a_folder_may_sort_its_templates_by_backend(tmp_path: Path) -> None:
    load(tmp_path, template_text(), "cpu/b.mlir")
    load(tmp_path, template_text(), "cpu/deeper/a.mlir")
    load(tmp_path, template_text(), "cuda/c.mlir")
    assert [each.id for each in load_templates(tmp_path, "cpu")] == ["cpu/b", "cpu/deeper/a"]
    assert [each.id for each in load_templates(tmp_path / "cuda", "cpu")] == ["c"]


def test_a_folder_without_templates_is_told(tmp_path: Path) -> None:
    with pytest.raises(TemplateError, match="no templates"):
        load_templates(tmp_path, "cpu")


def test_a_users_folder_adds_to_the_built_in_templates(tmp_path: Path) -> None:
    target = resolve("llvm-cpu", 1)
    built_in = [template.id for template in templates_for(target, None)]
    load(tmp_path, template_text(), "mine.mlir")
    assert [template.id for template in templates_for(target, tmp_path)] == [*built_in, "mine"]


def test_a_users_template_can_not_take_the_place_of_a_built_in_one(tmp_path: Path) -> None:
    target = resolve("llvm-cpu", 1)
    taken = templates_for(target, None)[0].id
    load(tmp_path, template_text(), f"{taken}.mlir")
    with pytest.raises(TemplateError, match="built-in"):
        templates_for(target, tmp_path)


def test_a_dim_that_is_neither_a_role_nor_a_fact_is_told(tmp_path: Path) -> None:
    template = load(tmp_path, template_text(dims={"m": 8, "lanse": 16}))
    with pytest.raises(TemplateError, match=r"'lanse'.*lanes"):
        TemplateSpace(template, {"m": 8, "lanes": 16})


def test_a_role_that_the_workload_lacks_is_a_loop_of_one(tmp_path: Path) -> None:
    template = load(tmp_path, template_text(dims={"m": 8, "m1": 4}))
    assert TemplateSpace(template, {"m": 8, "lanes": 16}).dims == {"m": 8, "m1": 1}

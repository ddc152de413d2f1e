"""Spaces out of the compiler's own constraints: exactly its solutions, and fast."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
import z3
from spec_time_functions import matmul as function_of_matmul
from spec_time_functions import read

from mlsearch import toolchain
from mlsearch.cuda.chips import find_chip
from mlsearch.errors import TemplateError
from mlsearch.ir import emitted
from mlsearch.ir.template import Assertion, Expression
from mlsearch.payload import load_payload
from mlsearch.space.bounds import bounded_domains
from mlsearch.space.emitted import EmittedTemplate, emitted_templates, template_of
from mlsearch.space.space import build_space
from mlsearch.space.template import Template, built_in_folder
from mlsearch.space.template_space import TemplateSpace
from mlsearch.space.terms import reduced, text_of
from mlsearch.target import resolve
from mlsearch.task import cut


def matmul(m: int, n: int, k: int, inputs: str = "f16") -> str:
    return f"""
func.func @f(%a: tensor<{m}x{k}x{inputs}>, %b: tensor<{k}x{n}x{inputs}>, %c: tensor<{m}x{n}xf32>)
    -> tensor<{m}x{n}xf32> {{
  %d = linalg.matmul ins(%a, %b : tensor<{m}x{k}x{inputs}>, tensor<{k}x{n}x{inputs}>)
                     outs(%c : tensor<{m}x{n}xf32>) -> tensor<{m}x{n}xf32>
  return %d : tensor<{m}x{n}xf32>
}}
"""


def emit(payload: str, folder: Path) -> list[str]:
    """What the compiler emits for a payload with one dispatch, on sm_80."""
    source, output = folder / "payload.mlir", folder / "configured.mlir"
    source.write_text(payload)
    argv = toolchain.compile_argv(
        source,
        output,
        resolve("cuda:sm_80", 1).compile_flags,
        compile_to="executable-configurations",
        extra=("--iree-codegen-emit-pipeline-constraints",),
    )
    done = toolchain.run(argv)
    assert done.returncode == 0, done.stderr[:1000]
    return emitted.emitted_in(output.read_text())


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return emit(matmul(64, 32, 64), tmp_path_factory.mktemp("small"))


def exactly(text: str) -> tuple[EmittedTemplate, TemplateSpace]:
    template = template_of(text, "emitted", Path("emitted.mlir"), None, opened=False)
    return template, TemplateSpace(template, template.emitted.dims)


def z3_solutions(text: str) -> set[tuple[tuple[str, int], ...]]:
    """All assignments of the knobs, found one by one by blocking each that was found."""
    solver = z3.Solver()
    solver.from_string(emitted.smtlib(text))
    names = set(re.findall(r"iree_codegen.smt.knob \"(\w+)\"", text))
    found = set()
    while solver.check() == z3.sat:
        model = solver.model()
        knobs = {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names}
        found.add(tuple(sorted(knobs.items())))
        solver.add(z3.Or([z3.Int(name) != value for name, value in knobs.items()]))
    return found


@pytest.mark.parametrize("index", [0, 1], ids=["TileAndFuse", "VectorDistribute"])
def test_the_space_is_exactly_what_an_smt_solver_finds(small: list[str], index: int) -> None:
    template, space = exactly(small[index])
    ours = {tuple(sorted(template.numbers(candidate.knobs).items())) for candidate in space}
    assert len(ours) == len(space) > 10
    assert ours == z3_solutions(small[index])


def test_ragged_sizes_agree_with_the_solver_too(tmp_path: Path) -> None:
    for text in emit(matmul(40, 24, 33), tmp_path):
        template, space = exactly(text)
        assert {tuple(sorted(template.numbers(each.knobs).items())) for each in space} == z3_solutions(text)


def test_a_large_space_is_enumerated_in_less_than_two_seconds(tmp_path: Path) -> None:
    texts = emit(matmul(1024, 1024, 1024), tmp_path)
    began = time.process_time()
    sizes = [len(exactly(text)[1]) for text in texts]
    assert time.process_time() - began < 2
    assert sizes == [1401, 1016]


def test_what_follows_from_other_knobs_is_worked_out_and_not_searched(small: list[str]) -> None:
    template, _ = exactly(small[1])
    assert {"wg_size_x", "wg_size_y", "wg_size_z", "sg_size", "prefetch_num_stages"} <= set(template.derived)
    assert not set(template.derived) & {knob.name for knob in template.knobs}
    assert text_of(template.derived["wg_size_x"]) == "(sg_m_cnt * sg_n_cnt * 32)"


def test_the_compiler_materializes_every_assignment(small: list[str]) -> None:
    for text in small:
        template, space = exactly(text)
        for candidate in space:
            info = template.compilation_info(candidate.knobs)
            assert info.startswith(
                "#iree_codegen.compilation_info<lowering_config = #iree_gpu.lowering_config<{mma_kind"
            )
            assert f"workgroup_size = [{template.numbers(candidate.knobs)['wg_size_x']}, 1, 1]" in info


def test_options_that_the_compiler_fixes_are_opened_where_it_acts_upon_them(small: list[str]) -> None:
    tile_and_fuse, vector_distribute = (template_of(text, "e", Path("e"), None) for text in small)
    opened = {"no_reduce_shared_memory_bank_conflicts", "reorder_workgroups_strategy"}
    assert opened & {knob.name for knob in tile_and_fuse.knobs} == {"no_reduce_shared_memory_bank_conflicts"}
    assert opened <= {knob.name for knob in vector_distribute.knobs}
    knobs = {knob.name: knob.values[-1] for knob in vector_distribute.knobs}
    info = vector_distribute.compilation_info(knobs)
    assert "no_reduce_shared_memory_bank_conflicts = true" in info
    assert "reorder_workgroups_strategy = <Transpose>" in info


def test_a_chips_registers_keep_known_spillers_out(tmp_path: Path) -> None:
    text = emit(matmul(512, 512, 64), tmp_path)[0]
    chip = find_chip("sm_80")
    template = template_of(text, "e", Path("e"), chip)
    space = TemplateSpace(template, template.emitted.dims)
    for candidate in space:
        numbers = template.numbers(candidate.knobs)
        assert numbers["wg_0"] * numbers["wg_1"] // numbers["wg_size_x"] <= 128
    free = template_of(text, "e", Path("e"), None)
    assert 0 < len(space) < len(TemplateSpace(free, free.emitted.dims))


def test_a_ragged_contraction_is_padded_to_its_tile(tmp_path: Path) -> None:
    text = emit(matmul(91, 127, 33), tmp_path)[0]
    template = template_of(text, "e", Path("e"), find_chip("sm_80"))
    candidate = next(iter(TemplateSpace(template, template.emitted.dims)))
    numbers = template.numbers(candidate.knobs)
    padding = f"padding = [{numbers['wg_0']}, {numbers['wg_1']}, {16 * numbers['red_2']}]"
    assert padding in template.compilation_info(candidate.knobs)


def test_tiles_of_a_ragged_contraction_may_be_powers_of_two(tmp_path: Path) -> None:
    template = template_of(emit(matmul(731, 127, 33), tmp_path)[0], "e", Path("e"), find_chip("sm_80"))
    [rows] = [knob for knob in TemplateSpace(template, template.emitted.dims).knobs if knob.name == "wg_0"]
    # 731 rounded up is 46 times 16, whose other divisors are 32 and 368.
    assert {16, 32, 64, 128, 368} <= set(rows.values)
    even = template_of(emit(matmul(96, 128, 32), tmp_path)[0], "e", Path("e"), find_chip("sm_80"))
    [rows] = [knob for knob in TemplateSpace(even, even.emitted.dims).knobs if knob.name == "wg_0"]
    assert 64 not in rows.values


def test_a_ragged_convolution_is_padded_as_implicit_gemm_and_cut_without_a_rest_as_itself(tmp_path: Path) -> None:
    image, filters, out = "tensor<1x16x30x32xf16>", "tensor<3x3x32x32xf16>", "tensor<1x14x28x32xf32>"
    itself, implicit, *_ = emit(
        f"""
func.func @f(%image: {image}, %filter: {filters}, %c: {out}) -> {out} {{
  %d = linalg.conv_2d_nhwc_hwcf ins(%image, %filter : {image}, {filters}) outs(%c : {out}) -> {out}
  return %d : {out}
}}
""",
        tmp_path,
    )
    template = template_of(implicit, "e", Path("e"), find_chip("sm_80"))
    candidate = next(iter(TemplateSpace(template, template.emitted.dims)))
    numbers = template.numbers(candidate.knobs)
    tile = [numbers[f"wg_{index}"] for index in range(3)]
    info = template.compilation_info(candidate.knobs)
    assert f"padding = {[*tile, 16 * numbers['red_5']]}" in info
    assert f"padding_conv = {[*tile, 0, 0, 0]}" in info
    template = template_of(itself, "e", Path("e"), find_chip("sm_80"))
    [columns] = [knob for knob in TemplateSpace(template, template.emitted.dims).knobs if knob.name == "wg_1"]
    # 28 rounded up is 32: all of it, not 16 and a rest.
    assert columns.values == (32,)


def test_constraints_that_cannot_be_followed_become_a_note(
    small: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = tmp_path / "payload.mlir"
    payload.write_text(matmul(64, 32, 64))
    target = resolve("cuda:sm_80", 1)
    [task] = cut(load_payload(payload, target, tmp_path, None), target, tmp_path)
    (tmp_path / "task.configurations.mlir").write_text("")
    monkeypatch.setattr(toolchain, "run", lambda argv: toolchain.ToolRun(argv, 0, "", ""))
    monkeypatch.setattr(emitted, "emitted_in", lambda text: ["module {}", small[1]])
    found, note = emitted_templates(replace(task, module=tmp_path / "task.mlir"), target)
    assert [template.id for template in found] == ["cuda/emitted_vector_distribute"]
    assert "t0: a space that the compiler emits can't be followed: a module with 0 iree_codegen" in note


def test_only_emitted_spaces_with_a_candidate_count(small: list[str]) -> None:
    view, target = read(function_of_matmul(64, 32, 64, types="f16")), resolve("cuda:sm_80", 1)
    template = template_of(small[0], "emitted", Path("emitted.mlir"), find_chip("sm_80"))
    never = Assertion(Expression("eq", (Expression("constant", value=0), Expression("constant", value=1))), "never", ())
    declared = template.declarations
    empty = replace(template, declarations=replace(declared, assertions=(*declared.assertions, never)))
    stand_in = Template.load(built_in_folder() / "cuda" / "contraction_mma.mlir", built_in_folder())
    assert list(build_space(view, [template, stand_in], target).parts) == ["emitted"]
    assert list(build_space(view, [empty, stand_in], target).parts) == ["cuda/contraction_mma"]


# ------------------------------------------------------------------------------- terms and bounds


def knob(name: str) -> Expression:
    return Expression("knob", value=name)


def number(value: int) -> Expression:
    return Expression("constant", value=value)


def holds(op: str, *arguments: Expression, value: str | int = 0) -> Assertion:
    return Assertion(Expression(op, arguments, value), "", ())


def test_an_unknown_in_a_product_is_solved_for() -> None:
    product = Expression("int.mul", (knob("sg"), Expression("unknown", value="count"), number(16)))
    short = reduced([holds("eq", knob("wg"), product)])
    # The division may leave a rest, so the equation stays.
    assert [text_of(each.condition) for each in short.assertions] == ["(wg = (sg * (wg / (sg * 16)) * 16))"]
    assert short.derived == {}


def test_an_unknown_that_nothing_determines_is_refused() -> None:
    with pytest.raises(TemplateError, match="no constraint determines count"):
        reduced([holds("int.cmp", Expression("unknown", value="count"), number(3), value="le")])


def test_bounds_go_through_products_and_divisors() -> None:
    assertions = [
        holds("int.cmp", knob("a"), number(1), value="ge"),
        holds("int.cmp", knob("b"), number(1), value="ge"),
        holds("int.cmp", Expression("int.mul", (knob("a"), number(16))), number(64), value="le"),
        holds("eq", Expression("int.mod", (knob("a"), knob("b"))), number(0)),
    ]
    assert bounded_domains(["a", "b"], {}, assertions, {}) == {"a": (1, 2, 3, 4), "b": (1, 2, 3, 4)}


def test_a_knob_without_bounds_is_refused() -> None:
    with pytest.raises(TemplateError, match="knob 'a' between 1 and inf"):
        bounded_domains(["a"], {}, [holds("int.cmp", knob("a"), number(1), value="ge")], {})


def test_contradictions_leave_no_value_at_all() -> None:
    """A matmul with 7 columns holds no whole instruction of 8, so no number of them makes a tile."""
    count, held = knob("count"), number(7 // 8)
    assertions = [
        holds("int.cmp", count, number(1), value="ge"),
        holds("int.cmp", count, held, value="le"),
        holds("eq", Expression("int.div", (number(7), count)), knob("tiles")),
    ]
    assert bounded_domains(["count", "tiles"], {}, assertions, {}) == {"count": (), "tiles": ()}


def test_constraints_that_contradict_each_other_leave_no_value() -> None:
    # As IREE's do for loops shorter than a matrix instruction: b is 0, and what b divides is divided by 0.
    assertions = [
        holds("int.cmp", knob("b"), number(1), value="ge"),
        holds("int.cmp", knob("b"), number(0), value="le"),
        holds("int.cmp", knob("a"), number(1), value="ge"),
        holds("int.cmp", Expression("int.mul", (knob("a"), knob("b"))), number(4), value="ge"),
    ]
    assert bounded_domains(["a", "b"], {}, assertions, {}) == {"a": (), "b": ()}

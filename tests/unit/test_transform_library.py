"""Libraries that match one dispatch exactly, and the proof that any library's entries have fired."""

from __future__ import annotations

from pathlib import Path

import pytest
from iree.compiler.dialects.transform import interpreter
from small_templates import load, template_text
from spec_time_functions import elementwise, function_text, matmul, matmul_then, read, softmax
from test_content_key import SCALE_AND_SHIFT, constants

from mlsearch.errors import SpecError
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.library import (
    EMPTY_LIBRARY,
    ENTRY_POINT,
    MARKER,
    EntryText,
    entry_text,
    library_text,
    readable,
)
from mlsearch.ir.module import new_context, parse, symbol_name, symbol_ref, top_level, walk
from mlsearch.ir.proof import instrumented, proofs

SCHEDULE = """
transform.named_sequence {name}(%root: !transform.any_op {{transform.readonly}}) {{
  transform.yield
}}
"""


def entry(name: str, view: DispatchView, *, is_strategy: bool = False) -> EntryText:
    return entry_text(name, view, SCHEDULE.format(name=symbol_ref(f"schedule_{name}")), {}, is_strategy)


def fired(library: str, function: str) -> list[str]:
    """Entries that leave their mark on a function."""
    context = new_context()
    module, payload = parse(library, context), parse(function, context)
    start = next(op for op in top_level(module) if symbol_name(op) == ENTRY_POINT)
    interpreter.apply_named_sequence(payload.body.operations[0].operation, start, module)
    marks = [op.attributes[MARKER].value for op in walk(payload.operation) if MARKER in op.attributes]
    return sorted(marks)


def test_an_entry_fires_on_its_own_dispatch_wherever_it_stands() -> None:
    library = library_text([entry("mm", read(matmul()))])
    assert fired(library, matmul()) == ["mm"]
    assert fired(library, matmul(name="elsewhere", offset=64)) == ["mm"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(matmul(64, 96, 49), id="another size"),
        pytest.param(matmul(types="f16"), id="another type"),
        pytest.param(matmul_then("%y = math.exp %x0 : f32"), id="something fused"),
        pytest.param(softmax(), id="another op"),
        pytest.param(matmul().replace("constant 0.0", "constant 1.0"), id="another start value"),
    ],
)
def test_an_entry_leaves_other_dispatches_alone(other: str) -> None:
    assert fired(library_text([entry("mm", read(matmul()))]), other) == []


EPILOGUES = {
    "exp": matmul_then("%y = math.exp %x0 : f32"),
    "tanh": matmul_then("%y = math.tanh %x0 : f32"),
    "constant inside": matmul_then("%c = arith.constant 1.0 : f32\n%y = arith.addf %x0, %c : f32"),
    "another inside": matmul_then("%c = arith.constant 2.0 : f32\n%y = arith.addf %x0, %c : f32"),
    "captured": matmul_then(SCALE_AND_SHIFT, constants=constants("2.0", "3.0")),
    "another captured": matmul_then(SCALE_AND_SHIFT, constants=constants("2.0", "4.0")),
    "captured the other way": matmul_then(SCALE_AND_SHIFT, constants=constants("3.0", "2.0")),
}


def test_the_same_root_op_with_other_fused_ops_gets_its_own_entry() -> None:
    library = library_text([entry(name, read(text)) for name, text in EPILOGUES.items()])
    assert {name: fired(library, text) for name, text in EPILOGUES.items()} == {name: [name] for name in EPILOGUES}


def test_the_ops_of_a_softmax_are_all_handed_to_the_schedule(tmp_path: Path) -> None:
    view = read(softmax())
    companions = {i: f"#iree_cpu.lowering_config<distribution = [{i}]>" for i in range(5) if i != view.root}
    text = entry_text("sm", view, SCHEDULE.format(name="@schedule_sm"), companions, False)
    library = parse(library_text([text]), (context := new_context()))
    payload = parse(softmax(), context)
    start = next(op for op in top_level(library) if symbol_name(op) == ENTRY_POINT)
    interpreter.apply_named_sequence(payload.body.operations[0].operation, start, library)
    computing = [op for op in walk(payload.operation) if op.name.startswith("linalg.") and op.name != "linalg.yield"]
    found = [str(op.attributes["lowering_config"]) if "lowering_config" in op.attributes else "" for op in computing]
    assert found == [companions.get(i, "") for i in range(5)]


@pytest.mark.parametrize("name", ["plain", "two words", 'a "quoted" one', "dash-ed", "naïve", "back\\slash", "0"])
def test_entries_may_have_any_name(name: str) -> None:
    library = readable(library_text([entry(name, read(elementwise()))]))
    assert fired(library, elementwise()) == [name]


def test_a_library_of_lowering_configs_offers_itself_as_a_tuning_spec_and_one_with_a_strategy_does_not() -> None:
    plain = library_text([entry("a", read(matmul()))])
    assert "iree_codegen.tuning_spec_with_default_entrypoint" in plain
    assert "iree_codegen.tuning_spec_entrypoint" in plain
    mixed = library_text([entry("a", read(matmul())), entry("b", read(elementwise()), is_strategy=True)])
    assert "tuning_spec" not in readable(mixed)


def test_an_empty_library_parses_and_changes_nothing() -> None:
    assert library_text([]) == EMPTY_LIBRARY
    assert fired(readable(EMPTY_LIBRARY), matmul()) == []
    assert instrumented(EMPTY_LIBRARY, "x") == (EMPTY_LIBRARY, ())


def test_what_no_stored_value_depends_on_can_not_be_scheduled() -> None:
    t = "tensor<8xf32>"
    one, other = (elementwise("8").split("%e = ")[1].split("\niree_tensor")[0] for _ in range(2))
    body = "%e = " + one + "\n%e2 = " + other.replace("%r", "%r2").replace("%e :", "%e2 :")
    view = read(function_text({"%a": t}, body, {"%r": t, "%r2": t}))
    with pytest.raises(SpecError, match="no stored value depends"):
        entry_text(
            "x", view, SCHEDULE.format(name="@schedule_x"), {0: "#iree_cpu.lowering_config<distribution = [1]>"}, False
        )


def test_a_template_binds_into_a_library_that_schedules_its_dispatch(tmp_path: Path) -> None:
    template, view = load(tmp_path, template_text()), read(matmul())
    text = template.entry("mm", view, None, {"tile": 4, "count": 2, "peel": "true"}, 16)
    library, payload = parse(library_text([text]), (context := new_context())), parse(matmul(), context)
    start = next(op for op in top_level(library) if symbol_name(op) == ENTRY_POINT)
    function = payload.body.operations[0].operation
    interpreter.apply_named_sequence(function, start, library)
    root = next(op for op in walk(function) if op.name == "linalg.matmul")
    assert str(root.attributes["lowering_config"]) == (
        "#iree_cpu.lowering_config<distribution = [8, 1, 0], vector_common_parallel = [4, 1, 0],"
        " vector_reduction = [0, 0, 1]>"
    )
    assert "enable_loop_peeling" in str(function.attributes["translation_info"])
    assert "mlsearch.bind" not in str(library)


# ---------------------------------------------------------------------------------------------- proof


HAND_WRITTEN = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @"match_first one"(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["linalg.matmul"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }
  transform.named_sequence @other(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["linalg.generic"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }
  transform.named_sequence @act(%op: !transform.any_op {transform.readonly}) {
    transform.annotate %op "seen" : !transform.any_op
    transform.yield
  }
  transform.named_sequence @__kernel_config(%v: !transform.any_op {transform.consumed}) {
    transform.foreach_match in %v @"match_first one" -> @act, @other -> @act : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


def applied(library: str, function: str) -> dict[str, tuple[str, ...]]:
    context = new_context()
    module, payload = parse(library, context), parse(function, context)
    start = next(op for op in top_level(module) if symbol_name(op) == ENTRY_POINT)
    interpreter.apply_named_sequence(payload.body.operations[0].operation, start, module)
    return proofs(str(payload))


def test_each_matcher_of_a_hand_written_library_is_an_entry_even_if_they_share_an_action() -> None:
    marked, entries = instrumented(HAND_WRITTEN, "x.mlir")
    assert entries == ("first one", "other")
    assert applied(marked, matmul(name="f")) == {"first one": ("f",)}
    assert applied(marked, elementwise(name='"g h"')) == {"other": ("g h",)}
    assert applied(marked, function_text({"%a": "tensor<1xf32>"}, "", {"%a": "tensor<1xf32>"})) == {}


def test_the_marked_copy_still_does_what_the_library_does() -> None:
    marked, _ = instrumented(HAND_WRITTEN, "x.mlir")
    context = new_context()
    module, payload = parse(marked, context), parse(matmul(), context)
    start = next(op for op in top_level(module) if symbol_name(op) == ENTRY_POINT)
    interpreter.apply_named_sequence(payload.body.operations[0].operation, start, module)
    assert [op.name for op in walk(payload.operation) if "seen" in op.attributes] == ["linalg.matmul"]


def test_our_own_entries_are_proven_by_their_names() -> None:
    marked, entries = instrumented(library_text([entry("a b", read(matmul()))]), "x")
    assert entries == ("a b",)
    assert applied(marked, matmul(name="f")) == {"a b": ("f",)}


def test_the_op_of_an_action_need_not_be_its_first_argument() -> None:
    text = HAND_WRITTEN.replace(
        "-> !transform.any_op {\n    transform.match.operation_name %op",
        "-> (!transform.any_param, !transform.any_op) {\n"
        "    %p = transform.param.constant 1 : i64 -> !transform.any_param\n"
        "    transform.match.operation_name %op",
    )
    text = text.replace(
        "transform.yield %op : !transform.any_op", "transform.yield %p, %op : !transform.any_param, !transform.any_op"
    )
    text = text.replace("@act(%op:", "@act(%p: !transform.any_param {transform.readonly}, %op:")
    marked, _ = instrumented(text, "x.mlir")
    assert applied(marked, matmul(name="f")) == {"first one": ("f",)}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("module {", "not a transform library"),
        (HAND_WRITTEN.replace("@__kernel_config", "@start"), "no sequence @__kernel_config"),
        (
            HAND_WRITTEN.replace("transform.foreach_match in %v", "transform.foreach_match in %v").replace(
                '    transform.foreach_match in %v @"match_first one" -> @act, @other -> @act'
                " : (!transform.any_op) -> !transform.any_op\n",
                '    transform.annotate %v "x" : !transform.any_op\n',
            ),
            "no transform.foreach_match",
        ),
        (
            HAND_WRITTEN.replace("@act(%op: !transform.any_op {transform.readonly})", "@act()")
            .replace('    transform.annotate %op "seen" : !transform.any_op\n', "")
            .replace("-> !transform.any_op {\n    transform.match", "{\n    transform.match")
            .replace("transform.yield %op : !transform.any_op", "transform.yield"),
            "gets no op",
        ),
    ],
)
def test_a_library_that_can_not_be_followed_is_told_by_name(text: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        instrumented(text, "my spec.mlir")
    assert words in str(caught.value)
    assert "my spec.mlir" in str(caught.value)


def test_an_action_that_is_not_defined_is_told() -> None:
    # MLIR's own verifier refuses it when the text is parsed.
    with pytest.raises(SpecError, match=r"my spec.mlir.*gone"):
        instrumented(HAND_WRITTEN.replace("-> @act", "-> @gone"), "my spec.mlir")


def test_a_library_that_forges_the_mark_is_refused() -> None:
    forged = HAND_WRITTEN.replace('"seen"', '"mlsearch.proof7"')
    with pytest.raises(SpecError, match=r"mlsearch\.proof"):
        instrumented(forged, "x.mlir")


def test_two_entries_of_one_name_are_told_apart() -> None:
    twice = HAND_WRITTEN.replace("@other", "@match_other").replace('@"match_first one"', "@other")
    _, entries = instrumented(twice, "x.mlir")
    assert entries == ("other", "other#1")

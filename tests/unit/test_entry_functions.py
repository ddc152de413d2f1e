"""How a user calls a payload's functions, read from IREE's own declarations."""

from __future__ import annotations

import pytest

from mlsearch.candidate import TensorSpec
from mlsearch.ir.flow import EntryFunction, entry_functions, tensor_spec
from mlsearch.ir.module import new_context, parse, string_literal, symbol_ref


def function(name: str, declaration: str | None, *, private: bool = False) -> str:
    attributes = "{iree.abi.stub}"
    if declaration is not None:
        attributes = f"{{iree.reflection = {{iree.abi.declaration = {string_literal(declaration)}}}}}"
    visibility = "private" if private else "public"
    return f"util.func {visibility} {symbol_ref(name)}() attributes {attributes} {{ util.return }}"


def entries(*functions: str) -> list[EntryFunction]:
    return entry_functions(parse("\n".join(functions), new_context()))


def declared(name: str, arguments: str, results: str) -> EntryFunction:
    [entry] = entries(function(name, f"sync func @{name}({arguments}) -> ({results})"))
    return entry


F32_2X3 = TensorSpec((2, 3), "f32")


def test_tensors_of_known_shape_are_called_as_declared() -> None:
    entry = declared("main", "%input0: tensor<2x3xf32>, %input1: tensor<f64>", "%output0: tensor<4xi8>")
    assert entry.problem == ""
    assert entry.signature is not None
    assert entry.signature.inputs == (F32_2X3, TensorSpec((), "f64"))
    assert entry.signature.outputs == (TensorSpec((4,), "i8"),)
    assert entry.signature.out_buffers == ()
    assert entry.signature.function == "main"


@pytest.mark.parametrize(
    "name", ["tf$async_x", "Graph in PIR mode", 'a "quoted" one', "naïve µ", "back\\slash", "f(%x: i32) -> (", "a@b("]
)
def test_names_may_hold_anything(name: str) -> None:
    entry = declared(name, "%input0: tensor<2x3xf32>", "%output0: tensor<2x3xf32>")
    assert entry.name == name
    assert entry.signature is not None
    assert (entry.signature.inputs, entry.signature.outputs) == ((F32_2X3,), (F32_2X3,))


def test_several_results_and_none_at_all() -> None:
    several = declared("f", "%input0: tensor<2x3xf32>", "%output0: tensor<2x3xf32>, %output1: tensor<i1>")
    assert several.signature is not None
    assert several.signature.outputs == (F32_2X3, TensorSpec((), "i1"))
    nothing = declared("f", "", "")
    assert nothing.signature is not None
    assert (nothing.signature.inputs, nothing.signature.outputs) == ((), ())


def test_attributes_of_arguments_and_results_are_skipped() -> None:
    entry = declared(
        "f",
        '%input0: tensor<2x3xf32> {iree.identifier = "my input"}, '
        "%input1: tensor<2x3xf32> {iree.abi.output = 0 : index}",
        '%output0: tensor<2x3xf32> {iree.identifier = "o.1"}',
    )
    assert entry.signature is not None
    assert entry.signature.inputs == (F32_2X3, F32_2X3)
    assert entry.signature.outputs == (F32_2X3,)


@pytest.mark.parametrize("odd", ["tensor<?x3xf32>", "i32", "!hal.fence", "tensor<2xcomplex<f32>>", "tensor<2xindex>"])
def test_what_is_no_tensor_of_known_shape_is_named(odd: str) -> None:
    entry = declared("f", f"%input0: tensor<2x3xf32>, %input1: {odd}", "%output0: tensor<2x3xf32>")
    assert entry.signature is None
    assert entry.problem == f"{odd} is not a tensor of known shape"


def test_attributes_that_are_not_understood_are_no_reason_to_call_with_too_few_tensors() -> None:
    entry = declared("f", "%input0: tensor<2x3xf32> {a = {b = 1 : i32}}, %input1: tensor<i1>", "%output0: tensor<i1>")
    assert entry.signature is None or len(entry.signature.inputs) == 2


def test_a_text_in_an_attribute_may_look_like_an_argument() -> None:
    entry = declared("f", '%input0: tensor<2x3xf32> {iree.identifier = "a, %x: i32"}', "%output0: tensor<i1>")
    assert entry.signature is None or entry.signature.inputs == (F32_2X3,)


ASYNCHRONOUS = """
util.func public @"tf$0$async"(%a: !hal.buffer_view, %wait: !hal.fence, %done: !hal.fence) -> !hal.buffer_view {
  %0 = hal.tensor.import wait(%wait) => %a : !hal.buffer_view -> tensor<2x3xf32>
  %1 = hal.tensor.barrier join(%0 : tensor<2x3xf32>) => %done : !hal.fence
  %2 = hal.tensor.export %1 : tensor<2x3xf32> -> !hal.buffer_view
  util.return %2 : !hal.buffer_view
}
util.func public @"tf$0"(%a: !hal.buffer_view) -> !hal.buffer_view {
  %fence = util.null : !hal.fence
  %0 = util.call @"tf$0$async"(%a, %fence, %fence) : (!hal.buffer_view, !hal.fence, !hal.fence) -> !hal.buffer_view
  util.return %0 : !hal.buffer_view
}
"""


def test_an_asynchronous_function_without_a_declaration_is_read_from_its_body() -> None:
    [entry] = entries(ASYNCHRONOUS)
    assert entry.name == "tf$0"
    assert entry.signature is not None
    assert (entry.signature.inputs, entry.signature.outputs) == ((F32_2X3,), (F32_2X3,))


def test_a_function_without_a_declaration_and_with_dynamic_dims_can_not_be_called() -> None:
    dynamic = """
    util.func public @f(%a: !hal.buffer_view) {
      %c1 = arith.constant 1 : index
      %0 = hal.tensor.import %a : !hal.buffer_view -> tensor<?x3xf32>{%c1}
      util.return
    }"""
    [entry] = entries(dynamic)
    assert entry.signature is None
    assert entry.problem == "tensor<?x3xf32> is not a tensor of known shape"


def test_private_functions_and_the_async_twin_are_not_for_users() -> None:
    declaration = "sync func @f() -> ()"
    found = entries(
        function("f", declaration),
        function("f$async", None),
        function("g$async", None),
        function("hidden", declaration, private=True),
    )
    assert [entry.name for entry in found] == ["f", "g$async"]


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("tensor<2x3xf32>", F32_2X3),
        ("tensor<f32>", TensorSpec((), "f32")),
        ("tensor<0x3xf32>", TensorSpec((0, 3), "f32")),
        ("tensor<5xbf16>", TensorSpec((5,), "bf16")),
        ("tensor<5xf8E4M3FN>", TensorSpec((5,), "f8E4M3FN")),
        ("tensor<5xui8>", TensorSpec((5,), "ui8")),
        ("tensor<?x3xf32>", None),
        ("tensor<*xf32>", None),
        ("tensor<2xf32, #iree_encoding.layout<[]>>", None),
        ("tensor<2xcomplex<f32>>", None),
        ("memref<2xf32>", None),
        ("f32", None),
    ],
)
def test_tensor_types_as_values(text: str, spec: TensorSpec | None) -> None:
    assert tensor_spec(text) == spec

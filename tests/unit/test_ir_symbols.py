"""Names from payloads go through MLIR's text and come back as they were."""

from __future__ import annotations

import pytest
from iree.compiler import ir as mlir

from mlsearch.ir.module import IrError, new_context, parse, python_value, string_literal, symbol_name, symbol_ref

NAMES = [
    "main",
    "tf2onnx$async_dispatch_5",
    "a.b-c_d",
    "PaddlePaddle Graph in PIR mode",
    'with "quotes"',
    "back\\slash",
    "\\22 is no quote",
    "ends in \\",
    "naïve µ 日本",
    "0starts_with_a_digit",
    "tab\tand\nnewline",
    "a{b}(c)@d%e#f",
    "-",
    "$",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_round_trips_as_a_symbol(name: str) -> None:
    module = parse(f"func.func private {symbol_ref(name)}()", new_context())
    assert symbol_name(module.body.operations[0].operation) == name
    again = parse(str(module), new_context())
    assert symbol_name(again.body.operations[0].operation) == name


@pytest.mark.parametrize("name", [*NAMES, ""])
def test_a_text_round_trips_as_a_string(name: str) -> None:
    with new_context():
        attribute = mlir.Attribute.parse(string_literal(name))
    assert python_value(attribute) == name


def test_plain_names_stay_readable() -> None:
    assert symbol_ref("tf2onnx$async.x_1") == "@tf2onnx$async.x_1"
    assert symbol_ref("two words") == '@"two words"'


def test_attributes_become_plain_values() -> None:
    with new_context():
        attribute = mlir.Attribute.parse('{a = [1, true, "x"], b = array<i64: 3, 4>, c = {d = 5 : i32}, e = f32}')
    assert python_value(attribute) == {"a": [1, True, "x"], "b": [3, 4], "c": {"d": 5}, "e": "f32"}
    assert python_value(attribute)["a"][1] is True  # type: ignore[index]


def test_what_does_not_parse_is_one_line_with_its_place() -> None:
    with pytest.raises(IrError) as caught:
        parse("func.func @f() {\n  nonsense\n}", new_context())
    assert "2:" in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1

"""Equal computations have equal keys; different ones have different keys."""

from __future__ import annotations

import re

import pytest
from spec_time_functions import elementwise, matmul, matmul_then, read, softmax


def key(text: str) -> str:
    return read(text).workload.key


SCALE_AND_SHIFT = "%p = arith.mulf %x0, %scale : f32\n%y = arith.addf %p, %shift : f32"


def constants(scale: str, shift: str) -> str:
    return f"%scale = arith.constant {scale} : f32\n%shift = arith.constant {shift} : f32"


def test_names_of_functions_and_values_do_not_count() -> None:
    renamed = re.sub(r"%(\w)", r"%other_\1", matmul(name="elsewhere"))
    assert key(renamed) == key(matmul())


def test_where_the_buffers_lie_does_not_count() -> None:
    assert key(matmul(offset=4096)) == key(matmul())


def test_printing_and_parsing_again_changes_nothing() -> None:
    view = read(softmax())
    assert key(view.function) == view.workload.key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(matmul(64, 96, 48), matmul(64, 96, 49), id="another shape"),
        pytest.param(matmul(types="f32"), matmul(types="f16"), id="another type"),
        pytest.param(matmul(), matmul_then("%y = math.exp %x0 : f32"), id="something fused"),
        pytest.param(
            matmul_then("%y = math.exp %x0 : f32"), matmul_then("%y = math.tanh %x0 : f32"), id="another op in a body"
        ),
        pytest.param(
            matmul_then("%y = arith.subf %x0, %acc : f32"),
            matmul_then("%y = arith.subf %acc, %x0 : f32"),
            id="operands of an op in a body swapped",
        ),
        pytest.param(
            matmul_then("%c = arith.constant 1.0 : f32\n%y = arith.addf %x0, %c : f32"),
            matmul_then("%c = arith.constant 2.0 : f32\n%y = arith.addf %x0, %c : f32"),
            id="another constant in a body",
        ),
        pytest.param(
            matmul_then(SCALE_AND_SHIFT, constants=constants("2.0", "3.0")),
            matmul_then(SCALE_AND_SHIFT, constants=constants("2.0", "4.0")),
            id="another constant that a body captures",
        ),
        pytest.param(
            matmul_then(SCALE_AND_SHIFT, constants=constants("2.0", "3.0")),
            matmul_then(
                SCALE_AND_SHIFT.replace("%scale", "%t").replace("%shift", "%scale").replace("%t", "%shift"),
                constants=constants("2.0", "3.0"),
            ),
            id="captured constants swapped",
        ),
        pytest.param(elementwise("32x32"), elementwise("1024"), id="another rank"),
    ],
)
def test_what_is_computed_counts(one: str, other: str) -> None:
    assert key(one) != key(other)


def test_where_the_loops_of_a_generic_run_counts() -> None:
    plain = elementwise("32x32")
    transposed = plain.replace("affine_map<(d0, d1) -> (d0, d1)>, ", "affine_map<(d0, d1) -> (d1, d0)>, ", 1)
    assert transposed != plain
    assert key(transposed) != key(plain)


def test_a_fill_with_another_value_is_another_computation() -> None:
    zero = matmul()
    assert key(zero.replace("arith.constant 0.0 : f32", "arith.constant 1.0 : f32")) != key(zero)

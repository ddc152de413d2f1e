from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from mlsearch.candidate import TensorSpec
from mlsearch.runner.elements import UnknownElementError, element
from mlsearch.runner.inputs import make_inputs


def test_equal_seeds_give_equal_inputs_and_each_input_its_own() -> None:
    specs = [TensorSpec((4, 5), "f32"), TensorSpec((4, 5), "f32")]
    first, again, other = make_inputs(specs, 3), make_inputs(specs, 3), make_inputs(specs, 4)
    assert np.array_equal(first[0], again[0])
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first[0], other[0])


def test_an_input_does_not_depend_on_the_ones_before_it() -> None:
    here = make_inputs([TensorSpec((2,), "f32"), TensorSpec((8,), "f32")], 3)[1]
    there = make_inputs([TensorSpec((99,), "i8"), TensorSpec((8,), "f32")], 3)[1]
    assert np.array_equal(here, there)


def test_floats_are_standard_normal() -> None:
    values = make_inputs([TensorSpec((10_000,), "f32")], 0)[0]
    assert values.dtype == np.float32
    assert abs(values.mean()) < 0.05
    assert abs(values.std() - 1) < 0.05


def test_positive_floats_have_roots_and_logarithms() -> None:
    values = make_inputs([TensorSpec((1000,), "bf16")], 0, "positive")[0]
    assert values.dtype == ml_dtypes.bfloat16
    assert values.min() >= 0.09
    assert values.max() <= 1.0


@pytest.mark.parametrize(
    ("element_type", "low", "high"),
    [("i8", -8, 7), ("si16", -8, 7), ("ui8", 0, 15), ("i32", 0, 1), ("i64", 0, 1), ("i1", 0, 1)],
)
def test_integers_fill_a_small_range(element_type: str, low: int, high: int) -> None:
    values = make_inputs([TensorSpec((1000,), element_type)], 0)[0]
    assert values.dtype == element(element_type).dtype
    assert (values.min(), values.max()) == (low, high)


def test_wide_integers_that_are_no_indices_are_negative_as_well() -> None:
    values = make_inputs([TensorSpec((1000,), "i32")], 0, indices=False)[0]
    assert (values.min(), values.max()) == (-8, 7)


@pytest.mark.parametrize("element_type", ["f64", "f16", "f8E4M3FN", "f8E5M2FNUZ"])
def test_scalars_and_empty_tensors_of_every_float_are_made(element_type: str) -> None:
    scalar, empty = make_inputs([TensorSpec((), element_type), TensorSpec((0, 3), element_type)], 0)
    assert scalar.shape == ()
    assert scalar.dtype == element(element_type).dtype
    assert empty.shape == (0, 3)


@pytest.mark.parametrize("element_type", ["complex<f32>", "i4", "index", "tf32"])
def test_an_unknown_element_type_is_named(element_type: str) -> None:
    with pytest.raises(UnknownElementError, match=element_type):
        make_inputs([TensorSpec((2,), element_type)], 0)

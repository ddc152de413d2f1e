from __future__ import annotations

from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mlsearch.candidate import Numerics
from mlsearch.runner.elements import element
from mlsearch.runner.numerics import (
    INTEGER_POISON,
    SECOND_POISON,
    compare,
    holds_poison,
    needs_second_poison,
    poison_byte,
    still_poisoned,
    tolerance,
    worst,
)

Array = np.ndarray[Any, Any]

FLOATS = ["f64", "f32", "f16", "bf16", "f8E4M3FN", "f8E4M3FNUZ", "f8E5M2", "f8E5M2FNUZ"]


def operands(depth: int, dtype: Any) -> tuple[Array, Array]:
    rng = np.random.default_rng(11)
    return rng.standard_normal((24, depth)).astype(dtype), rng.standard_normal((depth, 40)).astype(dtype)


def accumulate(a: Array, b: Array, steps: list[int], dtype: Any) -> Array:
    """Matmul over `steps` of k in this order, each sum rounded to `dtype`."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype)
    for k in steps:
        total = (total + np.outer(a[:, k], b[k]).astype(dtype)).astype(dtype)
    return total


@pytest.mark.parametrize(
    ("element_type", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
@pytest.mark.parametrize("depth", [8, 137, 700])
def test_a_sum_in_another_order_agrees(element_type: str, dtype: Any, depth: int) -> None:
    a, b = operands(depth, dtype)
    forward = accumulate(a, b, list(range(depth)), dtype)
    backward = accumulate(a, b, list(reversed(range(depth))), dtype)
    numerics = compare(backward, forward, element_type, depth)
    assert numerics.agrees
    assert numerics.max_rel_error > 0


@pytest.mark.parametrize(
    ("element_type", "dtype"), [("f32", np.float32), ("f16", np.float16), ("bf16", ml_dtypes.bfloat16)]
)
@pytest.mark.parametrize("skipped", [0, 68, 136])
def test_one_skipped_step_of_137_is_wrong(element_type: str, dtype: Any, skipped: int) -> None:
    a, b = operands(137, dtype)
    everything = accumulate(a, b, list(range(137)), dtype)
    short = accumulate(a, b, [k for k in range(137) if k != skipped], dtype)
    assert not compare(short, everything, element_type, 137).agrees


@pytest.mark.parametrize("depth", [4096, 65536])
def test_one_skipped_step_of_a_long_f32_sum_is_wrong(depth: int) -> None:
    a, b = operands(depth, np.float32)
    assert not compare(a[:, 1:] @ b[1:], a @ b, "f32", depth).agrees
    halves = a[:, : depth // 2] @ b[: depth // 2] + a[:, depth // 2 :] @ b[depth // 2 :]
    assert compare(halves, a @ b, "f32", depth).agrees


@pytest.mark.parametrize("element_type", ["f32", "bf16"])
def test_rounding_once_more_to_the_output_type_agrees(element_type: str) -> None:
    want = np.linspace(-3, 3, 101).astype(element(element_type).dtype)
    got = (want.astype(np.float64) * (1 + element(element_type).epsilon)).astype(want.dtype)
    assert compare(got, want, element_type, 1).agrees


def test_a_few_percent_off_without_a_reduction_is_wrong_even_in_bf16() -> None:
    want = np.ones(10, ml_dtypes.bfloat16)
    got = want.copy()
    got[3] = 1.05
    assert not compare(got, want, "bf16", 1).agrees


def test_tolerance_grows_with_the_reduction_and_stays_below_what_would_hide_everything() -> None:
    for element_type in FLOATS:
        bounds = [tolerance(element_type, length) for length in (1, 64, 4096, 10**6)]
        assert bounds == sorted(bounds)
        assert bounds[0] > 0
        assert bounds[-1] < 0.6
    assert tolerance("f32", 10**4) > tolerance("f32", 1)


def test_one_huge_element_does_not_excuse_a_wrong_small_one() -> None:
    want = np.ones(1000, np.float32)
    want[0] = 1e3
    got = want.copy()
    got[500] = 1.1
    assert not compare(got, want, "f32", 1).agrees


def test_an_element_near_zero_is_held_to_the_size_of_its_neighbours() -> None:
    want = np.array([1.0, -1.0, 1e-9], np.float32)
    got = np.array([1.0, -1.0, 2e-9], np.float32)
    assert compare(got, want, "f32", 1).agrees


@pytest.mark.parametrize(
    ("got", "want", "agrees"),
    [
        ([nan, 1.0], [nan, 1.0], True),
        ([inf, 1.0], [inf, 1.0], True),
        ([inf, 1.0], [-inf, 1.0], False),
        ([1.0, nan], [1.0, 1.0], False),
        ([1.0, inf], [1.0, 1.0], False),
        ([1.0, 1.0], [1.0, nan], False),
        ([nan, nan], [nan, nan], True),
        ([], [], True),
    ],
)
def test_what_is_not_finite_has_to_be_in_the_same_places(got: list[float], want: list[float], agrees: bool) -> None:
    numerics = compare(np.array(got, np.float32), np.array(want, np.float32), "f32", 1)
    assert numerics.agrees == agrees
    assert (numerics.max_rel_error == inf) == (not agrees)


def test_integers_are_exact() -> None:
    want = np.array([2**62, 5, -5], np.int64)
    assert compare(want.copy(), want, "i64", 1000).agrees
    off = compare(want + np.array([1, 0, 0]), want, "i64", 1000)
    assert not off.agrees
    assert off.max_abs_error >= 1
    assert off.max_rel_error > off.tolerance == 0


def test_a_bool_that_is_neither_0_nor_1_is_wrong() -> None:
    want = np.array([1, 0], np.uint8).view(np.bool_)
    got = np.array([INTEGER_POISON, 0], np.uint8).view(np.bool_)
    assert not compare(got, want, "i1", 1).agrees


@pytest.mark.parametrize("element_type", FLOATS)
def test_the_poison_of_a_float_is_nan_and_the_second_one_is_not(element_type: str) -> None:
    dtype = element(element_type).dtype
    first = np.full(dtype.itemsize, poison_byte(element_type), np.uint8).view(dtype)
    second = np.full(dtype.itemsize, SECOND_POISON, np.uint8).view(dtype)
    assert np.isnan(first.astype(np.float32)).all()
    assert np.isfinite(second.astype(np.float32)).all()


def test_unwritten_elements_are_counted_for_floats() -> None:
    want = np.zeros((4, 4), np.float32)
    got = want.copy()
    got[2:] = np.full(8, 0xFFFFFFFF, np.uint32).view(np.float32).reshape(2, 4)
    assert still_poisoned([(got, 0xFF)], want) == 8
    assert not compare(got, want, "f32", 1, unwritten=8).agrees


def test_a_computed_nan_is_not_the_poison() -> None:
    got = np.array([nan, 1.0], np.float32)
    assert not holds_poison(got, 0xFF).any()


def test_a_right_answer_that_looks_like_poison_is_written() -> None:
    want = np.array([INTEGER_POISON, 1], np.int8)
    assert needs_second_poison(want, INTEGER_POISON)
    unwritten = np.array([INTEGER_POISON, 1], np.int8)
    assert still_poisoned([(unwritten, INTEGER_POISON)], want) == 0
    after_second = np.array([SECOND_POISON, 1], np.uint8).view(np.int8)
    assert still_poisoned([(unwritten, INTEGER_POISON), (after_second, SECOND_POISON)], want) == 1
    assert still_poisoned([(want, INTEGER_POISON), (want, SECOND_POISON)], want) == 0


def test_only_an_ambiguous_output_needs_a_second_poison() -> None:
    computed = np.array([0.0, 1.0], np.float32) / np.float32(nan)
    assert not needs_second_poison(computed, poison_byte("f32"))
    assert not needs_second_poison(np.ones(3, np.int32), poison_byte("i32"))
    poison = np.full(8, poison_byte("bf16"), np.uint8).view(ml_dtypes.bfloat16)
    assert needs_second_poison(poison, poison_byte("bf16"))


def test_the_worst_output_speaks_for_all_relative_to_its_own_tolerance() -> None:
    exact = Numerics(True, 0.0, 0.0, 0.0, 0, 10)
    loose = Numerics(True, 3.0, 0.1, 0.2, 0, 20)
    tight = Numerics(False, 1.0, 0.01, 0.001, 1, 30)
    assert worst([exact, loose, tight]) == Numerics(False, 3.0, 0.01, 0.001, 1, 60)
    assert worst([exact, loose]) == Numerics(True, 3.0, 0.1, 0.2, 0, 30)
    assert worst([]).agrees


def test_a_mask_of_huge_elements_does_not_excuse_wrong_ones_beside_it() -> None:
    rng = np.random.default_rng(0)
    want = rng.standard_normal((64, 64), dtype=np.float32)
    want[np.triu_indices(64, 1)] = -1e9
    got = np.where(want > -1e8, want + 5, want)
    assert not compare(got, want, "f32", 64).agrees

"""How many rounds a comparison gets."""

from __future__ import annotations

from math import inf

import pytest

from mlsearch.statistics import median_interval
from mlsearch.tune.rounds import (
    FEWEST,
    FEWEST_WHEN_OBVIOUS,
    MOST,
    is_obvious,
    rounds_for,
    rounds_to_decide,
)


@pytest.mark.parametrize(
    ("times_us", "obvious"),
    [
        ([1000.0, 500.0], True),
        ([1000.0, 2000.0], True),
        ([1000.0, 501.0], False),
        ([1000.0, 1999.0], False),
        ([1000.0, 10.0, 900.0], False),
        ([1000.0, 10.0, 9000.0], True),
        ([1000.0, 100.0, 95.0], False),  # which of the two is faster has to be measured
    ],
)
def test_obvious_is_a_factor_of_two_between_any_two(times_us: list[float], obvious: bool) -> None:
    assert is_obvious(times_us) == obvious


def test_rounds_fill_the_time_within_their_bounds() -> None:
    assert rounds_for([1e5, 1e5], 5.0) == 25
    assert rounds_for([10.0, 10.0], 5.0) == MOST
    assert rounds_for([1e6, 1e6], 5.0) == FEWEST
    assert rounds_for([1e6, 1e6], 5.0, 3) == 3


def test_slow_programs_get_fewer_rounds_only_where_they_are_far_apart_and_still_an_interval() -> None:
    assert rounds_to_decide([1e6, 0.9e6], 5.0) == FEWEST
    few = rounds_to_decide([1e6, 0.05e6], 5.0)
    assert few == FEWEST_WHEN_OBVIOUS < FEWEST
    assert median_interval([1.0] * few)[1] < inf
    assert rounds_to_decide([1e4, 500.0], 5.0) == MOST, "what is quick is measured as well as ever"

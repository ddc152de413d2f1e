"""Numbers and names as a person reads them."""

from __future__ import annotations

import math

import pytest

from mlsearch.report import text


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [
        (0.8123, "0.812 µs"),
        (12.345, "12.3 µs"),
        (999.4, "999 µs"),
        (999.7, "1.00 ms"),
        (4330.0, "4.33 ms"),
        (199_000.0, "199 ms"),
        (999_900.0, "1.00 s"),
        (2_755_000.0, "2.75 s"),
        (1_234_000_000.0, "1230 s"),
        (0.0, "0 µs"),
    ],
)
def test_times_have_three_digits_in_the_unit_that_reads_best(microseconds: float, shown: str) -> None:
    assert text.time_text(microseconds) == shown


@pytest.mark.parametrize("missing", [None, math.nan, math.inf])
def test_what_was_not_measured_is_a_dash_and_never_nan(missing: float | None) -> None:
    for show in (text.time_text, text.speedup_text, text.span_text, text.share_text):
        assert show(missing) == text.ABSENT
    assert text.interval_text(None if missing is None else (1.0, missing)) == text.ABSENT
    assert text.amount_text(missing, "B") == text.ABSENT


def test_speedups_and_intervals_have_three_digits() -> None:
    assert [text.speedup_text(value) for value in (0.973, 1.0, 45.96, 123.4)] == [
        "0.973x",
        "1.00x",
        "46.0x",
        "123x",
    ]
    assert text.interval_text((45.1234, 46.987)) == "[45.1, 47.0]"


def test_spans_read_as_clocks_do() -> None:
    assert [text.span_text(s) for s in (0.4, 8, 59.6, 125, 3780)] == [
        "0 s",
        "8 s",
        "1 min 00 s",
        "2 min 05 s",
        "1 h 03 min",
    ]


def test_amounts_get_a_prefix() -> None:
    assert text.amount_text(204_900_000, "FLOP") == "205 MFLOP"
    assert text.amount_text(512, "B") == "512 B"


def test_a_small_share_is_not_shown_as_none() -> None:
    assert [text.share_text(value) for value in (0.0, 0.001, 0.97)] == ["0 %", "<1 %", "97 %"]


def test_failures_leave_out_what_was_never_built() -> None:
    outcomes = {"Measured": 60, "BuildFailed": 3, "RunTimeout": 2, "Pruned": 500, "Rejected": 9}
    assert text.failures(outcomes) == 5


def test_outcomes_come_most_frequent_first() -> None:
    assert text.outcomes_text({"Measured": 3, "Pruned": 20, "RunFailed": 0}) == "Pruned 20, Measured 3"


def test_a_name_cannot_move_the_cursor_or_break_the_line() -> None:
    assert text.one_line("a\nb\x1b[2Jc\rd") == "a b\\x1b[2Jc d"
    assert text.one_line('"Paddle Graph"$async [bold]é') == '"Paddle Graph"$async [bold]é'

"""Numbers and names as a person reads them. Pure, and free of rich: the plain report starts at once."""

from __future__ import annotations

import math
from collections.abc import Mapping

from mlsearch.printable import one_line as one_line

ABSENT = "–"
"""Stands for a value that was never measured."""

_FAILURES = ("BuildFailed", "BuildTimeout", "NotApplied", "RunFailed", "RunTimeout", "WrongResult")


def time_text(microseconds: float | None) -> str:
    """`4.33 ms`: three significant digits in the unit that keeps the number between 1 and 1000."""
    if microseconds is None or not math.isfinite(microseconds):
        return ABSENT
    for unit, scale in (("s", 1e6), ("ms", 1e3)):
        # Rounded first: 999.7 µs reads 1.00 ms, not 1000 µs.
        if _rounded(microseconds) >= scale:
            return f"{three_digits(microseconds / scale)} {unit}"
    return f"{three_digits(microseconds)} µs"


def speedup_text(speedup: float | None) -> str:
    """`46.0x`."""
    return ABSENT if speedup is None or not math.isfinite(speedup) else f"{three_digits(speedup)}x"


def interval_text(interval: tuple[float, float] | None) -> str:
    """`[45.1, 46.9]`."""
    if interval is None or not all(math.isfinite(end) for end in interval):
        return ABSENT
    return f"[{three_digits(interval[0])}, {three_digits(interval[1])}]"


def span_text(seconds: float | None) -> str:
    """A stretch of wall time in whole seconds: `8 s`, `2 min 05 s`, `1 h 03 min`."""
    if seconds is None or not math.isfinite(seconds):
        return ABSENT
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"


def amount_text(amount: float | None, unit: str) -> str:
    """`205 MFLOP`, `3.96 MB`: decimal prefixes, three significant digits."""
    if amount is None or not math.isfinite(amount):
        return ABSENT
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if _rounded(amount) >= scale:
            return f"{three_digits(amount / scale)} {prefix}{unit}"
    return f"{three_digits(amount)} {unit}"


def share_text(share: float | None) -> str:
    """`97 %`; `<1 %` rather than a share rounded down to nothing."""
    if share is None or not math.isfinite(share):
        return ABSENT
    return "<1 %" if 0 < share < 0.005 else f"{share * 100:.0f} %"


def count_text(number: int, noun: str) -> str:
    """`1 trial`, `64 trials`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def variant_prefix(variant: str) -> str:
    """What a line about a task begins with: `t0` of one variant is not `t0` of another."""
    return f"variant {one_line(variant)}: " if variant else ""


def outcomes_text(outcomes: Mapping[str, int]) -> str:
    """`Measured 40, BuildFailed 2`, most frequent first."""
    present = sorted(((count, name) for name, count in outcomes.items() if count), key=lambda pair: -pair[0])
    return ", ".join(f"{name} {count}" for count, name in present) or "none yet"


def failures(outcomes: Mapping[str, int]) -> int:
    """Trials that were built or run and came to nothing; rejected and pruned ones never got that far."""
    return sum(outcomes.get(name, 0) for name in _FAILURES)


def three_digits(value: float) -> str:
    """Fixed notation with three significant digits, more before the point when the number is large."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else ABSENT
    rounded = _rounded(value)
    magnitude = math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(0, 2 - magnitude)}f}"


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")

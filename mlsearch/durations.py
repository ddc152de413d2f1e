"""Lengths of time as people write them."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?", re.IGNORECASE)


def parse_duration(text: str) -> float | None:
    """`90s`, `10m`, `1h30m` or bare seconds, as seconds; None if `text` is not a length of time."""
    if re.fullmatch(r"\d+(?:\.\d+)?", text):
        return float(text)
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        return None
    return sum(float(match[unit] or 0) * scale for unit, scale in (("h", 3600), ("m", 60), ("s", 1)))

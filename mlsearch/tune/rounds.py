"""How many interleaved rounds a comparison gets. Pure: times come in, a number goes out."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

OBVIOUS = 2.0
"""Programs so far apart are told apart at sight: neither noise nor how code and buffers lie is a factor of two."""
MOST = 41
FEWEST = 9
FEWEST_WHEN_OBVIOUS = 6
"""With fewer rounds there is no 95 % interval (see `statistics.median_interval`)."""


def is_obvious(times_us: Sequence[float]) -> bool:
    """Whether every two are `OBVIOUS` apart: then so is their order, also of those that are far from the first."""
    ordered = sorted(times_us)
    return all(fast_us * OBVIOUS <= slow_us for fast_us, slow_us in pairwise(ordered))


def rounds_for(times_us: Sequence[float], seconds: float, fewest: int = FEWEST) -> int:
    """As many as fit into `seconds`, one call of each program a round; at least `fewest`, at most `MOST`."""
    round_s = 1e-6 * sum(times_us)
    return int(min(MOST, max(fewest, seconds / max(round_s, 1e-9))))


def rounds_to_decide(times_us: Sequence[float], seconds: float) -> int:
    """Enough for an interval of the speedup over the first; where the sign of it is plain to see, no more than that
    beyond `seconds`."""
    return rounds_for(times_us, seconds, FEWEST_WHEN_OBVIOUS if is_obvious(times_us) else FEWEST)

"""What a user may choose for a tuning run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsearch.candidate import CacheState

BUDGETS = {"quick": 16, "default": 64, "full": 256}
"""Trials per task where neither a number of trials nor a time is asked for."""


@dataclass(frozen=True)
class TuneOptions:
    payload: Path
    target: str
    trials: int | None
    """Trials per task, those of earlier runs on the same study included."""
    max_time_s: float | None
    """Search time for all tasks, that of earlier runs on the same studies included."""
    budget: str
    """A name in `BUDGETS`."""
    seed: int
    function: str | None
    """Measure and tune for this public function alone; None: all of them."""
    store: str
    study: str | None
    """Prefix of the studies' names, one study per task; None: named after workload and target."""
    output: Path
    threads: int
    jobs: int | None
    """Compile processes at a time; None: one per core."""
    templates: Path | None
    """A folder of templates that are added to the built-in ones."""
    workdir: Path | None
    """Keeps every build's files; None: a temporary folder."""
    sampler: str
    surrogate: bool
    cache: CacheState
    variants: str
    """Variants of the payload to look at: `all`, `default`, or names separated by commas."""

    @property
    def trials_per_task(self) -> int | None:
        """None: time alone is the limit."""
        if self.trials is None and self.max_time_s is None:
            return BUDGETS[self.budget]
        return self.trials

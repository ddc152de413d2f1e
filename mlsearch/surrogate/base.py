"""What a surrogate is: the seam that a deeper model plugs into.

A surrogate sees candidates only as rows of features (`features.FeatureExtractor`, columns by name) and
outcomes only as `Observation`s, so it knows nothing of knobs, templates or IR. To plug in another model:
subclass `Surrogate`, make `mlsearch.testing.surrogate_contract` pass, and hand it to `gate.Gate`. A model
that carries knowledge from one task to the next is constructed with the column names (and a checkpoint, if it
has one); `fit` then adapts it to the task at hand.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from mlsearch.candidate import (
    BuildFailed,
    BuildTimeout,
    Measured,
    NotApplied,
    OverLimits,
    Pruned,
    Record,
    Rejected,
    RunTimeout,
    Spilled,
    Unmeasured,
)
from mlsearch.workload import Tiling

Matrix = NDArray[np.float64]
"""One row per candidate, one column per feature: shape (n, d)."""
Vector = NDArray[np.float64]
"""One value per candidate: shape (n,)."""


class Extractor(Protocol):
    """Candidates as rows of numbers, whose columns mean the same throughout a task."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, in order."""

    def matrix(self, tilings: Sequence[Tiling]) -> Matrix:
        """Shape (n, len(names)). Raises KnobError for a tiling of another kind of target."""


Lesson = Literal["time", "time_bound", "feasible", "infeasible", "slow_compile"]
"""What an outcome teaches. `time`: how fast it is. `time_bound`: it is at least this slow. `feasible`: code that may
run comes of it, nothing of its time. `infeasible`: no usable code comes of it. `slow_compile`: infeasible because
compiling took too long."""


@dataclass(frozen=True)
class Observation:
    """A trial's outcome, as far as a model can learn from it."""

    lesson: Lesson
    time_us: float | None
    """For `time` the measured time, for `time_bound` a lower bound on it; else None."""
    compile_s: float
    """What the compiler took, whatever came of it; for `slow_compile` a lower bound."""

    def __post_init__(self) -> None:
        assert (self.time_us is not None) == (self.lesson in ("time", "time_bound"))

    @property
    def is_feasible(self) -> bool:
        """Compiled, applied, and was not seen to fail or to be wrong."""
        return self.lesson in ("time", "time_bound", "feasible")

    @staticmethod
    def of(record: Record) -> Observation | None:
        """What the record teaches; None where nothing was compiled (`Rejected`, `Pruned`)."""
        outcome = record.outcome
        match outcome:
            case Rejected() | Pruned():
                return None
            case Measured(cut_short=False):
                return Observation("time", outcome.time_us, record.compile_s)
            case Measured():
                # One cold sample, taken because it was far beyond the best: its size means little more than
                # that.
                return Observation("time_bound", outcome.time_us, record.compile_s)
            case RunTimeout(timeout_s=timeout_s):
                return Observation("time_bound", timeout_s * 1e6, record.compile_s)
            case Unmeasured(compile_s=compile_s):
                return Observation("feasible", None, compile_s)
            case BuildTimeout(timeout_s=timeout_s):
                return Observation("slow_compile", None, max(record.compile_s, timeout_s))
            case (
                BuildFailed(compile_s=compile_s)
                | NotApplied(compile_s=compile_s)
                | Spilled(compile_s=compile_s)
                | OverLimits(compile_s=compile_s)
            ):
                return Observation("infeasible", None, max(record.compile_s, compile_s))
            case _:  # WrongResult, RunFailed
                return Observation("infeasible", None, record.compile_s)


@dataclass(frozen=True)
class Prediction:
    """For n candidates, each array of shape (n,)."""

    score: Vector
    """Natural logarithm of the expected time in µs: lower is faster. NaN for all as long as hardly any time is known,
    and the model can tell only what fails."""
    std: Vector
    """Standard deviation of `score`, >= 0: how far the model may be off."""
    p_fail: Vector
    """Probability, 0 to 1, that no usable code comes of the candidate."""


class Surrogate(ABC):
    @abstractmethod
    def fit(self, features: Matrix, observations: Sequence[Observation]) -> None:
        """Learn from all observations so far, replacing what an earlier call learned about this task.

        `features` has shape (n, d), n = len(observations). Too few observations are no error: `is_fitted`
        stays False.
        """

    @abstractmethod
    def predict(self, features: Matrix) -> Prediction:
        """For features of shape (n, d). Only after `is_fitted`; asserts so."""

    @property
    @abstractmethod
    def is_fitted(self) -> bool:
        """Whether `predict` may be called."""

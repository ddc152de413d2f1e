"""What a proposer is, and what it needs from a space and from a surrogate's gate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlsearch.candidate import Candidate, Choice, KnobValue


class SearchSpace(Protocol):
    """The valid candidates of a task. All methods give valid candidates only."""

    @property
    def size(self) -> int:
        """Number of valid candidates; may be an estimate."""

    @property
    def distributions(self) -> Mapping[str, tuple[KnobValue, ...]]:
        """Optuna parameter name -> choices. `template` is among them if there are several templates."""

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        """At most `count` distinct ones, uniformly drawn."""

    def neighbours(self, candidate: Candidate, rng: np.random.Generator, count: int) -> list[Candidate]:
        """At most `count`, each with one or two knobs changed."""

    def repair(self, params: Mapping[str, KnobValue]) -> Candidate | None:
        """The candidate with these parameters, or None if they violate a constraint.

        Knobs of other templates than the chosen one are ignored.
        """

    def priors(self) -> list[Candidate]:
        """To be tried first, in this order."""

    def params(self, candidate: Candidate) -> dict[str, KnobValue]:
        """Inverse of `repair`."""

    def __iter__(self) -> Iterator[Candidate]:
        """All of them, in a fixed order."""


class CandidateFilter(Protocol):
    """Picks from a pool what is worth compiling."""

    @property
    def is_active(self) -> bool:
        """False: it takes the first ones as they come, so a pool larger than `count` is wasted on it."""

    def choose(self, pool: Sequence[Candidate], count: int) -> Sequence[Choice]:
        """At most `count` of the pool's distinct candidates, best first."""


class KeepFirst:
    """The filter of a search without a surrogate."""

    is_active = False

    def choose(self, pool: Sequence[Candidate], count: int) -> list[Choice]:
        return [Choice(candidate, None) for candidate in pool[:count]]


@dataclass(frozen=True)
class Asked:
    """A running trial."""

    number: int
    """Within its study."""
    candidate: Candidate
    predicted: float | None


class Proposer(ABC):
    """Decides what to try next in one study.

    Whatever is asked for is valid, occurs once, and was never in the study before, whichever process put it
    there. Every trial asked for is ended by `tell` or `withdraw`.
    """

    @abstractmethod
    def ask(self, count: int) -> list[Asked]:
        """`count` new trials, now running; fewer or none when nothing untried is left."""

    @abstractmethod
    def tell(self, asked: Asked, objective_us: float | None, attributes: Mapping[str, Any]) -> None:
        """End a trial with what is minimized, or as a failed one if that is None; attributes are kept in both
        cases.

        Raises ValueError for an objective that is not a positive, finite number, and for a trial that has
        ended already.
        """

    @abstractmethod
    def add_finished(self, candidate: Candidate, objective_us: float | None, attributes: Mapping[str, Any]) -> int:
        """Put a trial that was not asked for into the study: the untuned default, or one known from records.

        Returns its number; that of the trial which holds the candidate already, if one does.
        """

    @abstractmethod
    def withdraw(self, asked: Asked, attributes: Mapping[str, Any] | None = None) -> None:
        """End a trial that was never evaluated, e.g. on an interrupt. It may be asked for again.

        With attributes, which are kept, it is set aside: its device is elsewhere, so that this proposer does not ask
        for it again, but another one may.
        """

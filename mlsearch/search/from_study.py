"""What all proposers that keep their trials in an Optuna study have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.trial import FrozenTrial

from mlsearch.candidate import Candidate
from mlsearch.search.base import Asked, CandidateFilter, Proposer, SearchSpace
from mlsearch.search.trials import Trials
from mlsearch.trial_attributes import ABANDONED

_SPARE_DRAWS = 16
"""More uniform draws than are wanted, since in a small space most of them may have been tried."""


class StudyProposer(Proposer):
    """Asks for the space's priors, then for what the filter picks from the pool that a subclass fills."""

    def __init__(
        self,
        space: SearchSpace,
        study: optuna.Study,
        seed: int,
        candidate_filter: CandidateFilter,
        known: Collection[str] = (),
    ) -> None:
        """`known` are keys of candidates that are not to be asked for, besides those in the study.

        Raises StoreError if the study's trials come from a space with other choices.
        """
        self.space = space
        self._trials = Trials(study, space)
        self._filter = candidate_filter
        self._known = set(known)
        found = self._trials.news()
        # A resumed search must go on, not draw again what it drew when it began.
        self._rng = np.random.default_rng([seed, len(found)])
        self._backlog = found

    def ask(self, count: int) -> list[Asked]:
        self._catch_up()
        asked = [self._start(prior, None) for prior in self.fresh(self.space.priors(), count)]
        while len(asked) < count:
            wanted = count - len(asked) if self._filter.is_active else 1
            pool = self._pool(wanted)
            choices = self._filter.choose(pool, wanted)
            asked += [self._start(choice.candidate, choice.predicted) for choice in choices]
            if not choices:
                break
            self._catch_up()
        return asked

    def tell(self, asked: Asked, objective_us: float | None, attributes: Mapping[str, Any]) -> None:
        self._trials.finish(asked.number, objective_us, attributes)

    def add_finished(self, candidate: Candidate, objective_us: float | None, attributes: Mapping[str, Any]) -> int:
        self._catch_up()
        if self._trials.holds(candidate):
            return self._trials.holder(candidate)
        return self._trials.add_finished(candidate, objective_us, attributes)

    def withdraw(self, asked: Asked, attributes: Mapping[str, Any] | None = None) -> None:
        if attributes:
            self._known.add(asked.candidate.key)
        self._trials.finish(asked.number, None, {**(attributes or {}), ABANDONED: True})

    def fresh(self, candidates: Iterable[Candidate], count: int) -> list[Candidate]:
        """The first `count` distinct ones that were not tried; reads no further than it has to."""
        found: dict[str, Candidate] = {}
        if count <= 0:
            return []
        for candidate in candidates:
            if candidate.key not in self._known and not self._trials.holds(candidate):
                found.setdefault(candidate.key, candidate)
            if len(found) >= count:
                break
        return list(found.values())

    def uniform(self, count: int) -> list[Candidate]:
        """Uniformly drawn, not tried yet. Fewer only if fewer are left."""
        drawn = self.fresh(self.space.sample(self._rng, 2 * count + _SPARE_DRAWS), count)
        if drawn:
            return drawn
        # Nearly all has been tried, so walking along the space is no longer than that list.
        return self.fresh(self.space, count)

    @abstractmethod
    def _pool(self, wanted: int) -> list[Candidate]:
        """Distinct, untried candidates for the filter to pick `wanted` from; empty if nothing is left."""

    def _learn(self, trial: FrozenTrial) -> None:
        """A trial is new or in a new state. Called for those of earlier and of other processes, too."""

    def _catch_up(self) -> None:
        news, self._backlog = self._backlog + self._trials.news(), []
        for trial in news:
            self._learn(trial)

    def _start(self, candidate: Candidate, predicted: float | None) -> Asked:
        return Asked(self._trials.start(candidate), candidate, predicted)

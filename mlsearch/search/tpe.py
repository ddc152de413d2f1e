"""The default proposer: Optuna's tree-structured Parzen estimator, with local search where it runs dry."""

from __future__ import annotations

from collections.abc import Collection

import optuna
from optuna.trial import FrozenTrial, TrialState

from mlsearch.candidate import Candidate
from mlsearch.search.base import CandidateFilter, SearchSpace
from mlsearch.search.estimator import Estimator
from mlsearch.search.from_study import StudyProposer

_DRAWS = 6
"""From the estimator, for each pool that a filter picks from."""
_NEIGHBOURS = 24
_UNIFORM = 32
_BEST = 4
"""So many of the fastest candidates have their neighbours looked at."""
_TRIES = 12
"""Draws until an untried, valid one is found; in a constrained space many are neither."""
_TRIES_FOR_POOL = 2
"""The same where neighbours and uniform ones stand beside them anyway: a draw takes milliseconds."""


class TpeProposer(StudyProposer):
    """Draws from the estimator first, then neighbours of the best, then uniform ones."""

    def __init__(
        self,
        space: SearchSpace,
        study: optuna.Study,
        seed: int,
        candidate_filter: CandidateFilter,
        known: Collection[str] = (),
    ) -> None:
        super().__init__(space, study, seed, candidate_filter, known)
        self._estimator = Estimator(space.distributions, self._rng)
        self._times: list[tuple[float, Candidate]] = []

    def _pool(self, wanted: int) -> list[Candidate]:
        if not self._estimator.is_ready:
            return self.uniform(max(wanted, _UNIFORM) if self._filter.is_active else wanted)
        if not self._filter.is_active:
            return self._drawn(wanted) or self._neighbours(wanted) or self.uniform(wanted)
        pool = self._drawn(max(wanted, _DRAWS), _TRIES_FOR_POOL) + self._neighbours(_NEIGHBOURS)
        pool += self.uniform(_UNIFORM)
        return self.fresh(pool, len(pool))

    def _learn(self, trial: FrozenTrial) -> None:
        if not trial.params:
            return  # the untuned default is no point of the space
        self._estimator.learn(trial)
        candidate = self.space.repair(trial.params)
        if trial.state == TrialState.COMPLETE and candidate is not None and trial.value is not None:
            self._times.append((trial.value, candidate))

    def _drawn(self, count: int, spare: int = _TRIES) -> list[Candidate]:
        drawn = (self.space.repair(params) for params in self._estimator.draws(count + spare))
        return self.fresh((candidate for candidate in drawn if candidate), count)

    def _neighbours(self, count: int) -> list[Candidate]:
        best = sorted(self._times, key=lambda timed: timed[0])[:_BEST]
        each = -(-count // max(1, len(best)))
        near = [other for _, one in best for other in self.space.neighbours(one, self._rng, each)]
        return self.fresh(near, count)

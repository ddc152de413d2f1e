from __future__ import annotations

import time

import numpy as np

from mlsearch.surrogate.base import Surrogate
from mlsearch.surrogate.trees import MIN_TIMED, TreeSurrogate
from mlsearch.testing.surrogate_contract import INFEASIBLE, SurrogateContract, log_times, rows, timed


class TestTreeSurrogate(SurrogateContract):
    def make(self, seed: int) -> Surrogate:
        return TreeSurrogate(seed)


def test_is_fitted_from_the_minimum_of_timed_observations_on() -> None:
    model = TreeSurrogate(0)
    features = rows(MIN_TIMED)
    observations = [timed(log_us) for log_us in log_times(features)]
    model.fit(features, [*observations[:-1], INFEASIBLE])
    assert not model.is_fitted
    model.fit(features, observations)
    assert model.is_fitted


def test_a_fit_to_too_little_forgets_the_one_before() -> None:
    model = TreeSurrogate(0)
    features = rows(60)
    observations = [timed(log_us) for log_us in log_times(features)]
    model.fit(features, observations)
    model.fit(features[:3], observations[:3])
    assert not model.is_fitted


def test_other_seeds_give_other_ensembles() -> None:
    features = rows(60)
    observations = [timed(log_us) for log_us in log_times(features)]
    scores = []
    for seed in (0, 1):
        model = TreeSurrogate(seed)
        model.fit(features, observations)
        scores.append(model.predict(rows(30, seed=1)).score)
    assert not np.array_equal(scores[0], scores[1])


def test_deviation_shrinks_as_observations_arrive() -> None:
    deviations = []
    for count in (15, 300):
        features = rows(count)
        model = TreeSurrogate(0)
        model.fit(features, [timed(log_us) for log_us in log_times(features)])
        deviations.append(model.predict(rows(200, seed=1)).std.mean())
    assert deviations[1] < 0.7 * deviations[0]


def test_one_very_slow_candidate_does_not_drown_the_rest() -> None:
    features = rows(60)
    observations = [timed(log_us) for log_us in log_times(features)]
    observations[0] = timed(30.0)
    model = TreeSurrogate(0)
    model.fit(features, observations)
    unseen = rows(200, seed=1)
    assert np.corrcoef(model.predict(unseen).score, log_times(unseen))[0, 1] > 0.8


def test_a_refit_at_two_hundred_observations_is_cheap() -> None:
    features = np.random.default_rng(0).random((200, 120))
    observations = [timed(log_us) for log_us in log_times(features)]
    model = TreeSurrogate(0)
    costs = []
    for _ in range(3):
        begin = time.process_time()
        model.fit(features, observations)
        costs.append(time.process_time() - begin)
    assert min(costs) < 0.3

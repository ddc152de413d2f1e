"""What every surrogate keeps to. Subclass `SurrogateContract` in a test module and say how to make one."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pytest

from mlsearch.surrogate.base import Matrix, Observation, Surrogate, Vector

COLUMNS = 5


class SurrogateContract(ABC):
    """The candidates of these tests have the log time `3 * x0 + x1`; the other columns say nothing."""

    @abstractmethod
    def make(self, seed: int) -> Surrogate: ...

    def fitted(self, seed: int = 0, count: int = 60) -> Surrogate:
        model = self.make(seed)
        features = rows(count)
        model.fit(features, [timed(log_us) for log_us in log_times(features)])
        return model

    def test_is_not_fitted_before_it_has_seen_anything(self) -> None:
        assert not self.make(0).is_fitted

    def test_refuses_to_predict_before_it_is_fitted(self) -> None:
        with pytest.raises(AssertionError):
            self.make(0).predict(rows(3))

    def test_takes_few_observations_without_complaint(self) -> None:
        model = self.make(0)
        for count in range(4):
            features = rows(count)
            model.fit(features, [timed(log_us) for log_us in log_times(features)])
        if model.is_fitted:
            model.predict(rows(3))

    def test_takes_nothing_but_failures_without_complaint(self) -> None:
        model = self.make(0)
        model.fit(rows(40), [INFEASIBLE] * 40)
        if model.is_fitted:
            model.predict(rows(3))

    def test_gives_one_prediction_per_row(self) -> None:
        model = self.fitted()
        for count in (0, 1, 17):
            prediction = model.predict(rows(count))
            assert prediction.score.shape == prediction.std.shape == prediction.p_fail.shape == (count,)

    def test_predicts_finite_scores_and_deviations_that_are_not_negative(self) -> None:
        prediction = self.fitted().predict(rows(50, seed=1))
        assert np.isfinite(prediction.score).all()
        assert (prediction.std >= 0).all()
        assert np.isfinite(prediction.std).all()

    def test_ranks_what_it_has_not_seen(self) -> None:
        unseen = rows(200, seed=1)
        score = self.fitted().predict(unseen).score
        assert _rank_correlation(score, log_times(unseen)) > 0.7

    def test_scores_are_log_times(self) -> None:
        unseen = rows(200, seed=1)
        score = self.fitted().predict(unseen).score
        assert abs(score.mean() - log_times(unseen).mean()) < 0.5

    def test_a_prediction_does_not_depend_on_the_other_rows(self) -> None:
        model = self.fitted()
        unseen = rows(30, seed=1)
        order = np.random.default_rng(2).permutation(30)
        together, shuffled = model.predict(unseen), model.predict(unseen[order])
        assert np.allclose(together.score[order], shuffled.score)
        assert np.allclose(together.score[7], model.predict(unseen[7:8]).score[0])

    def test_equal_seeds_and_observations_give_equal_predictions(self) -> None:
        unseen = rows(30, seed=1)
        first, second = self.fitted(seed=3).predict(unseen), self.fitted(seed=3).predict(unseen)
        assert np.array_equal(first.score, second.score)
        assert np.array_equal(first.std, second.std)

    def test_a_fit_forgets_the_one_before(self) -> None:
        unseen = rows(30, seed=1)
        features = rows(60)
        model = self.make(0)
        model.fit(features, [timed(-log_us) for log_us in log_times(features)])
        model.fit(features, [timed(log_us) for log_us in log_times(features)])
        assert np.allclose(model.predict(unseen).score, self.fitted().predict(unseen).score)

    def test_expects_no_failure_where_none_was_seen(self) -> None:
        assert (self.fitted().predict(rows(50, seed=1)).p_fail == 0).all()

    def test_expects_failures_where_they_were_seen(self) -> None:
        features = rows(80)
        fails = features[:, 2] > 0.6
        observations = [
            INFEASIBLE if failed else timed(log_us) for failed, log_us in zip(fails, log_times(features), strict=True)
        ]
        model = self.make(0)
        model.fit(features, observations)
        unseen = rows(200, seed=1)
        p_fail = model.predict(unseen).p_fail
        assert ((p_fail >= 0) & (p_fail <= 1)).all()
        assert p_fail[unseen[:, 2] > 0.7].mean() > 0.5 > p_fail[unseen[:, 2] < 0.5].mean()

    def test_a_bound_teaches_that_it_is_slow(self) -> None:
        features = rows(80)
        slow = features[:, 2] > 0.6
        observations = [
            Observation("time_bound", 1e6, 0.3) if is_slow else timed(log_us)
            for is_slow, log_us in zip(slow, log_times(features), strict=True)
        ]
        model = self.make(0)
        model.fit(features, observations)
        unseen = rows(200, seed=1)
        score = model.predict(unseen).score
        assert score[unseen[:, 2] > 0.7].mean() > score[unseen[:, 2] < 0.5].mean() + 0.5


INFEASIBLE = Observation("infeasible", None, 0.3)


def timed(log_us: float) -> Observation:
    return Observation("time", float(np.exp(log_us)), 0.3)


def rows(count: int, seed: int = 0) -> Matrix:
    return np.random.default_rng(seed).random((count, COLUMNS))


def log_times(features: Matrix) -> Vector:
    times: Vector = 3 * features[:, 0] + features[:, 1]
    return times


def _rank_correlation(a: Vector, b: Vector) -> float:
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])

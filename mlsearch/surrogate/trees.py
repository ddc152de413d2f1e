"""Boosted trees on log time: the surrogate that works from a dozen measurements on.

Chosen among some 25 settings by how they rank unseen schedules of two matmuls (731x1023x137 and 512x512x512,
f32, one AVX-512 core, 600 measured ones), then checked on a third, 128x3072x768. Spearman correlation there,
six draws:

| training rows | regression, randomized thresholds | regression, exact thresholds | lambdarank, randomized |
| --- | --- | --- | --- |
| 20 | 0.64 | 0.60 | 0.58 |
| 40 | 0.77 | 0.68 | 0.75 |
| 80 | 0.85 | 0.80 | 0.84 |
| 160 | 0.91 | 0.91 | 0.87 |

The gain is in the first hundred measurements. A regression's scores also mean the same from one fit to the
next, which a ranker's do not, and the gate compares predictions of many fits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import lightgbm
import numpy as np

from mlsearch.surrogate.base import Matrix, Observation, Prediction, Surrogate, Vector

MIN_TIMED = 8
"""Observations with a time that a first fit needs."""
MIN_JUDGED, MIN_FAILED = 24, 2
"""Observations, and infeasible ones among them, that a first fit needs where no time is known."""

_SLOW_ENOUGH = math.log(16.0)
"""Times beyond 16x the best are all the same to us, and would otherwise take up most of the trees."""

_TREES: dict[str, Any] = {
    "extra_trees": True,
    "num_leaves": 8,
    "learning_rate": 0.1,
    "feature_fraction": 0.5,
    # Dozens of rows, not the tens of thousands that the defaults are for.
    "min_data_in_leaf": 3,
    "min_data_in_bin": 1,
    "feature_pre_filter": False,
    # The other cores measure.
    "num_threads": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}
_ROUNDS = 60


class TreeSurrogate(Surrogate):
    """An ensemble of boosted trees, each on another Bayesian bootstrap of the data; their spread is the
    `std`.

    Infeasible candidates teach a classifier, which is there before the first times where candidates are only compiled.
    Bounds count as times. A fit takes about 0.1 s at 200 observations.
    """

    def __init__(self, seed: int, members: int = 6) -> None:
        self._seed = seed
        self._members = members
        self._regressors: list[lightgbm.Booster] = []
        self._classifier: lightgbm.Booster | None = None

    @property
    def is_fitted(self) -> bool:
        return bool(self._regressors) or self._classifier is not None

    def fit(self, features: Matrix, observations: Sequence[Observation]) -> None:
        assert len(features) == len(observations), "one row per observation"
        times = np.array([observation.time_us or math.nan for observation in observations])
        timed = np.isfinite(times)
        self._regressors, self._classifier = [], None
        if timed.sum() >= MIN_TIMED:
            logs = np.log(times[timed])
            labels = np.minimum(logs, logs.min() + _SLOW_ENOUGH)
            self._regressors = self._train(features[timed], labels, "regression", self._members)
        failed = np.array([not observation.is_feasible for observation in observations], dtype=bool)
        enough = self._regressors or (len(failed) >= MIN_JUDGED and failed.sum() >= MIN_FAILED)
        if enough and failed.any():
            self._classifier = self._train(features, failed.astype(np.float64), "binary", 1)[0]

    def predict(self, features: Matrix) -> Prediction:
        assert self.is_fitted, "predict before fit"
        if not len(features):
            return Prediction(np.empty(0), np.empty(0), np.empty(0))
        p_fail = np.zeros(len(features))
        if self._classifier is not None:
            p_fail = _predicted(self._classifier, features)
        if not self._regressors:
            return Prediction(np.full(len(features), np.nan), np.zeros(len(features)), p_fail)
        scores = np.stack([_predicted(member, features) for member in self._regressors])
        return Prediction(scores.mean(axis=0), scores.std(axis=0), p_fail)

    def _train(self, features: Matrix, labels: Vector, objective: str, members: int) -> list[lightgbm.Booster]:
        rng = np.random.default_rng(self._seed)
        settings = {**_TREES, "objective": objective}
        # Binning is half of the cost of so small a fit; the members share it and differ in the rows' weights.
        data = lightgbm.Dataset(features, labels, params=settings, free_raw_data=False)
        boosters = []
        for member in range(members):
            data.set_weight(rng.exponential(size=len(labels)) if members > 1 else np.ones(len(labels)))
            # LightGBM takes seeds of 31 bits.
            seed = (self._seed * members + member) % 2**31
            boosters.append(lightgbm.train({**settings, "seed": seed}, data, _ROUNDS))
        return boosters


def _predicted(booster: lightgbm.Booster, features: Matrix) -> Vector:
    return np.asarray(booster.predict(features, num_threads=1), dtype=np.float64)

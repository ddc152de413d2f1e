"""The gate between proposer and builder: many candidates in, the promising ones out, once the model can
tell."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import isfinite, log, sqrt

import numpy as np

from mlsearch.candidate import Candidate, Choice, Record
from mlsearch.surrogate.base import Extractor, Observation, Prediction, Surrogate, Vector
from mlsearch.workload import Tiling


@dataclass(frozen=True)
class GatePolicy:
    """When the model is trusted, and how far."""

    epsilon: float = 0.1
    """Share of the choices that bypass the model; at least one of four or more."""
    optimism: float = 0.5
    """Candidates are ranked by score - optimism * std: what may be fast is tried before what surely is
    slower."""
    min_distance: int = 2
    """A choice differs in at least so many knobs from the others of its batch, and from those not measured
    yet, as long as there are such."""
    window: int = 32
    """The last so many measured candidates decide whether the model is trusted."""
    min_judged: int = 12
    """Fewer than this say nothing."""
    trust_above: float = 0.3
    """Rank correlation from which the model is trusted, if there is less than a 1 in 40 chance that it is
    luck."""
    distrust_below: float = 0.1
    """Lower than `trust_above`, since among candidates that are all promising, ranks are harder to tell."""
    screen_above: float = 1.0
    """A candidate is screened out if it is more than so many times as likely to fail as those before it were. Of 420
    drawn candidates of a 1024 cubed f16 matmul on sm_90, 5.2 % spilled; of what a model of 60, 120 and 240 others
    left in place, 14, 19 and 36 % fewer did, with 7 to 10 % passed over (means of 30 draws)."""
    most_screened: float = 0.25
    """Share of a pool that may be: passing over so few costs nothing, even if the model knows nothing."""


class Gate:
    """Chooses from a pool by a surrogate that judges itself on predictions made before the measurement.

    Until its rank skill is shown, and again once it is lost, the choice is the proposer's own: the head of
    the pool. Where the compiler tells by itself that code is not worth running (spills), a gate that `screens` leaves
    out what most resembles such candidates, also before there is a single time. Nothing is ever blacklisted; a
    candidate passed over may be proposed again and chosen then.
    """

    def __init__(
        self,
        describe: Callable[[Candidate], Tiling | None],
        extractor: Extractor,
        model: Surrogate,
        *,
        seed: int,
        policy: GatePolicy | None = None,
        screens: bool = False,
    ) -> None:
        """`describe` gives None for a candidate without tiles (the untuned one): the model then learns
        nothing from it and can't choose it, only the bypass can."""
        self._describe = describe
        self._extractor = extractor
        self._model = model
        self._policy = policy or GatePolicy()
        self._rng = np.random.default_rng(seed)
        self._screens = screens
        self._learned: dict[str, tuple[Tiling, Observation]] = {}
        self._judged: deque[tuple[float, float]] = deque(maxlen=self._policy.window)
        self._pending: dict[str, Candidate] = {}
        self._is_active = False
        self.pruned_count = 0
        """Candidates passed over so far by the model's choice."""

    @property
    def is_active(self) -> bool:
        """Whether the model decides."""
        return self._is_active or self._is_screening

    @property
    def _is_screening(self) -> bool:
        return self._screens and self._model.is_fitted and self._failed_share > 0

    @property
    def _failed_share(self) -> float:
        """Of all that was compiled."""
        failed = sum(not observation.is_feasible for _, observation in self._learned.values())
        return failed / len(self._learned) if self._learned else 0.0

    @property
    def rank_skill(self) -> float:
        """Spearman correlation of predicted and measured times over the last measured candidates; 0 if too
        few."""
        if len(self._judged) < self._policy.min_judged:
            return 0.0
        predicted, measured = np.array(self._judged).T
        return _spearman(predicted, measured)

    def observe(self, record: Record) -> None:
        """Take in how a trial ended, for the next `refit` and for judging the model."""
        self._pending.pop(record.candidate.key, None)
        observation = Observation.of(record)
        tiling = self._describe(record.candidate)
        if observation is None or tiling is None:
            return
        # A time takes the place of the news that it compiles.
        self._learned[record.candidate.key] = (tiling, observation)
        if record.predicted is None or observation.time_us is None:
            return
        self._judged.append((record.predicted, log(observation.time_us)))
        self._is_active = self.rank_skill >= self._needed_skill()

    def refit(self) -> None:
        """Fit the model to all observations so far: once per batch."""
        tilings = [tiling for tiling, _ in self._learned.values()]
        self._model.fit(self._extractor.matrix(tilings), [observation for _, observation in self._learned.values()])

    def choose(self, pool: Sequence[Candidate], count: int) -> list[Choice]:
        """At most `count` of the pool. The predictions are made even while the model isn't trusted."""
        choices = self._choices(pool, count)
        self._pending |= {choice.candidate.key: choice.candidate for choice in choices}
        return choices

    def _choices(self, pool: Sequence[Candidate], count: int) -> list[Choice]:
        described = [(i, tiling) for i, c in enumerate(pool) if (tiling := self._describe(c)) is not None]
        if not described or not self._model.is_fitted:
            return [Choice(candidate, None) for candidate in pool[:count]]
        positions = [i for i, _ in described]
        prediction = self._model.predict(self._extractor.matrix([tiling for _, tiling in described]))
        picked = list(range(min(count, len(pool))))
        if self.is_active and len(pool) > count:
            failing = self._screened(positions, prediction, len(pool))
            if self._is_active:
                picked = self._pick(pool, positions, prediction, count, failing)
                self.pruned_count += len(pool) - len(picked)
            else:
                picked = sorted(range(len(pool)), key=lambda i: (i in failing, i))[:count]
                self.pruned_count += sum(i < max(picked) for i in failing.difference(picked))
        scores = {i: score for i, score in zip(positions, prediction.score.tolist(), strict=True) if isfinite(score)}
        return [Choice(pool[i], scores.get(i)) for i in picked]

    def _screened(self, positions: Sequence[int], prediction: Prediction, size: int) -> set[int]:
        """Positions in a pool of this size that are most likely to fail."""
        if not self._is_screening:
            return set()
        likely = prediction.p_fail > self._policy.screen_above * self._failed_share
        worst = [int(i) for i in np.argsort(-prediction.p_fail, kind="stable") if likely[i]]
        return {positions[i] for i in worst[: int(self._policy.most_screened * size)]}

    def _pick(
        self,
        pool: Sequence[Candidate],
        positions: Sequence[int],
        prediction: Prediction,
        count: int,
        failing: Collection[int] = (),
    ) -> list[int]:
        merit = self._merit(prediction)
        ranked = [positions[i] for i in np.argsort(merit, kind="stable")]
        by_model = self._spread(pool, ranked, count - self._bypassing(count))
        taken = set(by_model)
        rest = sorted((i for i in range(len(pool)) if i not in taken), key=lambda i: (i in failing, i))
        return by_model + rest[: count - len(by_model)]

    def _merit(self, prediction: Prediction) -> Vector:
        """Log of the time to expect per usable result, if things go well: lower is better."""
        works = 1 - np.minimum(prediction.p_fail, 0.99)
        merit: Vector = prediction.score - self._policy.optimism * prediction.std - np.log(works)
        return merit

    def _spread(self, pool: Sequence[Candidate], ranked: Sequence[int], count: int) -> list[int]:
        """The best `count`, but near twins of better ones, or of candidates still being measured, come last:
        what one of them teaches, the other hardly adds to."""
        picked: list[int] = []
        twins: list[int] = []
        others = list(self._pending.values())
        for i in ranked:
            if len(picked) == count:
                break
            if any(_distance(pool[i], other) < self._policy.min_distance for other in others):
                twins.append(i)
                continue
            picked.append(i)
            others.append(pool[i])
        return picked + twins[: count - len(picked)]

    def _bypassing(self, count: int) -> int:
        epsilon = self._policy.epsilon
        if epsilon <= 0:
            return 0
        if count >= 4:
            return max(1, round(epsilon * count))
        return int((self._rng.random(count) < epsilon).sum())

    def _needed_skill(self) -> float:
        policy = self._policy
        if self._is_active:
            return policy.distrust_below
        # Two standard deviations of the rank correlation of n independent pairs.
        luck = 2 / sqrt(max(1, len(self._judged) - 1))
        return max(policy.trust_above, luck)


def _distance(a: Candidate, b: Candidate) -> float:
    """Knobs in which they differ; infinite between templates."""
    if a.template != b.template:
        return float("inf")
    ours, theirs = a.knobs, b.knobs
    return sum(ours.get(knob) != theirs.get(knob) for knob in ours.keys() | theirs.keys())


def _spearman(a: Vector, b: Vector) -> float:
    """Rank correlation, -1 to 1; 0 if one of them is constant."""
    ranks_a, ranks_b = _ranks(a), _ranks(b)
    if ranks_a.std() == 0 or ranks_b.std() == 0:
        return 0.0
    return float(np.corrcoef(ranks_a, ranks_b)[0, 1])


def _ranks(values: Vector) -> Vector:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Vector = (last - (counts + 1) / 2)[inverse]
    return ranks

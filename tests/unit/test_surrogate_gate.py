from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
import pytest
from surrogate_landscape import (
    HARDWARE,
    MATMUL,
    NUMERICS,
    OPTIONS,
    describe,
    draw,
    fails,
    outcome,
    record_of,
    time_us,
)

from mlsearch.candidate import Candidate, Choice, Measured, Record, RunTimeout, Spilled, Unmeasured
from mlsearch.surrogate.base import Matrix, Observation, Prediction, Surrogate, Vector
from mlsearch.surrogate.features import FeatureExtractor
from mlsearch.surrogate.gate import Gate, GatePolicy
from mlsearch.surrogate.trees import TreeSurrogate
from mlsearch.workload import Tiling

POOL = draw(np.random.default_rng(7), 64)
TILE_N = FeatureExtractor(MATMUL, HARDWARE).names.index("vector_inner_parallel.tile.n")


class FixedModel(Surrogate):
    """Always fitted; predicts from a row's features with the functions given."""

    def __init__(self, std: float = 0.0, p_fail_of_wide: float = 0.0) -> None:
        self.std, self.p_fail_of_wide = std, p_fail_of_wide

    @property
    def is_fitted(self) -> bool:
        return True

    def fit(self, features: Matrix, observations: Sequence[Observation]) -> None:
        pass

    def predict(self, features: Matrix) -> Prediction:
        # Wide tiles are fast, so says this model: 64 is best, then 32, then 16.
        score: Vector = -features[:, TILE_N]
        wide = features[:, TILE_N] >= 6
        return Prediction(score, wide * self.std, wide * self.p_fail_of_wide)


def gate(model: Surrogate | None = None, *, seed: int = 0, policy: GatePolicy | None = None) -> Gate:
    extractor = FeatureExtractor(MATMUL, HARDWARE, options=OPTIONS)
    return Gate(describe, extractor, model or TreeSurrogate(seed), seed=seed, policy=policy)


def trusted(model: Surrogate, **policy: float) -> Gate:
    """A gate that has seen the model predict 32 candidates in the right order."""
    made = gate(model, policy=GatePolicy(**policy))  # type: ignore[arg-type]
    show(made, skilled=True)
    assert made.is_active
    return made


def show(made: Gate, *, skilled: bool, count: int = 32) -> None:
    """Let it see measurements that follow the predictions, or run against them."""
    for i, candidate in enumerate(draw(np.random.default_rng(3), count)):
        sign = 1 if skilled else -1
        made.observe(record_of(candidate, measured(100.0 + sign * i), predicted=float(i)))


def measured(value_us: float) -> Measured:
    return Measured((value_us,), (200.0,), NUMERICS, cut_short=False)


def widths(choices: Sequence[Choice]) -> list[int]:
    return [int(choice.candidate.knobs["tile_n"]) for choice in choices]


def play(made: Gate, *, rounds: int, seed: int, batch: int = 4, shuffle_labels: bool = False) -> list[Candidate]:
    """A search: in each round a pool of random candidates, of which the chosen are measured."""
    rng = np.random.default_rng(seed)
    tried: list[Candidate] = []
    for _ in range(rounds):
        for choice in made.choose(draw(rng, 64), batch):
            truth = outcome(choice.candidate, rng)
            if shuffle_labels and isinstance(truth, Measured):
                truth = measured(1000.0 * float(rng.lognormal()))
            made.observe(record_of(choice.candidate, truth, choice.predicted))
            tried.append(choice.candidate)
        made.refit()
    return tried


def log_times(candidates: Sequence[Candidate]) -> list[float]:
    return [log(time_us(candidate)) for candidate in candidates if not fails(candidate)]


def test_keeps_the_head_of_the_pool_while_the_model_is_untrained() -> None:
    made = gate()
    assert made.choose(POOL, 5) == [Choice(candidate, None) for candidate in POOL[:5]]
    assert made.pruned_count == 0
    assert not made.is_active


def test_keeps_the_head_of_the_pool_while_skill_is_not_shown_but_predicts() -> None:
    made = gate(FixedModel())
    choices = made.choose(POOL, 5)
    assert [choice.candidate for choice in choices] == POOL[:5]
    assert all(choice.predicted is not None for choice in choices)
    assert made.pruned_count == 0


def test_takes_the_best_predicted_once_skill_is_shown() -> None:
    choices = trusted(FixedModel(), epsilon=0).choose(POOL, 6)
    assert widths(choices) == [64] * 6
    assert [choice.predicted for choice in choices] == [-6.0] * 6


def test_counts_what_it_passes_over() -> None:
    made = trusted(FixedModel())
    made.choose(POOL, 4)
    made.choose(POOL[:10], 4)
    assert made.pruned_count == 60 + 6


def test_a_candidate_passed_over_can_be_chosen_later() -> None:
    made = trusted(FixedModel(), epsilon=0)
    narrow = [candidate for candidate in POOL if candidate.knobs["tile_n"] == 16][:3]
    assert not set(narrow) & {choice.candidate for choice in made.choose(POOL, 4)}
    assert {choice.candidate for choice in made.choose(narrow, 2)} <= set(narrow)


def test_a_pool_no_larger_than_the_batch_passes_whole() -> None:
    made = trusted(FixedModel())
    assert [choice.candidate for choice in made.choose(POOL[:3], 4)] == POOL[:3]
    assert made.choose([], 4) == []
    assert made.pruned_count == 0


def test_skill_turns_it_on_and_its_loss_off_again() -> None:
    made = gate(FixedModel())
    show(made, skilled=True)
    assert made.is_active and made.rank_skill == pytest.approx(1)
    show(made, skilled=False)
    assert not made.is_active and made.rank_skill == pytest.approx(-1)
    assert [choice.candidate for choice in made.choose(POOL, 5)] == POOL[:5]


def test_a_handful_of_lucky_predictions_does_not_turn_it_on() -> None:
    made = gate(FixedModel())
    show(made, skilled=True, count=GatePolicy().min_judged - 1)
    assert not made.is_active and made.rank_skill == 0
    show(made, skilled=True, count=1)
    assert made.is_active


def test_the_fewer_pairs_the_more_skill_they_have_to_show() -> None:
    # Rank correlation 0.45 in every dozen: may be luck in one dozen, hardly in 32 of them.
    order = [1, 7, 0, 9, 5, 3, 4, 10, 2, 8, 11, 6]
    made = gate(FixedModel())
    for i, candidate in enumerate(draw(np.random.default_rng(3), 36)):
        made.observe(record_of(candidate, measured(100.0 + order[i % 12]), predicted=float(i % 12)))
        if i == 11:
            assert 0.3 < made.rank_skill < 0.5 and not made.is_active
    assert 0.3 < made.rank_skill < 0.5 and made.is_active


def test_a_constant_prediction_shows_no_skill() -> None:
    made = gate(FixedModel())
    for i, candidate in enumerate(POOL[:20]):
        made.observe(record_of(candidate, measured(100.0 + i), predicted=1.0))
    assert made.rank_skill == 0


def test_only_predictions_made_before_the_measurement_count() -> None:
    made = gate(FixedModel())
    for i, candidate in enumerate(POOL[:20]):
        made.observe(record_of(candidate, measured(100.0 + i), predicted=None))
    assert made.rank_skill == 0 and not made.is_active


def test_a_run_that_timed_out_counts_as_slow() -> None:
    made = gate(FixedModel())
    for i, candidate in enumerate(POOL[:20]):
        made.observe(record_of(candidate, measured(100.0 + i), predicted=float(i)))
    made.observe(record_of(POOL[20], RunTimeout(2.0), predicted=99.0))
    assert made.rank_skill == pytest.approx(1)
    made.observe(record_of(POOL[21], RunTimeout(3.0), predicted=-99.0))
    assert made.rank_skill < 0.9


@pytest.mark.parametrize(("count", "bypassing"), [(4, 1), (5, 1), (10, 1), (20, 2), (30, 3)])
def test_a_share_bypasses_the_model_and_is_never_rounded_to_none(count: int, bypassing: int) -> None:
    narrow_first = sorted(POOL, key=lambda candidate: int(candidate.knobs["tile_n"]))
    choices = trusted(FixedModel(), epsilon=0.1, min_distance=0).choose(narrow_first * 2, count)
    assert len(choices) == count
    assert widths(choices).count(16) == bypassing


def test_in_small_batches_the_share_is_kept_on_average() -> None:
    made = trusted(FixedModel(), epsilon=0.2)
    narrow_first = sorted(POOL, key=lambda candidate: int(candidate.knobs["tile_n"]))
    bypassed = [widths(made.choose(narrow_first, 1)) == [16] for _ in range(400)]
    assert 0.12 < np.mean(bypassed) < 0.28


def test_without_epsilon_nothing_bypasses_the_model() -> None:
    narrow_first = sorted(POOL, key=lambda candidate: int(candidate.knobs["tile_n"]))
    choices = trusted(FixedModel(), epsilon=0).choose(narrow_first, 8)
    assert set(widths(choices)) == {64}


def test_a_candidate_that_probably_fails_loses_to_a_slower_one() -> None:
    choices = trusted(FixedModel(p_fail_of_wide=0.95), epsilon=0).choose(POOL, 6)
    assert set(widths(choices)) == {32}


def test_an_uncertain_candidate_is_tried_before_an_equal_certain_one() -> None:
    narrower = [candidate for candidate in POOL if candidate.knobs["tile_n"] != 64]
    one_wide = next(candidate for candidate in POOL if candidate.knobs["tile_n"] == 64)

    class Pessimist(FixedModel):
        def predict(self, features: Matrix) -> Prediction:
            wide = features[:, TILE_N] >= 6
            return Prediction(wide * 1.0, wide * 1.0, wide * 0.0)

    pool = [*narrower, one_wide]
    bold = trusted(Pessimist(), epsilon=0, optimism=2).choose(pool, 1)
    careful = trusted(Pessimist(), epsilon=0, optimism=0).choose(pool, 1)
    assert bold[0].candidate == one_wide
    assert careful[0].candidate != one_wide


def test_a_batch_holds_no_near_twins_while_others_are_left() -> None:
    base = next(candidate for candidate in POOL if candidate.knobs["tile_n"] == 64)
    twins = [Candidate.of(base.template, "0", {**base.knobs, "step_k": step}) for step in (1, 2, 4, 8)]
    others = [candidate for candidate in POOL if candidate.knobs["tile_n"] == 32]
    choices = trusted(FixedModel(), epsilon=0).choose([*twins, *others], 3)
    assert sum(choice.candidate in twins for choice in choices) == 1
    only_twins = trusted(FixedModel(), epsilon=0).choose(twins, 3)
    assert len({choice.candidate.key for choice in only_twins}) == 3


def test_a_near_twin_of_what_is_still_being_measured_waits() -> None:
    base = next(candidate for candidate in POOL if candidate.knobs["tile_n"] == 64)
    twin = Candidate.of(base.template, "0", {**base.knobs, "step_k": 3})
    other, another = [candidate for candidate in POOL if candidate.knobs["tile_n"] == 32][:2]
    made = trusted(FixedModel(), epsilon=0)
    assert made.choose([base, other], 1)[0].candidate == base
    assert made.choose([twin, other], 1)[0].candidate == other
    made.observe(record_of(base, measured(100.0)))
    assert made.choose([twin, another], 1)[0].candidate == twin


def test_a_candidate_without_tiles_is_neither_learned_from_nor_predicted() -> None:
    made = gate(FixedModel())
    made.observe(record_of(Candidate.untuned(), measured(1.0), predicted=0.0))
    made.refit()
    assert made.choose([Candidate.untuned(), POOL[0]], 2) == [
        Choice(Candidate.untuned(), None),
        made.choose([POOL[0]], 1)[0],
    ]


def test_refit_hands_over_all_observations_so_far_with_their_features() -> None:
    shapes: list[tuple[int, int]] = []

    class Recorder(FixedModel):
        def fit(self, features: Matrix, observations: Sequence[Observation]) -> None:
            shapes.append((len(features), len(observations)))

    made = gate(Recorder())
    made.refit()
    show(made, skilled=True, count=5)
    made.refit()
    assert shapes == [(0, 0), (5, 5)]


def test_learns_the_landscape_and_chooses_faster_candidates() -> None:
    gains = []
    for seed in range(3):
        made = gate(seed=seed)
        tried = play(made, rounds=20, seed=seed)
        assert made.is_active and made.rank_skill > 0.3
        gains.append(np.mean(log_times(tried[:20])) - np.mean(log_times(tried[-20:])))
    # The last twenty, a quarter of which bypass the model, are well ahead of the first, random ones.
    assert np.mean(gains) > log(2) and min(gains) > log(1.5)


def test_reaches_a_better_schedule_in_the_same_number_of_trials() -> None:
    gains = []
    for seed in range(3):
        without = gate(seed=seed, policy=GatePolicy(trust_above=2.0))
        best, best_without = (min(log_times(play(made, rounds=20, seed=seed))) for made in (gate(seed=seed), without))
        assert not without.is_active
        gains.append(best_without - best)
    assert np.mean(gains) > 0


def test_learns_to_avoid_what_does_not_compile() -> None:
    tried = play(gate(seed=1), rounds=20, seed=1)
    assert sum(map(fails, tried[:20])) >= 2
    assert sum(map(fails, tried[-20:])) <= 2


def test_stays_off_nearly_always_when_times_are_pure_noise() -> None:
    active = []
    for seed in range(2):
        made = gate(seed=seed)
        for _ in range(20):
            play(made, rounds=1, seed=int(1000 * seed + len(active)), shuffle_labels=True)
            active.append(made.is_active)
    assert np.mean(active) < 0.25


def test_the_same_seed_and_outcomes_give_the_same_choices() -> None:
    first, second = (play(gate(seed=5), rounds=12, seed=5) for _ in range(2))
    assert first == second


def test_the_order_of_the_pool_matters_only_to_the_bypass() -> None:
    chosen = []
    for pool in (POOL, POOL[::-1]):
        made = gate(seed=2, policy=GatePolicy(epsilon=0))
        play(made, rounds=10, seed=2)
        assert made.is_active
        chosen.append({choice.candidate.key for choice in made.choose(pool, 6)})
    assert chosen[0] == chosen[1]


def test_an_extractor_sees_each_described_candidate_of_the_pool_once() -> None:
    seen: list[Candidate] = []

    def describing(candidate: Candidate) -> Tiling | None:
        seen.append(candidate)
        return describe(candidate)

    made = Gate(describing, FeatureExtractor(MATMUL, HARDWARE), FixedModel(), seed=0)
    made.choose(POOL, 4)
    assert seen == POOL


# -------------------------------------------------------------------------------------- screening


def compiled(candidate: Candidate) -> Record:
    """What a compiler alone tells: what fails here, spills there."""
    if fails(candidate):
        return record_of(candidate, Spilled(64, 255, 1.0))
    return record_of(candidate, Unmeasured(None, 0.3))


def screening(count: int, screens: bool = True) -> Gate:
    gate = Gate(describe, FeatureExtractor(MATMUL, HARDWARE), TreeSurrogate(0), seed=0, screens=screens)
    for candidate in draw(np.random.default_rng(1), count):
        gate.observe(compiled(candidate))
    gate.refit()
    return gate


def test_what_spills_is_passed_over_before_there_is_a_single_time() -> None:
    gate = screening(120)
    assert gate.is_active and gate.rank_skill == 0.0
    pool = draw(np.random.default_rng(2), 200)
    spilling = sum(fails(candidate) for candidate in pool) / len(pool)
    chosen = gate.choose(pool, 100)
    assert spilling > 0.05
    assert sum(fails(choice.candidate) for choice in chosen) / len(chosen) < spilling / 3
    # Nothing is known of times.
    assert {choice.predicted for choice in chosen} == {None}
    assert gate.pruned_count > 0


def test_most_of_a_pool_is_never_screened_out() -> None:
    gate = screening(120)
    bad = [candidate for candidate in draw(np.random.default_rng(3), 400) if fails(candidate)]
    assert len(gate.choose(bad, len(bad) - 1)) == len(bad) - 1
    gate.choose(bad, 1)
    assert gate.pruned_count <= 2 * len(bad) // 4


def test_too_few_failures_teach_no_screening() -> None:
    gate = Gate(describe, FeatureExtractor(MATMUL, HARDWARE), TreeSurrogate(0), seed=0, screens=True)
    fine = [candidate for candidate in draw(np.random.default_rng(1), 60) if not fails(candidate)]
    for candidate in fine:
        gate.observe(compiled(candidate))
    gate.refit()
    assert not gate.is_active


def test_a_gate_that_does_not_screen_leaves_the_pool_as_it_is() -> None:
    gate = screening(120, screens=False)
    pool = draw(np.random.default_rng(2), 50)
    assert [choice.candidate for choice in gate.choose(pool, 20)] == pool[:20]


def test_a_time_takes_the_place_of_the_news_that_it_compiles() -> None:
    gate = screening(0)
    timed = [candidate for candidate in draw(np.random.default_rng(4), 60) if not fails(candidate)][:8]
    for candidate in timed:
        gate.observe(compiled(candidate))
    gate.refit()
    assert [choice.predicted for choice in gate.choose(POOL, 4)] == [None] * 4
    for candidate in timed:
        gate.observe(record_of(candidate, outcome(candidate, np.random.default_rng(0))))
    gate.refit()
    assert all(choice.predicted is not None for choice in gate.choose(POOL, 4))

"""The three proposers against the contract, and what is particular to each."""

from __future__ import annotations

from collections.abc import Collection
from statistics import mean

import numpy as np
import optuna
import pytest

from mlsearch.candidate import Candidate
from mlsearch.errors import MlsearchError
from mlsearch.search.base import CandidateFilter, KeepFirst, Proposer, SearchSpace
from mlsearch.search.make import SAMPLERS, make_proposer
from mlsearch.testing.proposer_contract import KeepLast, ProposerContract, new_study, search
from mlsearch.testing.spaces import FakeSpace


class ByName(ProposerContract):
    name: str

    def make(
        self,
        space: SearchSpace,
        study: optuna.Study,
        seed: int,
        candidate_filter: CandidateFilter,
        known: Collection[str],
    ) -> Proposer:
        return make_proposer(self.name, space, study, seed, candidate_filter, known)


class TestTpe(ByName):
    name = "tpe"


class TestRandom(ByName):
    name = "random"


class TestExhaustive(ByName):
    name = "exhaustive"
    depends_on_the_seed = False


class BigSpace(FakeSpace):
    """About a thousand candidates; the fastest takes 100 µs, the median one about 1000."""

    def __init__(self) -> None:
        super().__init__(["a", "b"], footprint=400, tiles=tuple(range(1, 33)))


def test_an_unknown_sampler_is_told_with_the_known_ones() -> None:
    with pytest.raises(MlsearchError, match="unknown sampler 'cma'; known: tpe, random, exhaustive"):
        make_proposer("cma", FakeSpace(), new_study(), seed=0)


def test_exhaustive_asks_in_the_order_of_the_space_whatever_the_filter_says() -> None:
    space = FakeSpace()
    for candidate_filter in (KeepFirst(), KeepLast()):
        proposer = make_proposer("exhaustive", space, new_study(), 0, candidate_filter)
        asked = [each.candidate for each in search(proposer, batches=space.size, count=1)]
        assert asked == list(space)


def test_tpe_learns_where_the_fast_candidates_are() -> None:
    def late_mean(name: str, seed: int) -> float:
        proposer = make_proposer(name, BigSpace(), new_study(), seed)
        return mean(FakeSpace.time_us(each.candidate) for each in search(proposer, 40, 1)[20:])

    tpe, uniform = (mean(late_mean(name, seed) for seed in range(3)) for name in ("tpe", "random"))
    assert tpe < 0.75 * uniform


def test_tpe_stays_away_from_what_fails() -> None:
    def failed(name: str, seed: int) -> int:
        proposer = make_proposer(name, BigSpace(), new_study(), seed)
        count = 0
        for _ in range(50):
            (asked,) = proposer.ask(1)
            # What does not fail is equally fast, so failures are all that there is to learn.
            fails = int(asked.candidate.knobs["m"]) > 10
            count += fails
            proposer.tell(asked, None if fails else 100.0, {})
        return count

    tpe, uniform = (sum(failed(name, seed) for seed in range(3)) for name in ("tpe", "random"))
    assert tpe < 0.7 * uniform


def test_tpe_draws_uniformly_until_ten_trials_have_ended() -> None:
    class Watched(BigSpace):
        looked_around = False

        def neighbours(self, candidate: Candidate, rng: np.random.Generator, count: int) -> list[Candidate]:
            self.looked_around = True
            return super().neighbours(candidate, rng, count)

    space = Watched()
    study = new_study()
    search(make_proposer("tpe", space, study, seed=0, candidate_filter=KeepLast()), batches=10, count=1)
    assert not space.looked_around
    search(make_proposer("tpe", space, study, seed=0, candidate_filter=KeepLast()), batches=1, count=1)
    assert space.looked_around


def test_tpe_gives_an_active_filter_a_pool_of_draws_neighbours_and_uniform_ones() -> None:
    sizes = []

    class Watching(KeepFirst):
        is_active = True

        def choose(self, pool, count):  # type: ignore[no-untyped-def]
            sizes.append(len(pool))
            assert len({candidate.key for candidate in pool}) == len(pool)
            return super().choose(pool, count)

    proposer = make_proposer("tpe", BigSpace(), new_study(), 0, Watching())
    search(proposer, batches=5, count=4)
    assert sizes[0] == 32
    assert 40 < sizes[-1] <= 64


def test_a_resumed_tpe_knows_what_was_measured_before() -> None:
    space, study = BigSpace(), new_study()
    search(make_proposer("tpe", space, study, 0), batches=30, count=1)
    before = {trial.number for trial in study.trials}
    asked = search(make_proposer("tpe", space, study, 0), batches=10, count=1)
    assert not before & {each.number for each in asked}
    assert mean(FakeSpace.time_us(each.candidate) for each in asked) < 500


def test_untuned_is_not_in_the_space_that_tpe_models() -> None:
    proposer = make_proposer("tpe", BigSpace(), new_study(), seed=0)
    proposer.add_finished(Candidate.untuned(), 10_000.0, {})
    estimator = proposer._estimator  # type: ignore[attr-defined]
    search(proposer, batches=9, count=1)
    proposer.ask(1)
    assert not estimator.is_ready  # nine trials say something of the space, and not ten
    search(proposer, batches=1, count=1)
    proposer.ask(1)
    assert estimator.is_ready
    assert len(list(estimator.draws(3))) == 3


def test_every_sampler_of_the_command_line_is_tested_against_the_contract() -> None:
    assert set(SAMPLERS) == {TestTpe.name, TestRandom.name, TestExhaustive.name}

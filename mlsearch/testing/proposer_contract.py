"""What every proposer keeps to. Subclass `ProposerContract` in a test module and say how to make one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import replace

import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState

from mlsearch.candidate import Candidate, Choice
from mlsearch.errors import StoreError
from mlsearch.search.base import Asked, CandidateFilter, KeepFirst, Proposer, SearchSpace
from mlsearch.testing.spaces import FakeSpace


class KeepLast:
    """An active filter that prefers what comes last in the pool."""

    is_active = True

    def choose(self, pool: Sequence[Candidate], count: int) -> list[Choice]:
        return [Choice(candidate, float(i)) for i, candidate in enumerate(reversed(pool))][:count]


class ProposerContract(ABC):
    @abstractmethod
    def make(
        self,
        space: SearchSpace,
        study: optuna.Study,
        seed: int,
        candidate_filter: CandidateFilter,
        known: Collection[str],
    ) -> Proposer: ...

    def proposer(
        self,
        space: SearchSpace | None = None,
        study: optuna.Study | None = None,
        seed: int = 0,
        candidate_filter: CandidateFilter | None = None,
        known: Collection[str] = (),
    ) -> Proposer:
        return self.make(space or FakeSpace(), study or new_study(), seed, candidate_filter or KeepFirst(), known)

    def test_asks_for_valid_candidates_only_and_for_each_once(self) -> None:
        for templates in (["a"], ["a", "b"]):
            space = FakeSpace(templates)
            asked = search(self.proposer(space), batches=12, count=3)
            assert all(space.is_valid(each.candidate) for each in asked)
            assert len({each.candidate.key for each in asked}) == len(asked) > 20

    def test_an_exhausted_space_gives_what_is_left_and_then_nothing(self) -> None:
        for candidate_filter in (KeepFirst(), KeepLast()):
            space = FakeSpace(["a", "b"], footprint=8)
            proposer = self.proposer(space, candidate_filter=candidate_filter)
            asked = search(proposer, batches=space.size, count=4)
            assert {each.candidate for each in asked} == set(space)
            assert proposer.ask(4) == []

    def test_a_batch_has_no_duplicates_even_if_nothing_was_told_yet(self) -> None:
        proposer = self.proposer()
        asked = proposer.ask(10) + proposer.ask(10)
        assert len({each.candidate.key for each in asked}) == 20
        assert len({each.number for each in asked}) == 20

    def test_priors_come_first_in_their_order(self) -> None:
        priors = [FakeSpace.candidate("a", m=4, n=4), FakeSpace.candidate("a", m=32, n=2)]
        proposer = self.proposer(FakeSpace(priors=priors))
        assert [each.candidate for each in proposer.ask(3)][:2] == priors

    def test_known_candidates_are_not_asked_for_not_even_as_priors(self) -> None:
        prior, other = FakeSpace.candidate("a", m=4, n=4), FakeSpace.candidate("a", m=1, n=1)
        space = FakeSpace(priors=[prior])
        asked = search(self.proposer(space, known=[prior.key, other.key]), batches=30, count=1)
        assert {each.candidate for each in asked} == set(space) - {prior, other}

    def test_a_candidate_is_an_ordinary_optuna_trial_with_its_knobs_as_parameters(self) -> None:
        study = new_study()
        space = FakeSpace(["a", "b"])
        for each in self.proposer(space, study).ask(3):
            trial = study.trials[each.number]
            assert trial.state == TrialState.RUNNING
            assert trial.params == space.params(each.candidate)

    def test_telling_ends_the_trial_with_its_objective_and_attributes(self) -> None:
        study = new_study()
        proposer = self.proposer(study=study)
        good, bad = proposer.ask(2)
        proposer.tell(good, 12.5, {"mlsearch:outcome": "Measured"})
        proposer.tell(bad, None, {"mlsearch:outcome": "BuildFailed"})
        trials = study.trials
        assert (trials[good.number].state, trials[good.number].value) == (TrialState.COMPLETE, 12.5)
        assert trials[bad.number].state == TrialState.FAIL
        assert trials[bad.number].user_attrs["mlsearch:outcome"] == "BuildFailed"

    def test_a_trial_is_told_once_and_only_a_real_time(self) -> None:
        proposer = self.proposer()
        (asked,) = proposer.ask(1)
        for nonsense in (float("nan"), float("inf"), 0.0, -1.0):
            with pytest.raises(ValueError, match="not a positive, finite number"):
                proposer.tell(asked, nonsense, {})
        proposer.tell(asked, 1.0, {})
        with pytest.raises(ValueError, match="ended already"):
            proposer.tell(asked, 2.0, {})

    def test_the_untuned_default_is_trial_0_without_parameters_and_does_not_disturb_the_search(self) -> None:
        study = new_study()
        proposer = self.proposer(study=study)
        assert proposer.add_finished(Candidate.untuned(), 500.0, {"mlsearch:outcome": "Measured"}) == 0
        assert proposer.add_finished(Candidate.untuned(), 400.0, {}) == 0
        search(proposer, batches=15, count=1)
        assert study.trials[0].params == {}
        assert study.trials[0].value == 500.0
        assert len(study.trials) == 16

    def test_a_candidate_added_as_finished_is_not_asked_for(self) -> None:
        space = FakeSpace()
        proposer = self.proposer(space)
        done = list(space)[:5]
        for candidate in done:
            proposer.add_finished(candidate, space.time_us(candidate), {})
        asked = search(proposer, batches=30, count=1)
        assert {each.candidate for each in asked} == set(space) - set(done)

    def test_equal_seeds_give_equal_proposals_and_others_do_not(self) -> None:
        runs = [[each.candidate for each in search(self.proposer(seed=s), 6, 3)] for s in (5, 5, 6)]
        assert runs[0] == runs[1]
        assert runs[0] != runs[2] or not self.depends_on_the_seed

    depends_on_the_seed = True

    def test_a_resumed_search_repeats_nothing(self) -> None:
        space, study = FakeSpace(["a", "b"]), new_study()
        first = search(self.proposer(space, study), batches=10, count=2)
        second = search(self.proposer(space, study), batches=10, count=2)
        assert len({each.candidate.key for each in first + second}) == 40

    def test_a_resumed_search_knows_each_trial_by_its_candidate_and_not_by_its_knobs(self) -> None:
        study = new_study()
        first = self.proposer(study=study)
        first.add_finished(Candidate.untuned(), 500.0, {})
        (asked,) = first.ask(1)
        second = self.proposer(study=study)
        assert second.add_finished(Candidate.untuned(), 400.0, {}) == 0
        of_changed_template = replace(asked.candidate, template_digest="changed")
        assert second.add_finished(of_changed_template, 300.0, {}) == 2

    def test_two_proposers_on_one_study_do_not_repeat_each_other(self) -> None:
        space, study = FakeSpace(), new_study()
        one, other = self.proposer(space, study), self.proposer(space, study)
        asked = one.ask(5) + other.ask(5) + one.ask(5) + other.ask(5)
        assert len({each.candidate.key for each in asked}) == 20
        assert len({each.number for each in asked}) == 20

    def test_a_withdrawn_candidate_may_be_asked_for_again(self) -> None:
        space, study = FakeSpace(), new_study()
        proposer = self.proposer(space, study)
        (withdrawn,) = proposer.ask(1)
        proposer.withdraw(withdrawn)
        assert study.trials[withdrawn.number].state == TrialState.FAIL
        asked = search(proposer, batches=30, count=1)
        assert {each.candidate for each in asked} == set(space)

    def test_an_active_filter_decides_and_its_predictions_are_handed_on(self) -> None:
        asked = self.proposer(candidate_filter=KeepLast()).ask(3)
        assert [each.predicted for each in asked] == [0.0, 1.0, 2.0]

    def test_a_study_of_a_space_with_other_choices_is_refused(self) -> None:
        study = new_study()
        search(self.proposer(FakeSpace(), study), batches=1, count=1)
        with pytest.raises(StoreError, match="other choices of 'm'"):
            self.proposer(FakeSpace(tiles=(1, 2, 4)), study)


def new_study() -> optuna.Study:
    return optuna.create_study(storage=InMemoryStorage(), direction="minimize")


def search(proposer: Proposer, batches: int, count: int) -> list[Asked]:
    """Ask and tell; every seventh trial fails."""
    asked = []
    for _ in range(batches):
        for each in proposer.ask(count):
            asked.append(each)
            time_us = None if len(asked) % 7 == 0 else FakeSpace.time_us(each.candidate)
            proposer.tell(each, time_us, {})
    return asked

"""The one place where search reads and writes an Optuna study."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from mlsearch.candidate import Candidate
from mlsearch.errors import StoreError
from mlsearch.search.base import SearchSpace
from mlsearch.trial_attributes import ABANDONED, CANDIDATE, OWNER, Owner


class Trials:
    """The trials of a study, by whichever process, and which candidates they hold."""

    def __init__(self, study: optuna.Study, space: SearchSpace) -> None:
        assert study.directions == [StudyDirection.MINIMIZE]
        self._study = study
        self._space = space
        self._distributions: dict[str, BaseDistribution] = {
            name: CategoricalDistribution(choices) for name, choices in space.distributions.items()
        }
        self._owner = Owner.this_process().to_attribute()
        self._states: dict[int, TrialState] = {}
        self._holders: dict[str, int] = {}

    def holds(self, candidate: Candidate) -> bool:
        return candidate.key in self._holders

    def news(self) -> list[FrozenTrial]:
        """Trials that are new, or in a new state, since the last call; not to be changed.

        Raises StoreError if one comes from a space with other choices.
        """
        news = [
            trial for trial in self._study.get_trials(deepcopy=False) if self._states.get(trial.number) != trial.state
        ]
        for trial in news:
            self._check_choices(trial)
            self._states[trial.number] = trial.state
            self._note(trial)
        return news

    def start(self, candidate: Candidate) -> int:
        """Store a running trial; its number.

        One write. `enqueue_trial` and `ask` take one per parameter, and may hand the trial to another process
        that asks the same study.
        """
        return self._add(candidate, TrialState.RUNNING, None, {OWNER: self._owner})

    def finish(self, number: int, objective_us: float | None, attributes: Mapping[str, Any]) -> None:
        _check(objective_us)
        storage, study_id = self._study._storage, self._study._study_id
        trial_id = storage.get_trial_id_from_study_id_trial_number(study_id, number)
        if storage.get_trial(trial_id).state.is_finished():
            raise ValueError(f"trial {number} of study '{self._study.study_name}' has ended already")
        # Attributes first: a trial that has ended always has all of them, wherever this process is killed.
        for name, value in attributes.items():
            storage.set_trial_user_attr(trial_id, name, value)
        self._study.tell(number, objective_us, state=_end_state(objective_us))

    def add_finished(self, candidate: Candidate, objective_us: float | None, attributes: Mapping[str, Any]) -> int:
        """Store a trial that has ended; its number."""
        _check(objective_us)
        return self._add(candidate, _end_state(objective_us), objective_us, attributes)

    def holder(self, candidate: Candidate) -> int:
        """Number of the trial that holds the candidate."""
        return self._holders[candidate.key]

    def _add(self, candidate: Candidate, state: TrialState, value: float | None, attributes: Mapping[str, Any]) -> int:
        params = {} if candidate.is_untuned else self._space.params(candidate)
        marks = {**attributes, CANDIDATE: candidate.key}
        self._study.add_trial(
            create_trial(
                state=state,
                value=value,
                params=params,
                distributions={name: self._distributions[name] for name in params},
                user_attrs=marks,
            )
        )
        # Optuna does not say which number it gave; another process may have added trials as well.
        added = self._study.get_trials(deepcopy=False, states=(state,))
        number = next(trial.number for trial in reversed(added) if _marks(trial.user_attrs) == _marks(marks))
        self._holders[candidate.key] = number
        return number

    def _note(self, trial: FrozenTrial) -> None:
        key = self._key(trial)
        if key is None:
            return
        if not trial.user_attrs.get(ABANDONED):
            self._holders[key] = max(trial.number, self._holders.get(key, -1))
        elif self._holders.get(key) == trial.number:
            del self._holders[key]

    def _key(self, trial: FrozenTrial) -> str | None:
        held = trial.user_attrs.get(CANDIDATE)
        if isinstance(held, str):
            return held
        # A trial that a person added in the dashboard.
        candidate = self._space.repair(trial.params) if trial.params else None
        return candidate.key if candidate else None

    def _check_choices(self, trial: FrozenTrial) -> None:
        for name, distribution in trial.distributions.items():
            if distribution != self._distributions.get(name):
                raise StoreError(
                    f"study '{self._study.study_name}' was made for other choices of '{name}' (the templates "
                    "or the target have changed since): choose another study name"
                )


def _marks(attributes: Mapping[str, Any]) -> tuple[Any, Any]:
    """What tells a trial that was just added from all others in its state."""
    return attributes.get(CANDIDATE), attributes.get(OWNER)


def _end_state(objective_us: float | None) -> TrialState:
    return TrialState.FAIL if objective_us is None else TrialState.COMPLETE


def _check(objective_us: float | None) -> None:
    if objective_us is not None and not (math.isfinite(objective_us) and objective_us > 0):
        raise ValueError(f"objective {objective_us} is not a positive, finite number of microseconds")

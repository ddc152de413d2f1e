"""Optuna's TPE sampler, asked for parameters without a stored trial for each draw.

Optuna's samplers read a study. This one gets a study of its own, in memory, that follows the real one. There,
- a draw costs no write,
- the untuned default, which has no parameters, stays out of the model,
- what failed counts as slow, where Optuna would leave it unused,
- integers are positions on a scale, so that 8 is nearer to 16 than to 128; the real study has them as
  choices, so that its parameters read as the knobs do.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.samplers import TPESampler
from optuna.storages import InMemoryStorage
from optuna.trial import FrozenTrial, TrialState, create_trial

from mlsearch.candidate import KnobValue
from mlsearch.optuna_quiet import quiet_optuna
from mlsearch.trial_attributes import ABANDONED

TEMPLATE = "template"
"""The parameter that chooses a template; which others there are then depends on it."""

_STARTUP = 10
"""Fewer trials than this say too little. Optuna's own default."""
_FEWEST_TIMED = 2
"""Where all failed, the sampler would take some of the failures for the good ones."""
_CANDIDATES = 24
"""Looked at for each draw, as Optuna does by default. Half as many need more trials."""
_WORST = TrialState.PRUNED
"""The sampler ranks trials in this state behind all that have a time."""


class Estimator:
    """Draws parameters that resemble those of the fastest trials and not those of the others."""

    def __init__(self, choices: Mapping[str, tuple[KnobValue, ...]], rng: np.random.Generator) -> None:
        self._scales = {name: tuple(sorted(values, key=_rank)) for name, values in choices.items()}
        self._distributions = {name: _distribution(values) for name, values in self._scales.items()}
        self._rng = rng
        self._is_grouped = TEMPLATE in choices
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)  # `group` has been experimental for years
            self._sampler = TPESampler(
                multivariate=True,
                group=self._is_grouped,
                constant_liar=True,
                n_startup_trials=_STARTUP,
                n_ei_candidates=_CANDIDATES,
                seed=int(rng.integers(1 << 31)),
            )
        with quiet_optuna():
            self._study = optuna.create_study(storage=InMemoryStorage(), sampler=self._sampler)
        # The sampler takes its draws for those of a running trial: always of this one.
        self._scratch = self._study.ask().number
        self._numbers: dict[int, int] = {}
        self._ended = self._timed = 0

    def learn(self, trial: FrozenTrial) -> None:
        """Take in a trial of the real study, new or in a new state."""
        number = self._numbers.get(trial.number)
        if number is None:
            number = self._numbers[trial.number] = len(self._numbers) + 1
            params = {name: self._position(name, value) for name, value in trial.params.items()}
            distributions = {name: self._distributions[name] for name in params}
            self._study.add_trial(create_trial(state=TrialState.RUNNING, params=params, distributions=distributions))
        if trial.user_attrs.get(ABANDONED):
            self._study.tell(number, state=TrialState.FAIL)
            return
        if not trial.state.is_finished():
            return
        self._ended += 1
        if trial.state == TrialState.COMPLETE:
            self._timed += 1
            self._study.tell(number, trial.value)
        else:
            self._study.tell(number, state=_WORST)

    @property
    def is_ready(self) -> bool:
        """Whether enough trials have ended to draw."""
        return self._ended >= _STARTUP and self._timed >= _FEWEST_TIMED

    def draws(self, count: int) -> Iterator[dict[str, KnobValue]]:
        """`count` times a value for every parameter. Only if `is_ready`.

        Draws are independent of each other, may repeat, and may violate constraints.
        """
        scratch = self._study.get_trials(deepcopy=False)[self._scratch]
        modelled = self._modelled(scratch)
        for _ in range(count):
            drawn = self._sampler.sample_relative(self._study, scratch, modelled)
            yield {name: self._value(name, drawn.get(name)) for name in self._scales}

    def _modelled(self, scratch: FrozenTrial) -> dict[str, BaseDistribution]:
        if self._is_grouped:
            return self._sampler.infer_relative_search_space(self._study, scratch)
        # All trials have all parameters. Optuna would find that out for each draw, in several milliseconds.
        return {name: each for name, each in self._distributions.items() if not each.single()}

    def _position(self, name: str, value: KnobValue) -> Any:
        if isinstance(self._distributions[name], IntDistribution):
            return self._scales[name].index(value)
        return value

    def _value(self, name: str, drawn: Any) -> KnobValue:
        scale = self._scales[name]
        if drawn is None:  # no trial has had this parameter yet, or it has one choice only
            return scale[int(self._rng.integers(len(scale)))]
        return scale[drawn if isinstance(self._distributions[name], IntDistribution) else scale.index(drawn)]


def _distribution(scale: tuple[KnobValue, ...]) -> BaseDistribution:
    if all(isinstance(value, int) for value in scale):
        return IntDistribution(0, len(scale) - 1)
    return CategoricalDistribution(scale)


def _rank(value: KnobValue) -> tuple[bool, KnobValue]:
    """Integers in their order, before texts in theirs."""
    return isinstance(value, str), value

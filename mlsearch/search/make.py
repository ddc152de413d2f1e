"""Proposers by name, as the command line knows them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import optuna

from mlsearch.errors import MlsearchError
from mlsearch.search.base import CandidateFilter, KeepFirst, Proposer, SearchSpace
from mlsearch.search.from_study import StudyProposer
from mlsearch.search.tpe import TpeProposer
from mlsearch.search.uniform import ExhaustiveProposer, RandomProposer

SAMPLERS: Mapping[str, type[StudyProposer]] = MappingProxyType(
    {"tpe": TpeProposer, "random": RandomProposer, "exhaustive": ExhaustiveProposer}
)


def make_proposer(
    name: str,
    space: SearchSpace,
    study: optuna.Study,
    seed: int,
    candidate_filter: CandidateFilter | None = None,
    known: Collection[str] = (),
) -> Proposer:
    """The proposer called `name`, on a study that minimizes.

    `known` are keys of candidates that are not to be asked for, besides those that the study holds. Raises
    MlsearchError for an unknown name, StoreError if the study was made for a space with other choices.
    """
    if name not in SAMPLERS:
        raise MlsearchError(f"unknown sampler '{name}'; known: {', '.join(SAMPLERS)}")
    return SAMPLERS[name](space, study, seed, candidate_filter or KeepFirst(), known)

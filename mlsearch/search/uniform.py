"""Proposers that learn nothing from what they are told."""

from __future__ import annotations

from collections.abc import Iterator

from mlsearch.candidate import Candidate
from mlsearch.search.from_study import StudyProposer

_FILTERED_POOL = 64


class RandomProposer(StudyProposer):
    """Draws uniformly among the valid candidates."""

    def _pool(self, wanted: int) -> list[Candidate]:
        return self.uniform(max(wanted, _FILTERED_POOL) if self._filter.is_active else wanted)


class ExhaustiveProposer(StudyProposer):
    """Walks through the whole space in its own order. A filter may predict, but has nothing to choose."""

    _walk: Iterator[Candidate] | None = None

    def _pool(self, wanted: int) -> list[Candidate]:
        if self._walk is None:
            self._walk = iter(self.space)
        found = self.fresh(self._walk, wanted)
        if not found:  # once more from the start, for trials that were withdrawn
            self._walk = iter(self.space)
            found = self.fresh(self._walk, wanted)
        return found

"""A builder without a compiler, for tests of what stands around one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from mlsearch.builder.base import Builder, check_requests
from mlsearch.candidate import BuildOutcome, BuildRequest


class FakeBuilder(Builder):
    """Answers from a mapping by key, or from a callable; remembers what it was asked."""

    def __init__(self, answers: Mapping[str, BuildOutcome] | Callable[[BuildRequest], BuildOutcome]) -> None:
        self._answers = answers
        self.asked: list[BuildRequest] = []
        """All requests that were started, in order."""
        self.closed = False

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[tuple[BuildRequest, BuildOutcome]]:
        check_requests(requests)
        return self._outcomes(tuple(requests))

    def close(self) -> None:
        self.closed = True

    def _outcomes(self, requests: tuple[BuildRequest, ...]) -> Iterator[tuple[BuildRequest, BuildOutcome]]:
        for request in requests:
            self.asked.append(request)
            outcome = self._answers(request) if callable(self._answers) else self._answers[request.key]
            yield request, outcome

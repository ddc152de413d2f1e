"""What a search asks of a builder."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Self

from mlsearch.candidate import BuildOutcome, BuildRequest

_SAFE_KEY = re.compile(r"[A-Za-z0-9._-]+")


class Builder(ABC):
    """Compiles requests, several at a time where it can. `mlsearch.testing.builder_contract` tests one."""

    @abstractmethod
    def build(self, requests: Sequence[BuildRequest]) -> Iterator[tuple[BuildRequest, BuildOutcome]]:
        """Each request once, with how it ended, in the order of completion.

        A request's failure is a value. Raises ValueError at once for keys that can't name files or aren't
        unique; the iterator raises MlsearchError where nothing can be built any more, e.g. on a full disk. An
        iterator that is dropped, closed or followed by another `build` gives up what it has not yielded.
        """

    @abstractmethod
    def close(self) -> None:
        """End all builds and free what they hold. Artifacts stay. Harmless when called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_requests(requests: Sequence[BuildRequest]) -> None:
    """Raises ValueError unless each key is a plain file name and names one request only."""
    seen: set[str] = set()
    for request in requests:
        if not _SAFE_KEY.fullmatch(request.key) or request.key.startswith("."):
            raise ValueError(f"build key {request.key!r} can't name a file; use letters, digits, '_', '-', '.'")
        if request.key in seen:
            raise ValueError(f"two build requests have the key {request.key!r}; their files would clash")
        seen.add(request.key)

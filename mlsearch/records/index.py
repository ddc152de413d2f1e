"""Which records a store holds, by content: so that nothing is compiled or timed twice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import FrozenTrial

from mlsearch.candidate import CacheState, Record
from mlsearch.records import codec
from mlsearch.trial_attributes import CANDIDATE

_Key = tuple[Any, ...]

_OF_THE_COMPILER = ("BuildFailed", "NotApplied", "Spilled", "OverLimits")
"""Outcomes that nothing was run for: they hold whatever is in the caches."""
_OPEN = ("Unmeasured", "BuildTimeout", "RunTimeout")
"""Say nothing of how a candidate ends where it can be measured, or once the machine has no other work."""


@dataclass
class Index:
    """Knows trials by their scalar attributes and decodes a record only when it is asked for."""

    _by_candidate: dict[_Key, str] = field(default_factory=dict)
    _by_artifact: dict[_Key, str] = field(default_factory=dict)
    _seen: dict[int, set[int]] = field(default_factory=dict)

    def update(self, study_id: int, trials: Iterable[FrozenTrial]) -> None:
        """Take in the records of a study's trials; of equal content the later one counts."""
        seen = self._seen.setdefault(study_id, set())
        for trial in trials:
            text = trial.user_attrs.get(codec.RECORD)
            if text is not None and trial.number not in seen:
                seen.add(trial.number)
                self._add(trial.user_attrs, text)

    def candidate(
        self, key: str, workload: str, target: str, compiler: str, threads: int, cache: CacheState
    ) -> Record | None:
        content = (key, workload, target, compiler, threads)
        return _decoded(self._by_candidate.get((*content, cache), self._by_candidate.get((*content, None))))

    def artifact(self, digest: str, workload: str, target: str, threads: int, cache: CacheState) -> Record | None:
        return _decoded(self._by_artifact.get((digest, workload, target, threads, cache)))

    def _add(self, attributes: dict[str, Any], text: str) -> None:
        workload, target, compiler, threads = (
            attributes.get(f"mlsearch:{name}") for name in ("workload", "target", "compiler", "threads")
        )
        cache, outcome = attributes.get("mlsearch:cache", "warm"), attributes.get("mlsearch:outcome")
        if outcome in _OPEN:
            return
        state = None if outcome in _OF_THE_COMPILER else cache
        self._by_candidate[attributes.get(CANDIDATE), workload, target, compiler, threads, state] = text
        artifact = attributes.get("mlsearch:artifact")
        if artifact is not None and outcome == "Measured":
            self._by_artifact[artifact, workload, target, threads, cache] = text


def _decoded(text: str | None) -> Record | None:
    return None if text is None else codec.from_json(text)

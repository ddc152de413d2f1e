"""A runner for tests of what uses runners: its answers come from a callable, no program runs."""

from __future__ import annotations

from collections.abc import Callable

from mlsearch.candidate import (
    Compared,
    CompareOutcome,
    CompareRequest,
    Measured,
    Numerics,
    RunFailed,
    RunOutcome,
    RunRequest,
)
from mlsearch.runner.base import Runner

RIGHT = Numerics(agrees=True, max_abs_error=0.0, max_rel_error=0.0, tolerance=1e-5, unwritten=0, elements=1)


class AnsweringRunner(Runner):
    """Answers `run` with `answer(request)`, and keeps all requests."""

    def __init__(
        self,
        answer: Callable[[RunRequest], RunOutcome],
        answer_compare: Callable[[CompareRequest], CompareOutcome] | None = None,
    ) -> None:
        """Without `answer_compare` a comparison is put together from what `answer` says of each artifact:
        its `time_us` in all rounds."""
        self._answer = answer
        self._answer_compare = answer_compare or self._compare_by_answers
        self.requests: list[RunRequest] = []
        self.comparisons: list[CompareRequest] = []
        self.is_closed = False

    def run(self, request: RunRequest) -> RunOutcome:
        self.requests.append(request)
        return self._answer(request)

    def compare(self, request: CompareRequest) -> CompareOutcome:
        self.comparisons.append(request)
        return self._answer_compare(request)

    def close(self) -> None:
        self.is_closed = True

    def _compare_by_answers(self, request: CompareRequest) -> CompareOutcome:
        baseline = request.artifacts[0]
        samples, numerics = [], []
        for artifact in request.artifacts:
            outcome = self._answer(RunRequest(artifact, baseline, request.signature, request.plan))
            if not isinstance(outcome, Measured):
                return RunFailed(f"{artifact.name}: {type(outcome).__name__}", None)
            samples.append((outcome.time_us,) * request.rounds)
            numerics.append(outcome.numerics)
        return Compared(tuple(samples), tuple(numerics))


def measured(time_us: float, *, baseline_us: tuple[float, ...] = (), samples: int = 5) -> Measured:
    """A measurement without noise."""
    return Measured((time_us,) * samples, baseline_us, RIGHT, cut_short=False)

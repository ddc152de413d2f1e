"""What a runner is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType

from mlsearch.candidate import CompareOutcome, CompareRequest, RunOutcome, RunRequest


class Runner(ABC):
    """Loads artifacts, checks their numbers, times them. One request at a time.

    A program's failure is a value; so is an element type that the runner can't feed (RunFailed). Raises
    RunnerError where no program could be measured: no device, or an untuned build that does not run. After
    either the next request finds a working runner.
    `mlsearch.testing.runner_contract` tests an implementation.
    """

    @abstractmethod
    def run(self, request: RunRequest) -> RunOutcome:
        """Check one artifact against the baseline, then time it.

        `baseline_us` may be empty: a slow baseline is not timed in each request.
        """

    @abstractmethod
    def compare(self, request: CompareRequest) -> CompareOutcome:
        """Time artifacts against each other, in an order that is shuffled each round.

        A wrong artifact is timed as well and told by its `numerics`. All `rounds` are run: `plan.timeout_s`
        has to allow for them.
        """

    @abstractmethod
    def close(self) -> None:
        """End what the runner has started. Harmless to call again."""

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

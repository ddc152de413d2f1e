"""Runs artifacts on this machine, in a child process that is replaced when it dies or hangs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mlsearch.candidate import (
    Compared,
    CompareOutcome,
    CompareRequest,
    Measured,
    RunFailed,
    RunOutcome,
    RunRequest,
    RunTimeout,
    WrongResult,
)
from mlsearch.child import Child, ChildDied, ChildTimeout
from mlsearch.errors import RunnerError
from mlsearch.runner import messages
from mlsearch.runner.base import Runner

WORKER = "mlsearch.runner.worker"
START_TIMEOUT_S = 60.0
DEFAULT_LLC_BYTES = 32 * 1024 * 1024


class LocalRunner(Runner):
    """One worker process, started on first use and kept, with the last few baselines, until `close`."""

    def __init__(
        self,
        device_uri: str,
        *,
        threads: int,
        log_folder: Path,
        llc_bytes: int = DEFAULT_LLC_BYTES,
        baseline_timeout_s: float = 300.0,
        memory_bytes: int | None = None,
        worker: str | Sequence[str] = WORKER,
    ) -> None:
        """`device_uri` is `local-sync` for one thread, `local-task` for more; the worker and all its threads
        stay on `threads` cores. `llc_bytes`: last-level cache, for cold measurements. `memory_bytes` limits
        the worker's address space. `worker`: another module or command that serves as one."""
        self._baseline_timeout_s = baseline_timeout_s
        self._child = Child(
            worker,
            (device_uri, str(threads), str(llc_bytes)),
            log=log_folder / "runner.log",
            memory_bytes=memory_bytes,
        )
        self._is_started = False

    def run(self, request: RunRequest) -> RunOutcome:
        obstacle = self._prepare(request)
        if obstacle:
            return obstacle
        answer = self._ask({"do": "run", **messages.encode_run(request)}, request.plan.timeout_s)
        assert not isinstance(answer, Compared)
        return answer

    def compare(self, request: CompareRequest) -> CompareOutcome:
        if not request.artifacts:
            raise ValueError("nothing to compare")
        baseline = request.artifacts[0]
        obstacle = self._prepare(RunRequest(baseline, baseline, request.signature, request.plan))
        if obstacle:
            return obstacle
        answer = self._ask({"do": "compare", **messages.encode_compare(request)}, request.plan.timeout_s)
        assert not isinstance(answer, Measured | WrongResult)
        return answer

    def close(self) -> None:
        self._child.kill()
        self._is_started = False

    def _prepare(self, request: RunRequest) -> RunFailed | None:
        """Start the worker and have it run the baseline, so that neither counts against the candidate."""
        message = {"do": "prepare", **messages.encode_run(request)}
        try:
            answer = self._start_and_ask(message)
        except ChildDied:
            # The worker may have died while idle, e.g. of the system's memory pressure: once is no proof.
            try:
                answer = self._start_and_ask(message)
            except ChildDied as error:
                raise RunnerError(f"the untuned build {request.baseline} does not run: {error}") from error
        if answer["outcome"] == "no baseline":
            raise RunnerError(f"the untuned build does not run: {answer['message']}")
        return None if answer["outcome"] == "ready" else RunFailed(answer["message"], self._child.log)

    def _start_and_ask(self, message: dict[str, Any]) -> dict[str, Any]:
        self._start()
        try:
            return self._request(message, self._baseline_timeout_s)
        except ChildTimeout as error:
            raise RunnerError(f"the untuned build {message['baseline']} does not end: {error}") from error

    def _start(self) -> None:
        if self._is_started:
            return
        try:
            self._request({"do": "start"}, START_TIMEOUT_S)
        except (ChildDied, ChildTimeout) as error:
            raise RunnerError(f"the runner's process does not start: {error}; see {self._child.log}") from error
        self._is_started = True

    def _ask(
        self, message: dict[str, Any], timeout_s: float
    ) -> Measured | WrongResult | Compared | RunFailed | RunTimeout:
        try:
            answer = self._request(message, timeout_s)
        except ChildTimeout:
            return RunTimeout(timeout_s)
        except ChildDied as error:
            return RunFailed(str(error), self._child.log)
        return messages.decode_outcome(answer, self._child.log)

    def _request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        try:
            return self._child.request(message, timeout_s)
        except (ChildDied, ChildTimeout):
            self._is_started = False
            raise

"""A pool of long-lived compile processes on this machine."""

from __future__ import annotations

import errno
import os
import selectors
import shutil
import tempfile
import time
import weakref
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlsearch.builder.base import Builder, check_requests
from mlsearch.builder.diagnostics import headline, ran_out_of_memory
from mlsearch.candidate import BuildFailed, BuildOutcome, BuildRequest, BuildTimeout, Built, NotApplied
from mlsearch.child import Child, ChildDied, ChildTimeout
from mlsearch.errors import MlsearchError, NoSpaceError
from mlsearch.files import is_full, tells_of_no_space
from mlsearch.toolchain import compile_argv

_WORKER = "mlsearch.builder.worker"
_START_S = 30.0
"""Allowed for a process to start, on top of a request's own limit, which the worker enforces."""
_SLACK_S = 1.0
"""How long after the limit an answer from a running process may come."""
_LEAST_MEMORY = 1 << 30
"""IREE alone, before it compiles anything, takes 0.6 GB of address space."""


@dataclass(frozen=True)
class _Underway:
    request: BuildRequest
    started: float
    deadline: float
    """On the monotonic clock; the process is killed then."""


Outcomes = Generator[tuple[BuildRequest, BuildOutcome], None, None]


class LocalBuilder(Builder):
    """Up to `jobs` requests at a time, each in a process of its own that is used again while it lives.

    Processes start on their first request. While the caller holds an outcome, up to `jobs` others are being
    compiled; exhaust or close the iterator before timing anything on the same cores.
    """

    def __init__(self, workdir: Path, jobs: int, memory_bytes: int | None) -> None:
        """Artifacts are `<workdir>/<key>.vmfb`; a failure leaves `<key>.log` and `<key>.library.mlir` there.

        `memory_bytes` limits the address space of each process; None: no limit. Raises ValueError for `jobs`
        below 1 or less memory than 1 GiB, MlsearchError if `workdir` can't be written.
        """
        if jobs < 1:
            raise ValueError(f"jobs={jobs}: at least one compile process is needed")
        if memory_bytes is not None and memory_bytes < _LEAST_MEMORY:
            raise ValueError(f"memory_bytes={memory_bytes}: a compile process needs at least {_LEAST_MEMORY}")
        self._workdir = workdir.absolute()
        self._memory_bytes = memory_bytes
        try:
            self._workdir.mkdir(parents=True, exist_ok=True)
            self._scratch = Path(tempfile.mkdtemp(prefix="builder-", dir=self._workdir))
        except OSError as error:
            raise self._cannot_write(str(error.strerror)) from None
        self._children = [self._child(str(number)) for number in range(jobs)]
        self._latest: weakref.ref[Outcomes] | None = None

    def build(self, requests: Sequence[BuildRequest]) -> Iterator[tuple[BuildRequest, BuildOutcome]]:
        check_requests(requests)
        self._abandon()
        outcomes = self._outcomes(deque(requests))
        self._latest = weakref.ref(outcomes)
        return outcomes

    def close(self) -> None:
        self._abandon()
        for child in self._children:
            child.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _child(self, name: str) -> Child:
        folder = self._scratch / name
        log = self._scratch / f"{name}.log"
        return Child(_WORKER, [str(folder)], log=log, memory_bytes=self._memory_bytes)

    def _abandon(self) -> None:
        """End an iteration that the caller left half-way but still holds."""
        outcomes = self._latest() if self._latest else None
        if outcomes is not None:
            outcomes.close()

    def _outcomes(self, waiting: deque[BuildRequest]) -> Outcomes:
        busy: dict[Child, _Underway] = {}
        idle = list(self._children)

        def refill() -> None:
            while waiting and idle:
                self._begin(waiting.popleft(), idle.pop(), busy)

        try:
            refill()
            while busy:
                child, spoke = _next_settled(busy)
                request = busy[child].request
                outcome = self._finish(child, busy[child]) if spoke else self._too_late(child, request)
                del busy[child]
                idle.append(child)
                refill()
                yield request, outcome
        finally:
            # Also on KeyboardInterrupt: an answer to an old request must never meet a new one.
            for child in busy:
                child.kill()

    def _begin(self, request: BuildRequest, child: Child, busy: dict[Child, _Underway]) -> None:
        if child.answer_fd >= 0 and _spoke([child], 0.0):
            child.kill()  # it died while idle, e.g. by the kernel's out-of-memory killer
        for name in ("log", "vmfb", "vmfb.part"):
            self._file(request, name).unlink(missing_ok=True)
        now = time.monotonic()
        allowed = request.timeout_s + (_SLACK_S if child.answer_fd >= 0 else _START_S)
        busy[child] = _Underway(request, now, now + allowed)
        message = {
            "module": str(request.module.absolute()),
            "library": request.library,
            "entries": request.entries,
            "flags": request.flags,
            "timeout_s": request.timeout_s,
            "artifact": str(self._file(request, "vmfb")),
            "log": str(self._file(request, "log")),
        }
        try:
            child.send(message)
        except ChildDied as died:
            raise MlsearchError(f"the compile process does not start: {died}") from None
        except OSError as error:
            raise self._cannot_write(str(error.strerror)) from None

    def _finish(self, child: Child, underway: _Underway) -> BuildOutcome:
        request = underway.request
        try:
            answer = child.receive(_SLACK_S)
        except ChildTimeout:
            return self._too_late(child, request)
        except ChildDied as died:
            return self._died(died, underway)
        if "fatal" in answer:
            raise self._cannot_write(answer["fatal"])
        return self._outcome(request, answer)

    def _outcome(self, request: BuildRequest, answer: dict[str, Any]) -> BuildOutcome:
        compile_s = answer["compile_s"]
        match answer["outcome"]:
            case "built":
                return Built(self._file(request, "vmfb"), answer["digest"], compile_s)
            case "not_applied":
                return NotApplied(tuple(answer["missing"]), compile_s)
            case _:
                message = answer["message"]
                return self._failed(request, answer["stage"], message, compile_s, message)

    def _died(self, died: ChildDied, underway: _Underway) -> BuildOutcome:
        request = underway.request
        log = self._file(request, "log")
        if not log.exists():  # the worker's first act on a request
            raise MlsearchError(f"the compile process does not start: {died}")
        if died.how == "signal SIGALRM":  # the worker's own time limit
            return self._timeout(request)
        said = log.read_text(errors="replace")
        message = f"the compiler died with {died.how}: {headline(said) or str(died)}"
        return self._failed(request, "crash", message, time.monotonic() - underway.started, f"{said}\n{died}")

    def _failed(self, request: BuildRequest, stage: str, message: str, compile_s: float, said: str) -> BuildFailed:
        if tells_of_no_space(said) or is_full(self._workdir):
            # The candidate is not to blame, and no other one would fare better.
            raise self._cannot_write(os.strerror(errno.ENOSPC))
        if self._memory_bytes and ran_out_of_memory(said):
            limit = f"{self._memory_bytes / 2**20:.0f} MiB"
            message = f"out of memory, a compile process may use {limit}: {message}"
        return BuildFailed(stage, message, self._file(request, "log"), self._argv(request), compile_s)

    def _too_late(self, child: Child, request: BuildRequest) -> BuildTimeout:
        child.kill()
        return self._timeout(request)

    def _timeout(self, request: BuildRequest) -> BuildTimeout:
        self._file(request, "log").unlink(missing_ok=True)
        self._file(request, "vmfb.part").unlink(missing_ok=True)
        return BuildTimeout(request.timeout_s, self._argv(request))

    def _argv(self, request: BuildRequest) -> tuple[str, ...]:
        """A command that builds `request` outside of the pool. Keeps the library for it."""
        library = None
        if request.library is not None:
            library = self._file(request, "library.mlir")
            try:
                library.write_text(request.library)
            except OSError as error:
                raise self._cannot_write(str(error.strerror)) from None
        artifact = self._file(request, "vmfb")
        return compile_argv(request.module.absolute(), artifact, request.flags, library=library, compile_from="flow")

    def _file(self, request: BuildRequest, suffix: str) -> Path:
        return self._workdir / f"{request.key}.{suffix}"

    def _cannot_write(self, reason: str) -> MlsearchError:
        kind = NoSpaceError if tells_of_no_space(reason) else MlsearchError
        return kind(f"can't write in {self._workdir}: {reason}; free some space or give --workdir")


def _next_settled(busy: dict[Child, _Underway]) -> tuple[Child, bool]:
    """The next child that answered or died (True), or else is past its deadline (False)."""
    while True:
        first = min(busy, key=lambda child: busy[child].deadline)
        left = busy[first].deadline - time.monotonic()
        ready = _spoke(list(busy), max(0.0, left))
        if ready:
            return ready[0], True
        if left <= 0:
            return first, False


def _spoke(children: Sequence[Child], timeout_s: float) -> list[Child]:
    """Those with something to read, an answer or the end of the process; waits up to `timeout_s` for one."""
    with selectors.DefaultSelector() as selector:
        for child in children:
            selector.register(child.answer_fd, selectors.EVENT_READ, child)
        return [key.data for key, _ in selector.select(timeout_s)]

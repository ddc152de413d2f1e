"""A child process that answers JSON requests one at a time, and that can be killed at any moment.

Builders and runners are such children: a crash, a hang or a memory leak inside IREE takes down the child only.
The parent writes one JSON object per line to the child's stdin and reads one per line from a private pipe, so
whatever native code prints on stdout or stderr lands in the log and can't disturb the protocol.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_CHATTER = ("nanobind: ", "- leaked ", "- ... skipped ", "See https://nanobind")


class ChildTimeout(Exception):
    """No answer in time; the child has been killed."""


class ChildDied(Exception):
    """The child ended without an answer; the message says how."""

    how: str = ""
    """`signal SIGSEGV`, `exit code 1`."""


class Child:
    """Starts the process on first use, and again after it was killed or died."""

    def __init__(
        self, module: str | Sequence[str], arguments: Sequence[str] = (), *, log: Path, memory_bytes: int | None = None
    ) -> None:
        """`module` is run with `python -m`, unless it is a whole command; its main calls `serve`. stdout and stderr
        are appended to `log`."""
        self._command = [sys.executable, "-m", module] if isinstance(module, str) else list(module)
        self._arguments = list(arguments)
        self.log = log
        self._memory_bytes = memory_bytes
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: int = -1
        self._buffer = b""

    def request(self, message: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        """The child's answer. Raises ChildTimeout or ChildDied; after either, the next request starts afresh."""
        try:
            self.send(message)
            return self.receive(timeout_s)
        except BaseException:
            # E.g. Ctrl-C: the answer to come must not be taken for that of the next request.
            self.kill()
            raise

    def send(self, message: dict[str, Any]) -> None:
        """Write a request; `receive` waits for its answer."""
        process = self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def receive(self, timeout_s: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not _readable(self._answers, left):
                self.kill()
                raise ChildTimeout(f"no answer within {timeout_s:.1f} s")
            chunk = os.read(self._answers, 1 << 16)
            if not chunk:
                raise self._died()
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    @property
    def answer_fd(self) -> int:
        """For select: readable when an answer waits."""
        return self._answers

    def kill(self) -> None:
        """End the process at once. Harmless when none runs."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        if self._process.stdin:
            with suppress(BrokenPipeError):  # closing flushes what a dead process did not take
                self._process.stdin.close()
        os.close(self._answers)
        self._process, self._answers, self._buffer = None, -1, b""

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            return self._process
        read_end, write_end = os.pipe()
        limits = [str(write_end), str(self._memory_bytes or 0), str(os.getpid())]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, *limits, *self._arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(write_end,),
                start_new_session=True,  # Ctrl-C in the terminal is the parent's to handle
            )
        os.close(write_end)
        self._answers = read_end
        return self._process

    def _died(self) -> ChildDied:
        assert self._process is not None
        code = self._process.wait()
        self.kill()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        died = ChildDied(f"the process ended with {how}; last words: {_tail(self.log)}")
        died.how = how
        return died


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Main loop of a child: answer each request line on stdin until the parent goes away."""
    answers, memory_bytes, parent = (int(value) for value in sys.argv[1:4])
    _die_with(parent)
    if memory_bytes:
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        if most != resource.RLIM_INFINITY:  # e.g. by `ulimit -v`; a process can't raise it
            memory_bytes = min(memory_bytes, most)
        resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    with os.fdopen(answers, "wb") as stream:
        for line in sys.stdin.buffer:
            stream.write(json.dumps(handle(json.loads(line))).encode() + b"\n")
            stream.flush()


def child_arguments() -> list[str]:
    """Arguments after the ones that `Child` puts first."""
    return sys.argv[4:]


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent ends, however that happens (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the parent ended before this process was ready")


def _readable(descriptor: int, timeout_s: float) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        return bool(selector.select(timeout_s))


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return "none"
    # Python's bindings of IREE complain of what a dying process did not give back, after its own last words.
    words = [line for line in lines if not line.lstrip().startswith(_CHATTER)]
    return words[-1][:300] if words else "none"

"""Optuna's journal file, made to survive a killed process and a full disk.

A journal is a text file with one JSON object per line, each an operation that Optuna replays on opening. A
process that is killed in mid-append leaves part of a line; here that part is cut off under the lock, before
anything is written behind it.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from mlsearch.errors import StoreError

_FIRST_BYTES = b'{"op_code":'
"""What Optuna writes first in each line."""
_TAIL_STEP = 1 << 16


class JournalFile(JournalFileBackend):
    """Appends under a lock of the kernel's, which is free again when its holder dies, even by kill -9."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError where `path` is something else than a journal; that is left as it was."""
        self.path = path
        self.cut_bytes = 0
        """Length of the torn line that was cut off on opening."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path) as descriptor:
                self.cut_bytes = mend(path, descriptor)
        except OSError as error:
            raise _cannot("open", path, error) from None
        super().__init__(str(path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """All of `logs`, or StoreError and the file as it was."""
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        try:
            with _locked(self.path) as descriptor:
                if not _ends_a_line(descriptor):  # another process died while this one was open
                    mend(self.path, descriptor)
                _append(descriptor, data, durable=any(_ends_a_trial(log) for log in logs))
        except OSError as error:
            raise _cannot("write", self.path, error) from None


def mend(path: Path, descriptor: int) -> int:
    """Cut off a last line that is torn; the number of bytes cut.

    `descriptor` is open for reading and writing and holds the lock. Raises StoreError, with the file
    untouched, unless all other lines are entries of a journal.
    """
    size = os.fstat(descriptor).st_size
    if size == 0:
        return 0
    first = os.pread(descriptor, _TAIL_STEP, 0).partition(b"\n")[0]
    if not _is_ours(first):
        hint = f"; it is an SQLite file: sqlite:///{path}" if first.startswith(b"SQLite format 3") else ""
        raise StoreError(f"'{path}' is not a record store: its first line is no journal entry{hint}")
    if _ends_a_line(descriptor) and _is_entry(_last_line(descriptor, size)):
        return 0
    with path.open("rb") as lines:
        kept, torn = 0, 0
        for number, line in enumerate(lines, start=1):
            if torn:
                raise StoreError(f"'{path}' is damaged: line {number - 1} is no journal entry, but others follow")
            if line.endswith(b"\n") and _is_entry(line):
                kept += len(line)
            else:
                torn = len(line)
    os.ftruncate(descriptor, kept)
    return torn


def first_damage(path: Path) -> str:
    """Where a journal stops making sense, for people."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not _is_entry(line):
                return f"line {number} is no journal entry"
    return "an entry does not fit those before it"


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """An open descriptor of the file, made if missing, while no other process writes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK, 0o644)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StoreError(f"'{path}' is not a regular file; a record store is one")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)  # gives up the lock as well


def _append(descriptor: int, data: bytes, *, durable: bool) -> None:
    size = os.fstat(descriptor).st_size
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        if durable:
            os.fsync(descriptor)
    except OSError:
        with suppress(OSError):  # if even this fails, the next append or open cuts the torn line
            os.ftruncate(descriptor, size)
        raise


def _ends_a_trial(log: dict[str, Any]) -> bool:
    """What must outlive a power cut. A killed process loses nothing that was written, even without fsync."""
    state = log.get("state")
    return state is not None and TrialState(state).is_finished()


def _ends_a_line(descriptor: int) -> bool:
    size = os.fstat(descriptor).st_size
    return size == 0 or os.pread(descriptor, 1, size - 1) == b"\n"


def _last_line(descriptor: int, size: int) -> bytes:
    tail, start = b"", size
    while start > 0 and b"\n" not in tail[:-1]:
        step = min(_TAIL_STEP, start)
        start -= step
        tail = os.pread(descriptor, step, start) + tail
    return tail[:-1].rpartition(b"\n")[2]


def _is_ours(first_line: bytes) -> bool:
    """An entry, or as much of one as a torn append may have left."""
    return first_line != b"" and (first_line.startswith(_FIRST_BYTES) or _FIRST_BYTES.startswith(first_line))


def _is_entry(line: bytes) -> bool:
    try:
        entry = json.loads(line)
    except ValueError:
        return False
    return isinstance(entry, dict) and isinstance(entry.get("op_code"), int) and "worker_id" in entry


def _cannot(what: str, path: Path, error: OSError) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreError(f"no space left to {what} '{path}'; what it holds is intact: free some and run again")
    if error.errno == errno.EISDIR:
        return StoreError(f"'{path}' is a folder; name a file for the record store, e.g. {path}/store.journal")
    return StoreError(f"cannot {what} record store '{path}': {error.strerror}")

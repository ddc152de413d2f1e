"""One measurement per device at a time, across all processes of a machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from mlsearch.errors import RunnerError


@contextmanager
def exclusive(device: str, say: Callable[[str], None], folder: Path | None = None) -> Iterator[None]:
    """Hold a device; waits, and says so, while another process measures on it. Gone with the process, however it ends.

    All devices of one driver count as one: two GPUs share a host whose launches they would both wait for.
    Raises RunnerError where the lock can't be made.
    """
    name = "cpu" if device.startswith("local-") else device.partition(":")[0]
    path = (folder or Path(tempfile.gettempdir())) / f"mlsearch-{name}.lock"
    # O_NOFOLLOW: in a folder that everyone may write to, the name may be a trap.
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    is_ours = True
    try:
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
        except PermissionError:
            # Another user's file can be locked as well, but does not take our number.
            descriptor, is_ours = os.open(path, os.O_RDONLY | flags), False
    except OSError as error:
        raise RunnerError(f"can't lock the device by {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Empty where the holder is another user, or has not written its number yet.
            holder = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            say(f"waiting for {device}: {f'process {holder}' if holder else 'another process'} is measuring")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if is_ours:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)  # gives up the lock as well

"""Temporary folders that are gone with the run that made them, sooner or later also if it was killed.

A folder is locked for as long as its run lives: the kernel gives up the lock with the process, however that ends. So a
folder that can be locked belongs to nobody, and the next run removes it. Numbers of processes would not tell: they are
given out anew.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from mlsearch.errors import MlsearchError

PREFIX = "mlsearch-run-"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A temporary folder, removed in the end; first those that killed runs of the same user left behind are removed.

    Raises MlsearchError where there is no room for one.
    """
    made: list[Path] = []
    lock: int | None = None
    try:
        lock = _make_room(made)
        yield made[-1]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _make_room(made: list[Path]) -> int | None:
    """Raises MlsearchError. See `_make`."""
    try:
        parent = Path(tempfile.gettempdir())
        remove_abandoned(parent)
        return _make(parent, made)
    except OSError as error:
        raise MlsearchError(f"can't make a temporary folder: {error.strerror or error}; set TMPDIR") from error


def remove_abandoned(parent: Path) -> None:
    """Remove this user's scratch folders that no living run holds. Best effort; links are not followed."""
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):
                    _remove_if_abandoned(entry)


def _remove_if_abandoned(entry: os.DirEntry[str]) -> None:
    if not entry.is_dir(follow_symlinks=False) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
        return
    lock = _lock(Path(entry.path))
    if lock is None:
        return
    try:
        shutil.rmtree(entry.path, ignore_errors=True)
    finally:
        os.close(lock)


def _make(parent: Path, made: list[Path]) -> int | None:
    """Append a new folder to `made`; the descriptor that holds its lock, or None where folders can't be locked: such a
    folder may stay behind, but nobody takes it away.

    It is in `made` before it is there, so that a signal, whenever it comes, leaves nothing behind that is not in there.
    """
    while True:
        # Nobody guesses such a name, so what is there under it was made here.
        folder = parent / f"{PREFIX}{secrets.token_hex(8)}"
        made.append(folder)
        folder.mkdir(0o700)
        try:
            lock = _lock(folder)
        except OSError:
            return None
        # Another run may have come between the making and the locking, and then removes it.
        if lock is not None:
            return lock


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None if another process holds it, or the folder is gone.

    Raises OSError, e.g. on file systems without locks.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Whoever held the lock until now may have removed the folder.
        if os.path.samestat(os.fstat(descriptor), os.lstat(folder)):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None

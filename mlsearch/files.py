"""Files that are either the old ones or complete new ones."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mlsearch.errors import MlsearchError

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk, and a user's full share of it, answer."""
_LITTLE_BYTES = 1 << 16
NO_FILE = "it is not a regular file"


def write_atomically(path: Path, text: str) -> None:
    """Whoever reads `path` sees the old content or all of the new. Raises MlsearchError."""
    try:
        # A link stays a link; a pipe or device can't be renamed over and is written to as it is.
        place = path.resolve()
        if place.exists() and not stat.S_ISREG(place.stat().st_mode):
            with place.open("w", encoding="utf-8") as stream:
                stream.write(text)
            return
        with draft_of(place) as draft, draft.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MlsearchError(f"can't write {path}: {error.strerror or error}") from error


@contextmanager
def draft_of(path: Path) -> Iterator[Path]:
    """A name beside `path` to write a new file under, which becomes `path` once it is on disk, or is removed on an
    error. A link stays a link.

    Raises OSError, also where a pipe or a device is in that place: it would be gone, `/dev/null` for everyone.
    """
    place = path.resolve()
    if place.exists() and not place.is_file():
        raise OSError(NO_FILE)
    draft = _draft_name(place)
    try:
        yield draft
        _sync(draft)
        draft.replace(place)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def check_writable(path: Path, *, only_files: bool = False) -> None:
    """Raise MlsearchError now if `write_atomically` would fail in an hour.

    `only_files`: if `draft_of` would, which can't write to pipes and devices.
    """
    try:
        place = path.resolve()
        if place.is_dir():
            raise MlsearchError(f"can't write {path}: it is a folder; name a file")
        if place.exists() and not place.is_file():
            if only_files:
                raise MlsearchError(f"can't write {path}: {NO_FILE}")
            return
        # Tried rather than asked: permission bits say nothing about a read-only file system or a quota.
        draft = _draft_name(place)
        draft.open("x").close()
        draft.unlink()
    except OSError as error:
        folder = path.parent
        reason = error.strerror if folder.is_dir() else f"no folder {folder}"
        raise MlsearchError(f"can't write {path}: {reason}") from error


def tells_of_no_space(said: str) -> bool:
    """Whether a program, by what it said, failed for want of space."""
    return any(os.strerror(number) in said for number in NO_SPACE)


def is_full(folder: Path) -> bool:
    """Hardly anything can be written in `folder` any more. What fails there may not even get to say so: its log is on
    the same disk, and who writes into a mapped file is killed by SIGBUS."""
    try:
        return shutil.disk_usage(folder).free < _LITTLE_BYTES
    except OSError:
        return False


def _sync(path: Path) -> None:
    """Else a power cut may leave the new name with nothing behind it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _draft_name(place: Path) -> Path:
    # A name has at most 255 bytes, whatever its characters take.
    own = os.fsencode(place.name)[:200].decode(errors="ignore")
    return place.with_name(f".{own}.{os.getpid()}.draft")

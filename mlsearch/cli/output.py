"""Where a command's output goes: strict JSON, and files that are either the old ones or complete new ones."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TextIO

from mlsearch.errors import MlsearchError

STANDARD_OUTPUT = "-"


def text_stream(json_to: str | None) -> TextIO:
    """Where to write for people: stdout, unless it has to stay pure JSON."""
    return sys.stderr if json_to == STANDARD_OUTPUT else sys.stdout


def write_json(value: object, json_to: str | None) -> None:
    """Write `value` to a file or stdout; nothing if no JSON is wanted."""
    if json_to is not None:
        write_text(json_text(value), json_to)


def write_text(text: str, destination: str) -> None:
    """Write to a file, or to stdout for `-`."""
    if destination != STANDARD_OUTPUT:
        write_atomically(Path(destination), text)
        return
    sys.stdout.write(text)
    sys.stdout.flush()


def json_text(value: object) -> str:
    """Strict JSON with a final line break; what JSON has no number for (NaN, infinity) becomes null."""
    return json.dumps(_strict(value), indent=2, allow_nan=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Whoever reads `path` sees the old content or all of the new. Raises MlsearchError."""
    try:
        # A link stays a link; a pipe or device can't be renamed over and is written to as it is.
        place = path.resolve()
        if place.exists() and not stat.S_ISREG(place.stat().st_mode):
            with place.open("w", encoding="utf-8") as stream:
                stream.write(text)
            return
        draft = _draft_of(place)
        try:
            with draft.open("x", encoding="utf-8") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            draft.replace(place)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MlsearchError(f"can't write {path}: {error.strerror or error}") from error


def check_writable(path: str | Path | None) -> None:
    """Raise MlsearchError now if `write_atomically` would fail in an hour. None and `-` are fine."""
    if path is None or str(path) == STANDARD_OUTPUT:
        return
    try:
        place = Path(path).resolve()
        if place.is_dir():
            raise MlsearchError(f"can't write {path}: it is a folder; name a file")
        if place.exists() and not place.is_file():
            return
        # Tried rather than asked: permission bits say nothing about a read-only file system or a quota.
        draft = _draft_of(place)
        draft.open("x").close()
        draft.unlink()
    except OSError as error:
        folder = Path(path).parent
        reason = error.strerror if folder.is_dir() else f"no folder {folder}"
        raise MlsearchError(f"can't write {path}: {reason}") from error


def _draft_of(place: Path) -> Path:
    return place.with_name(f".{place.name[:200]}.{os.getpid()}.draft")


def _strict(value: object) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | os.PathLike):
        # Bytes of a file name that aren't UTF-8 are lone surrogates in Python; JSON has none.
        return os.fspath(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _strict(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(entry) for entry in value]
    raise TypeError(f"no JSON for a {type(value).__name__}: {value!r}")

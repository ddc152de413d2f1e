"""Where a command's output goes: strict JSON, and files that are either the old ones or complete new ones."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TextIO

import click

from mlsearch import files
from mlsearch.files import write_atomically

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


def refuse_to_overwrite(destination: str | Path | None, *inputs: str | Path | None) -> None:
    """Raise click's usage error if an output is one of the files that the command reads. URLs are no files."""
    if destination is None or str(destination) == STANDARD_OUTPUT:
        return
    for each in inputs:
        if each is not None and "://" not in str(each) and Path(each).resolve() == Path(destination).resolve():
            raise click.UsageError(f"the output would overwrite {each}; choose another file")


def check_writable(destination: str | Path | None, *, only_files: bool = False) -> None:
    """Raise MlsearchError now if writing there would fail in an hour, with `only_files` also for pipes and devices.
    None and `-` are fine."""
    if destination is not None and str(destination) != STANDARD_OUTPUT:
        files.check_writable(Path(destination), only_files=only_files)


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

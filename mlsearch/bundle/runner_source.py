"""The source that a bundle is run with: this package's modules, as far as the other machine's side needs them."""

from __future__ import annotations

import ast
import io
import stat
import zipfile
from functools import cache
from pathlib import Path

import mlsearch
from mlsearch.errors import BundleError
from mlsearch.files import draft_of

_ROOT = Path(mlsearch.__file__).parent
_ENTRIES = ("mlsearch.bundle.standalone", "mlsearch.runner.worker")
_EPOCH = (1980, 1, 1, 0, 0, 0)

_MAIN = '''\
"""Runs bundles: `python runner.pyz run BUNDLE -o MEASURED`. The worker process is started from this very file."""

import os
import sys

from mlsearch.bundle.standalone import main

raise SystemExit(main(worker=(sys.executable, os.path.abspath(sys.argv[0]), "worker")))
'''


@cache
def runner_source() -> dict[str, bytes]:
    """Contents by path, e.g. `mlsearch/child.py`: what the entries import, and what that imports."""
    found: dict[str, bytes] = {"__main__.py": _MAIN.encode()}
    waiting = list(_ENTRIES)
    while waiting:
        module = waiting.pop()
        path = _path_of(module)
        if path is None or _name_of(path) in found:
            continue
        found[_name_of(path)] = path.read_bytes()
        waiting += _imported(path)
        waiting += [module.rpartition(".")[0]]  # the package, whose own file is run first
    return dict(sorted(found.items()))


def runner_archive() -> bytes:
    """A zip that Python runs as it is."""
    stream = io.BytesIO(b"#!/usr/bin/env python3\n")
    stream.seek(0, io.SEEK_END)
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_DEFLATED) as archive:
        for name, content in runner_source().items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return stream.getvalue()


def write_runner(path: Path) -> None:
    """Raises BundleError."""
    try:
        with draft_of(path) as draft:
            draft.write_bytes(runner_archive())
            draft.chmod(0o755)
    except OSError as error:
        raise BundleError(f"can't write {path}: {error.strerror or error}") from error


def _imported(path: Path) -> list[str]:
    """Modules of mlsearch that a file imports, wherever in it."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return modules


def _path_of(module: str) -> Path | None:
    """None for what is not a module of this package."""
    name, *parts = module.split(".")
    if name != "mlsearch":
        return None
    place = _ROOT.joinpath(*parts)
    candidates = (place / "__init__.py", place.with_suffix(".py"))
    return next((each for each in candidates if each.is_file()), None)


def _name_of(path: Path) -> str:
    return f"mlsearch/{path.relative_to(_ROOT).as_posix()}"

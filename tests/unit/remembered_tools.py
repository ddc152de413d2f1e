"""A real compiler that is asked each question once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mlsearch import toolchain
from mlsearch.toolchain import ToolRun

_run = toolchain.run
_known: dict[tuple[object, ...], tuple[ToolRun, bytes]] = {}


def run_once(argv: tuple[str, ...], timeout_s: float = 900.0) -> ToolRun:
    """As `toolchain.run`, but a call that ended well, on files of the same content, is answered from memory."""
    output = Path(argv[argv.index("-o") + 1])
    question = tuple("OUTPUT" if argument == str(output) else _content(argument) for argument in argv)
    if question not in _known:
        done = _run(argv, timeout_s)
        if done.returncode or not output.is_file():
            return done
        _known[question] = done, output.read_bytes()
    done, written = _known[question]
    output.write_bytes(written)
    return replace(done, argv=argv)


def _content(argument: str) -> object:
    """An argument with the content of the file that it names, if it names one, in place of its path."""
    flag, _, value = argument.rpartition("=")
    path = Path(value)
    return (flag, path.read_bytes()) if path.is_absolute() and path.is_file() else argument

"""What a person sees of a run: a live view, plain lines, tables. Reads events and summaries only."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TextIO

from mlsearch.events import Watcher
from mlsearch.report.plain import PlainReporter
from mlsearch.report.progress import RunHeader

__all__ = ["RunHeader", "open_console", "open_report"]

if TYPE_CHECKING:
    from rich.console import Console


_UNFOLDED = 1000
"""Columns of a file or a pipe, unless `COLUMNS` says otherwise: a name in a table stays in one piece for whoever
searches for it."""


def open_console(stream: TextIO) -> Console:
    """A rich console that writes to `stream`, with control codes and folded lines only where a terminal shows them."""
    from rich.console import Console

    class QuietlyBrokenConsole(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit with 1 here; the command line decides how a reader that left is met.
            raise BrokenPipeError

    return QuietlyBrokenConsole(
        file=stream,
        width=None if stream.isatty() or "COLUMNS" in os.environ else _UNFOLDED,
        force_terminal=stream.isatty(),
        markup=False,
        emoji=False,
        highlight=False,
    )


def open_report(stream: TextIO, header: RunHeader, *, quiet: bool) -> AbstractContextManager[Watcher]:
    """The live view on a terminal that can redraw, else plain lines. To be used with `with`."""
    if quiet or not stream.isatty():
        return PlainReporter(stream, header, quiet=quiet)
    console = open_console(stream)
    if console.is_dumb_terminal:
        return PlainReporter(stream, header)
    from mlsearch.report.live import LiveReporter

    return LiveReporter(console, header)

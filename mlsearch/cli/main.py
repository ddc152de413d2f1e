"""The `mlsearch` command: its subcommands, and how any of them ends when something goes wrong."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import click

from mlsearch import __version__
from mlsearch.cli.bundle import bundle_command
from mlsearch.cli.compile import compile_command
from mlsearch.cli.inspect import inspect_command
from mlsearch.cli.options import ARGUMENTS, DEBUG, INTERRUPTED
from mlsearch.cli.records import records_command
from mlsearch.cli.space import space_command
from mlsearch.cli.tune import tune_command
from mlsearch.cli.verify import verify_command
from mlsearch.errors import MlsearchError
from mlsearch.files import NO_SPACE
from mlsearch.report.text import one_line

READER_LEFT = 141
"""Exit code: 128 + SIGPIPE, as a shell reports it."""

EXAMPLES = """\b
Examples:
  mlsearch inspect payload.mlir
  mlsearch tune payload.mlir --trials 64 -o payload.spec.mlir
  mlsearch verify payload.mlir --spec payload.spec.mlir
  mlsearch compile payload.mlir --spec payload.spec.mlir -o payload.vmfb
"""


class CommandLine(click.Group):
    """Turns every error into one line and an exit code. Usage errors (exit code 2) are left to click."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            value = super().invoke(ctx)
            # Here, and not at the interpreter's exit, so that a full disk or a closed pipe is noticed.
            sys.stdout.flush()
            return value
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except KeyboardInterrupt:
            click.echo("mlsearch: interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except BrokenPipeError:
            _let_go_of_closed_pipes()
            ctx.exit(READER_LEFT)
        except MlsearchError as error:
            _fail(ctx, one_line(str(error)) or type(error).__name__)
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE:
                _fail(ctx, f"{one_line(str(error))}: free some, or set TMPDIR or --workdir to where there is room")
            hint = "" if ctx.meta.get(DEBUG) else " (run again with --debug for the traceback)"
            _fail(ctx, f"unexpected {type(error).__name__}: {one_line(str(error))}{hint}")


def _fail(ctx: click.Context, message: str) -> NoReturn:
    if ctx.meta.get(DEBUG):
        click.echo(traceback.format_exc(), err=True, nl=False)
    click.echo(f"mlsearch: error: {message}", err=True)
    ctx.exit(1)


def _let_go_of_closed_pipes() -> None:
    """Point streams whose reader is gone elsewhere, else the interpreter complains about them at its exit."""
    # A job may run with its streams closed; Python then has None in their place.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


@click.group(
    cls=CommandLine,
    epilog=EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, message="mlsearch %(version)s")
def command_line() -> None:
    """Find, prove and hand over a faster schedule for an MLIR payload.

    mlsearch cuts a payload into tasks, searches schedules for each, measures them against IREE's own choice,
    checks the numbers, and writes a transform library (the spec) that iree-compile applies.
    """


for _command in (
    tune_command,
    inspect_command,
    space_command,
    compile_command,
    verify_command,
    records_command,
    bundle_command,
):
    command_line.add_command(_command)


def main() -> None:
    """Entry point of the installed command."""
    for stream in (sys.stdout, sys.stderr):
        # A terminal that can't show µ, or a file name that isn't text, is no reason to stop.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    command_line(prog_name="mlsearch")


def _leave(number: int, frame: object) -> NoReturn:
    """Unwind, so that children end and temporary folders go, as after any other end."""
    # A second one, e.g. the SIGTERM that follows a SIGHUP, must not stop the removing half-way.
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main()

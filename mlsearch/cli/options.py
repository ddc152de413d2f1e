"""Arguments and options that several commands share, and how their values are read."""

from __future__ import annotations

import math
from pathlib import Path

import click

from mlsearch.durations import parse_duration
from mlsearch.errors import MlsearchError, PayloadError, SpecError, TemplateError

DEBUG = "mlsearch.debug"
"""Key in the context's meta: show the traceback of an error."""

ARGUMENTS = "mlsearch.arguments"
"""Key in the context's meta: the command line after the program's name."""

INTERRUPTED = 130
"""Exit code: 128 + SIGINT, as a shell reports it."""

DEFAULT_STORE = ".mlsearch/store.journal"
"""As `records.store.DEFAULT_PATH`, which takes Optuna to import."""


def read_duration(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """`90s`, `10m`, `1h30m` or bare seconds, as seconds."""
    if value is None:
        return None
    seconds = parse_duration(value.strip())
    if seconds is None or not 0 < seconds < math.inf:
        raise click.BadParameter(f"{value!r} is not a length of time such as 90s, 10m, 1h30m or 600")
    return seconds


def require_inputs(payload: Path, *, spec: Path | None = None, templates: Path | None = None) -> None:
    """Raise for what can't be read. For a command's body, so that usage errors are found before."""
    _require_file(payload, "payload", PayloadError)
    if spec is not None:
        _require_file(spec, "spec", SpecError)
    if templates is not None and not templates.is_dir():
        raise TemplateError(f"no template folder {templates}")


def _require_file(path: Path, what: str, error_type: type[MlsearchError]) -> None:
    if not path.is_file():
        raise error_type(f"{what} {path} is no file" if path.exists() else f"no {what} file {path}")
    try:
        path.open("rb").close()
    except OSError as error:
        raise error_type(f"can't read {what} {path}: {error.strerror}") from error


def _remember_debug(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    ctx.meta[DEBUG] = ctx.meta.get(DEBUG, False) or value


payload_argument = click.argument("payload", metavar="PAYLOAD.mlir", type=click.Path(path_type=Path))
spec_option = click.option(
    "--spec",
    metavar="SPEC.mlir",
    required=True,
    type=click.Path(path_type=Path),
    help="Transform library to apply, as `mlsearch tune` writes it.",
)
target_option = click.option(
    "--target",
    default="llvm-cpu",
    show_default=True,
    metavar="TARGET",
    help="Where the code is to run. llvm-cpu: the CPU of this machine, llvm-cpu:l2_bytes=2097152 with another fact "
    "than it tells; cuda: its GPU; cuda:sm_90, cuda:h100, ...: "
    "a GPU anywhere.",
)
sampler_option = click.option(
    "--sampler",
    # As `search.make.SAMPLERS`, which takes Optuna to import.
    type=click.Choice(["tpe", "random", "exhaustive"]),
    default="tpe",
    show_default=True,
    help="How candidates are chosen.",
)
threads_option = click.option(
    "--threads",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Threads that run the payload. 1 runs it in the calling thread, more in IREE's pool.",
)
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=0,
    show_default=True,
    metavar="S",
    help="Seed of everything drawn at random: candidates, inputs.",
)
function_option = click.option(
    "--function",
    metavar="NAME",
    show_default="all",
    help="Only this function of the payload, as it is named there.",
)
templates_option = click.option(
    "--templates",
    metavar="DIR",
    type=click.Path(path_type=Path),
    show_default="built-in templates only",
    help="Folder with templates to use beside the built-in ones.",
)
variant_option = click.option(
    "--variant",
    metavar="NAME",
    default="default",
    show_default=True,
    help="Look at this variant of the payload: flags and rewrites before dispatches form.",
)
json_option = click.option(
    "--json",
    "json_to",
    metavar="FILE|-",
    show_default="no JSON",
    help="Also write everything as JSON; - writes it to stdout and all other text to stderr.",
)
store_option = click.option(
    "--store",
    default=DEFAULT_STORE,
    show_default=True,
    metavar="PATH_OR_URL",
    help="Where records are kept: a journal file, or the URL of a database that Optuna can use.",
)
debug_option = click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_remember_debug,
    help="Show the traceback of an error.",
)


def repeated_arguments(ctx: click.Context) -> tuple[str, ...]:
    """The payload and those options of a command that other commands on the same study need as well."""
    arguments = [str(ctx.params["payload"])]
    for name in ("store", "study", "function", "templates"):
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            arguments += [f"--{name}", str(ctx.params[name])]
    return tuple(arguments)

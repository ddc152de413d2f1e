"""`mlsearch tune`: payload in, spec out."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, refuse_to_overwrite, text_stream, write_json

if TYPE_CHECKING:
    from mlsearch.candidate import CacheState
    from mlsearch.report import RunHeader
    from mlsearch.summary import TuneSummary
    from mlsearch.tune import TuneOptions

EXAMPLES = """\b
Examples:
  mlsearch tune payload.mlir
  mlsearch tune payload.mlir --trials 64 --threads 1 -o tuned.spec.mlir
  mlsearch tune payload.mlir --max-time 10m --store tuning.journal --study nightly
  mlsearch tune payload.mlir --budget quick --json - | jq .speedup
"""


@click.command("tune", epilog=EXAMPLES)
@shared.payload_argument
@shared.target_option
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="set by --budget",
    help="Candidates to try per task.",
)
@click.option(
    "--max-time",
    callback=shared.read_duration,
    metavar="TIME",
    show_default="set by --budget",
    help="Search so long, earlier runs on the same studies included: 90s, 10m, 1h30m, or seconds. Looking at variants "
    "and comparing what was found come on top: seconds where the untuned payload takes milliseconds, 60 to 90 of its "
    "calls where it is slow.",
)
@click.option(
    "--budget",
    type=click.Choice(["quick", "default", "full"]),
    default="default",
    show_default=True,
    help="How thorough to be where neither --trials nor --max-time says so.",
)
@shared.seed_option
@shared.function_option
@shared.store_option
@click.option(
    "--study",
    metavar="NAME",
    show_default="none: named after workload and target",
    help="Prefix of the studies' names in the store, one study per task; what the store knows is not measured again.",
)
@click.option(
    "-o",
    "--output",
    metavar="SPEC.mlir",
    show_default="<payload>.spec.mlir in the current folder",
    help="Where to write the spec.",
)
@shared.json_option
@shared.threads_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="as the machine's cores allow",
    help="Compile processes that work at the same time.",
)
@shared.templates_option
@click.option(
    "--workdir",
    metavar="DIR",
    show_default="a temporary folder, removed at the end",
    help="Folder to keep every build's files and logs in.",
)
@shared.sampler_option
@click.option(
    "--surrogate",
    type=click.Choice(["on", "off"]),
    default="on",
    show_default=True,
    help="Whether a learned model picks, once it ranks well enough, which candidates are compiled.",
)
@click.option(
    "--cache",
    type=click.Choice(["warm", "cold"]),
    default="warm",
    show_default=True,
    help="Whether the data is in the CPU's caches when a run is timed.",
)
@click.option(
    "--variants",
    metavar="NAMES",
    default="all",
    show_default=True,
    help="Variants of the payload (flags and rewrites before dispatches form) that compete: all, default, or names "
    "separated by commas.",
)
@click.option(
    "--no-device",
    is_flag=True,
    help="For a GPU that isn't here: only build the candidates and rank them by what their code tells.",
)
@shared.debug_option
@click.option("--quiet", is_flag=True, help="Plain lines, and of the trials only those that improve.")
@click.pass_context
def tune_command(
    ctx: click.Context,
    payload: Path,
    target: str,
    trials: int | None,
    max_time: float | None,
    budget: str,
    seed: int,
    function: str | None,
    store: str,
    study: str | None,
    output: str | None,
    json_to: str | None,
    threads: int,
    jobs: int | None,
    templates: Path | None,
    workdir: str | None,
    sampler: str,
    surrogate: str,
    cache: CacheState,
    variants: str,
    no_device: bool,
    quiet: bool,
) -> None:
    """Find faster schedules for PAYLOAD.mlir and write a spec.

    Each task of the payload is searched on its own; the untuned build is always trial 0. A schedule goes into
    the spec only if its numbers agree with the untuned build's and paired runs show it to be faster. No
    improvement is a normal end: the spec is then empty. The same command again goes on where the last one
    stopped.
    """
    spec = Path(output) if output else Path(f"{payload.stem}.spec.mlir")
    # All of these before an hour of tuning, not after it.
    _refuse_to_overwrite(payload, spec, json_to)
    refuse_to_overwrite(spec, store)
    refuse_to_overwrite(json_to, store)
    shared.require_inputs(payload, templates=templates)
    check_writable(spec)
    check_writable(json_to)

    def options() -> TuneOptions:
        # After the report has begun: what tuning needs takes a while to load.
        from mlsearch.tune import TuneOptions

        return TuneOptions(
            payload=payload,
            target=target,
            trials=trials,
            max_time_s=max_time,
            budget=budget,
            seed=seed,
            function=function,
            store=store,
            study=study,
            output=spec,
            threads=threads,
            jobs=jobs,
            templates=templates,
            workdir=Path(workdir) if workdir else None,
            sampler=sampler,
            surrogate=surrogate == "on",
            cache=cache,
            variants=variants,
        )

    from mlsearch.report import RunHeader

    run = _build_ahead if no_device else _tune
    run(ctx, RunHeader("tune", str(payload), target, threads), options, json_to, quiet)


def _tune(
    ctx: click.Context, header: RunHeader, options: Callable[[], TuneOptions], json_to: str | None, quiet: bool
) -> None:
    from mlsearch.report import open_console, open_report

    stream = text_stream(json_to)
    with open_report(stream, header, quiet=quiet) as watch:
        wanted = options()
        from mlsearch.tune import tune

        try:
            summary = tune(wanted, watch)
        except KeyboardInterrupt:
            _end_empty_handed(ctx, "interrupted before a spec was written; what was measured is kept, to go on")
    write_json(summary.to_json(), json_to)
    from mlsearch.report.tables import print_summary

    print_summary(open_console(stream), summary, _use_command(summary, wanted.payload))
    if summary.interrupted:
        _tell_how_to_go_on(ctx, stream)


def _build_ahead(
    ctx: click.Context, header: RunHeader, options: Callable[[], TuneOptions], json_to: str | None, quiet: bool
) -> None:
    from mlsearch.report import open_console, open_report

    stream = text_stream(json_to)
    with open_report(stream, header, quiet=quiet) as watch:
        wanted = options()
        from mlsearch.bundle.ahead import bundle_path, earlier_bundle, write_ahead_bundle
        from mlsearch.tune.ahead import build_ahead, ranking_path

        for path in (ranking_path(wanted), bundle_path(wanted)):
            refuse_to_overwrite(path, wanted.payload, wanted.store, json_to)
            check_writable(path)
        try:
            ahead = build_ahead(wanted, watch, write_ahead_bundle, earlier_bundle(wanted))
        except KeyboardInterrupt:
            _end_empty_handed(ctx, "interrupted before there was a ranking; what was built is known, to go on")
    from mlsearch.report.ahead import print_ranking

    write_json(ahead.to_json(), json_to)
    print_ranking(open_console(stream), ahead, shared.repeated_arguments(ctx))
    if ahead.interrupted:
        _tell_how_to_go_on(ctx, stream)


def _end_empty_handed(ctx: click.Context, told: str) -> NoReturn:
    click.echo(f"mlsearch: {told}: {_same_command(ctx)}", err=True)
    ctx.exit(shared.INTERRUPTED)


def _tell_how_to_go_on(ctx: click.Context, stream: TextIO) -> NoReturn:
    click.echo(f"interrupted; to go on: {_same_command(ctx)}", file=stream)
    ctx.exit(shared.INTERRUPTED)


def _refuse_to_overwrite(payload: Path, spec: Path, json_to: str | None) -> None:
    if spec.resolve() == payload.resolve():
        raise click.UsageError(f"the spec would overwrite the payload {payload}; choose another -o")
    if json_to and json_to != "-" and Path(json_to).resolve() in (spec.resolve(), payload.resolve()):
        raise click.UsageError(f"--json would overwrite {json_to}; choose another file")


def _use_command(summary: TuneSummary, payload: Path) -> tuple[str, ...]:
    """The `iree-compile` call that builds the payload with the spec."""
    from mlsearch import target, toolchain

    flags = target.resolve(summary.target, summary.threads).compile_flags
    chosen = next((variant for variant in summary.variants if variant.name == summary.variant), None)
    spec = Path(summary.spec)
    tool, *arguments = toolchain.compile_argv(
        payload,
        Path(f"{payload.stem}.vmfb"),
        (*flags, *(chosen.flags if chosen else ())),
        preprocessing=spec if chosen and chosen.rewrites else None,
        library=spec if any(task.applied for task in summary.tasks) else None,
    )
    # Bare only if the shell finds the same one: a spec is for one version of the compiler.
    found = shutil.which("iree-compile")
    same = found is not None and Path(found).resolve() == Path(tool).resolve()
    return ("iree-compile" if same else tool, *arguments)


def _same_command(ctx: click.Context) -> str:
    return shlex.join([ctx.find_root().info_name or "mlsearch", *ctx.meta[shared.ARGUMENTS]])

"""`mlsearch bundle`: build here, measure on the machine that has the device, go on here."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, refuse_to_overwrite

if TYPE_CHECKING:
    from mlsearch.candidate import CacheState

EXAMPLES = """\b
Examples:
  mlsearch bundle export payload.mlir --trials 64 -o payload.bundle
  mlsearch bundle runner -o runner.pyz
  mlsearch bundle run payload.bundle -o measured.jsonl --max-time 10m
  mlsearch bundle import payload.mlir measured.jsonl -o payload.spec.mlir
"""

_study_option = click.option(
    "--study",
    metavar="NAME",
    show_default="one per task, named after its workload",
    help="Prefix of the studies' names, as given to `mlsearch tune`.",
)


@click.group("bundle", epilog=EXAMPLES)
def bundle_command() -> None:
    """Measure on another machine: export candidates, run them there, import what was measured."""


@bundle_command.command("export")
@shared.payload_argument
@click.option("-o", "--output", required=True, metavar="BUNDLE", type=click.Path(path_type=Path), help="File to write.")
@shared.target_option
@click.option(
    "--trials",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    metavar="N",
    help="Candidates to ask for per task.",
)
@shared.seed_option
@shared.function_option
@shared.store_option
@_study_option
@shared.threads_option
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    show_default="as the machine's cores allow",
    help="Compile processes that work at the same time.",
)
@shared.templates_option
@shared.sampler_option
@click.option(
    "--cache",
    type=click.Choice(["warm", "cold"]),
    default="warm",
    show_default=True,
    help="Whether the data is to be in the device's caches when a run is timed.",
)
@shared.debug_option
def export_command(
    payload: Path,
    output: Path,
    target: str,
    trials: int,
    seed: int,
    function: str | None,
    store: str,
    study: str | None,
    threads: int,
    jobs: int | None,
    templates: Path | None,
    sampler: str,
    cache: CacheState,
) -> None:
    """Compile candidates of PAYLOAD.mlir into one file.

    Nothing is run. The file holds the untuned build and the candidates of each task, and how to measure them.
    All are recorded in the store, and none is built again; once measurements of earlier bundles are imported, they
    guide the choice, and the fastest candidates so far are measured again beside the new ones.
    """
    if output.resolve() == payload.resolve():
        raise click.UsageError(f"the bundle would overwrite the payload {payload}; choose another -o")
    shared.require_inputs(payload, templates=templates)
    refuse_to_overwrite(output, store)
    check_writable(output, only_files=True)

    from mlsearch.report import RunHeader, open_report
    from mlsearch.report.text import count_text, one_line, outcomes_text

    with open_report(sys.stderr, RunHeader("bundle export", str(payload), target, threads), quiet=False) as watch:
        from mlsearch.bundle.export import ExportOptions, export_bundle

        exported = export_bundle(
            ExportOptions(
                payload=payload,
                target=target,
                threads=threads,
                trials=trials,
                seed=seed,
                function=function,
                store=store,
                study=study,
                sampler=sampler,
                templates=templates,
                jobs=jobs,
                output=output,
                cache=cache,
            ),
            watch,
        )
    for task in exported.tasks:
        if task.note:
            click.echo(f"{task.id} {one_line(task.label)}: left out: {one_line(task.note)}")
            continue
        others = f"; not in it: {outcomes_text(task.outcomes)}" if task.outcomes else ""
        carried = f" and {count_text(task.carried, 'fastest one')} measured before" if task.carried else ""
        told = f"{count_text(task.bundled, 'candidate')} of {task.asked}{carried}"
        click.echo(f"{task.id} {one_line(task.label)}: {told}{others}")
    click.echo(f"wrote {one_line(str(output))} ({exported.bytes / 2**20:.1f} MiB)")


@bundle_command.command("run")
@click.argument("bundle", metavar="BUNDLE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", required=True, metavar="MEASURED", type=click.Path(path_type=Path), help="File to append to."
)
@click.option(
    "--max-time",
    callback=shared.read_duration,
    metavar="TIME",
    show_default="until all is measured",
    help="Stop after this long: 90s, 10m, 1h30m, or seconds.",
)
@click.option("--device", metavar="URI", show_default="the target's", help="IREE device to run on, e.g. cuda://0.")
@click.option("--even-if-busy", is_flag=True, help="Measure although other processes use the machine.")
@shared.debug_option
@click.pass_context
def run_command(
    ctx: click.Context, bundle: Path, output: Path, max_time: float | None, device: str | None, even_if_busy: bool
) -> None:
    """Check and time what BUNDLE holds, on this machine.

    One line is written for each artifact as soon as it is measured. The same command goes on where the last one
    was stopped, however that happened. `mlsearch bundle runner` writes this command as a file of its own.
    """
    from mlsearch.bundle.measure import MeasureOptions, measure_bundle
    from mlsearch.bundle.standalone import closing_line
    from mlsearch.report.text import one_line

    try:
        progress = measure_bundle(
            MeasureOptions(bundle, output, max_time, device, even_if_busy),
            lambda line: click.echo(one_line(line), err=True),
        )
    except KeyboardInterrupt:
        click.echo(f"interrupted; what was measured is in {one_line(str(output))}, the same command goes on", err=True)
        ctx.exit(shared.INTERRUPTED)
    click.echo(one_line(closing_line(progress, output)))


@bundle_command.command("import")
@shared.payload_argument
@click.argument("measured", metavar="MEASURED", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    metavar="SPEC.mlir",
    type=click.Path(path_type=Path),
    show_default="no spec",
    help="Write a spec of what was proven faster where it was measured.",
)
@click.option(
    "--target",
    metavar="TARGET",
    show_default="what MEASURED says",
    help="What the bundle was exported for, as it was given to `bundle export`.",
)
@shared.function_option
@shared.store_option
@_study_option
@shared.templates_option
@shared.debug_option
@click.pass_context
def import_command(
    ctx: click.Context,
    payload: Path,
    measured: Path,
    output: Path | None,
    target: str | None,
    function: str | None,
    store: str,
    study: str | None,
    templates: Path | None,
) -> None:
    """Add what was measured to the store; write a spec of it.

    It becomes trials of the device that measured it, which `bundle export` and `tune` go on with.
    An entry is in the spec if paired rounds over there show it to be faster and its numbers to be right, and if it is
    applied when the payload is compiled here, which needs no device. Records that the store holds are not added again.
    """
    shared.require_inputs(payload, templates=templates)
    refuse_to_overwrite(output, payload, measured, store)
    check_writable(output)

    from mlsearch.report import RunHeader, open_console, open_report
    from mlsearch.report.bundle import next_steps, print_taken
    from mlsearch.report.text import one_line

    header = RunHeader("bundle import", str(payload), target or "the target that was measured", None)
    with open_report(sys.stderr, header, quiet=False) as watch:
        from mlsearch.bundle.intake import IntakeOptions, take_in

        taken = take_in(IntakeOptions(payload, measured, target, function, store, study, templates, output), watch)
    print_taken(open_console(sys.stdout), taken)
    for line in next_steps(taken, shared.repeated_arguments(ctx)):
        click.echo(one_line(line))


@bundle_command.command("runner")
@click.option(
    "-o", "--output", required=True, metavar="RUNNER.pyz", type=click.Path(path_type=Path), help="File to write."
)
@shared.debug_option
def runner_command(output: Path) -> None:
    """Write the program that runs bundles elsewhere.

    One file that needs Python 3.10 or later and the package iree-base-runtime, with the NumPy that it brings:
    python RUNNER.pyz run BUNDLE -o MEASURED
    """
    check_writable(output, only_files=True)

    from mlsearch.bundle.runner_source import write_runner
    from mlsearch.report.text import one_line

    write_runner(output)
    click.echo(f"wrote {one_line(str(output))}")

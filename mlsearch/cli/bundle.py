"""`mlsearch bundle`: build here, measure on the machine that has the device, go on here."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, refuse_to_overwrite

EXAMPLES = """\b
Examples:
  mlsearch bundle export payload.mlir --trials 64 -o payload.bundle
  mlsearch bundle runner -o runner.pyz
  mlsearch bundle run payload.bundle -o measured.jsonl --max-time 10m
  mlsearch bundle import payload.mlir measured.jsonl
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
@click.option(
    "--sampler",
    type=click.Choice(["tpe", "random", "exhaustive"]),
    default="tpe",
    show_default=True,
    help="How candidates are chosen.",
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
) -> None:
    """Compile candidates of PAYLOAD.mlir into one file.

    Nothing is run. The file holds the untuned build and the candidates of each task, and how to measure them.
    Candidates that don't compile are recorded in the store.
    """
    if output.resolve() == payload.resolve():
        raise click.UsageError(f"the bundle would overwrite the payload {payload}; choose another -o")
    shared.require_inputs(payload, templates=templates)
    refuse_to_overwrite(output, store)
    check_writable(output)

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
            ),
            watch,
        )
    for task in exported.tasks:
        if task.note:
            click.echo(f"{task.id} {one_line(task.label)}: left out: {one_line(task.note)}")
            continue
        others = f"; not in it: {outcomes_text(task.outcomes)}" if task.outcomes else ""
        click.echo(f"{task.id} {one_line(task.label)}: {count_text(task.bundled, 'candidate')} of {task.asked}{others}")
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
@shared.target_option
@shared.function_option
@shared.store_option
@_study_option
@shared.templates_option
@shared.debug_option
def import_command(
    payload: Path,
    measured: Path,
    target: str,
    function: str | None,
    store: str,
    study: str | None,
    templates: Path | None,
) -> None:
    """Add what was measured to the store, as trials.

    If it was measured on the same target, `mlsearch tune` goes on with them. Records that the store holds are not
    added again.
    """
    shared.require_inputs(payload, templates=templates)

    from mlsearch.report import RunHeader, open_console, open_report
    from mlsearch.report.bundle import print_taken
    from mlsearch.report.text import one_line

    with open_report(sys.stderr, RunHeader("bundle import", str(payload), target, None), quiet=False) as watch:
        from mlsearch.bundle.intake import IntakeOptions, take_in

        taken = take_in(IntakeOptions(payload, measured, target, function, store, study, templates), watch)
    print_taken(open_console(sys.stdout), taken)
    if not taken.is_same_target:
        click.echo(
            f"note: {one_line(taken.measured_on)} is not this target: its times are kept in studies of their own, "
            "and `mlsearch tune` here does not use them"
        )


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
    check_writable(output)

    from mlsearch.bundle.runner_source import write_runner
    from mlsearch.report.text import one_line

    write_runner(output)
    click.echo(f"wrote {one_line(str(output))}")

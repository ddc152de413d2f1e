"""`mlsearch compile`: build a payload with a spec, with proof that the spec was applied."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable

EXAMPLES = """\b
Examples:
  mlsearch compile payload.mlir --spec payload.spec.mlir -o payload.vmfb
"""


@click.command("compile", epilog=EXAMPLES)
@shared.payload_argument
@shared.spec_option
@click.option("-o", "--output", required=True, metavar="OUT.vmfb", help="Where to write the compiled module.")
@shared.target_option
@shared.debug_option
def compile_command(payload: Path, spec: Path, output: str, target: str) -> None:
    """Compile PAYLOAD.mlir with a spec.

    Unlike iree-compile, which ignores a spec that fits nothing, this fails when an entry applies nowhere.
    """
    if Path(output).resolve() in (payload.resolve(), spec.resolve()):
        raise click.UsageError(f"the output would overwrite {output}; choose another -o")
    shared.require_inputs(payload, spec=spec)
    check_writable(output)

    from mlsearch.events import Step
    from mlsearch.report import RunHeader, open_report
    from mlsearch.report.text import one_line

    with open_report(sys.stderr, RunHeader("compile", str(payload), target, None), quiet=False) as watch:
        watch(Step(f"compiling with {spec}"))
        from mlsearch.delivery import compile_payload

        delivery = compile_payload(payload, spec, Path(output), target)
    for entry, dispatches in delivery.applied:
        click.echo(f"{one_line(entry)} applied to {one_line(', '.join(dispatches))}")
    if not delivery.applied:
        click.echo(
            f"{one_line(str(spec))} has no entries: no schedule was applied, only the flags and scripts it names"
        )
    click.echo(f"wrote {one_line(output)}")

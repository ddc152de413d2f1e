"""`mlsearch space`: what could be chosen for one task."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, refuse_to_overwrite, text_stream, write_json

EXAMPLES = """\b
Examples:
  mlsearch space payload.mlir --task t0
  mlsearch space payload.mlir --task t0 --json space.json
"""


@click.command("space", epilog=EXAMPLES)
@shared.payload_argument
@click.option(
    "--task",
    required=True,
    metavar="ID",
    help="The task, by the id that `mlsearch inspect` lists: t0, t1, ...",
)
@shared.json_option
@shared.target_option
@shared.threads_option
@shared.templates_option
@shared.variant_option
@shared.debug_option
def space_command(
    payload: Path, task: str, json_to: str | None, target: str, threads: int, templates: Path | None, variant: str
) -> None:
    """Show the templates, knobs and constraints of a task.

    For each template: its knobs with their domains, its constraints, and how many assignments are valid.
    """
    shared.require_inputs(payload, templates=templates)
    refuse_to_overwrite(json_to, payload)
    check_writable(json_to)

    from mlsearch.events import Step
    from mlsearch.report import RunHeader, open_console, open_report

    with open_report(sys.stderr, RunHeader("space", str(payload), target, None), quiet=False) as watch:
        watch(Step(f"laying out the space of {task}"))
        from mlsearch.inspection import describe_space

        space = describe_space(payload, task, target, threads, templates, variant, watch)
    write_json(space.to_json(), json_to)

    from mlsearch.report.inspection import print_space

    print_space(open_console(text_stream(json_to)), space)

"""`mlsearch inspect`: what a payload consists of, and what could be tuned."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, refuse_to_overwrite, text_stream, write_json

EXAMPLES = """\b
Examples:
  mlsearch inspect payload.mlir
  mlsearch inspect payload.mlir --json - | jq '.tasks[].id'
"""


@click.command("inspect", epilog=EXAMPLES)
@shared.payload_argument
@shared.target_option
@shared.json_option
@shared.threads_option
@shared.templates_option
@shared.variant_option
@shared.debug_option
def inspect_command(
    payload: Path, target: str, json_to: str | None, threads: int, templates: Path | None, variant: str
) -> None:
    """List the tasks of PAYLOAD.mlir.

    For each: op kind, loop dims and types, fused ops, FLOPs and bytes, how many sites run it, its share of
    the payload's time, which templates apply, and how many candidates that gives. A task that can't be tuned
    is listed with the reason.
    """
    shared.require_inputs(payload, templates=templates)
    refuse_to_overwrite(json_to, payload)
    check_writable(json_to)

    from mlsearch.report import RunHeader, open_console, open_report

    with open_report(sys.stderr, RunHeader("inspect", str(payload), target, threads), quiet=False) as watch:
        from mlsearch.inspection import inspect_payload

        inspection = inspect_payload(payload, target, threads, templates, variant, watch)
    write_json(inspection.to_json(), json_to)

    from mlsearch.report.inspection import print_inspection

    print_inspection(open_console(text_stream(json_to)), inspection)

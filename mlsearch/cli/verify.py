"""`mlsearch verify`: does a spec still hold what it promises?"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, refuse_to_overwrite, text_stream, write_json
from mlsearch.errors import SpecError

EXAMPLES = """\b
Examples:
  mlsearch verify payload.mlir --spec payload.spec.mlir
  mlsearch verify payload.mlir --spec payload.spec.mlir --json - | jq .ok
"""


@click.command("verify", epilog=EXAMPLES)
@shared.payload_argument
@shared.spec_option
@shared.json_option
@shared.target_option
@shared.threads_option
@shared.seed_option
@shared.function_option
@shared.debug_option
def verify_command(
    payload: Path,
    spec: Path,
    json_to: str | None,
    target: str,
    threads: int,
    seed: int,
    function: str | None,
) -> None:
    """Check that a spec is applied, numerically right and faster.

    Ends with 0 only if every entry is applied, the numbers agree with the untuned build's, and no entry is
    slower; otherwise with 1 and the entries that fail.
    """
    shared.require_inputs(payload, spec=spec)
    refuse_to_overwrite(json_to, payload, spec)
    check_writable(json_to)

    from mlsearch.report import RunHeader, open_console, open_report

    with open_report(sys.stderr, RunHeader("verify", str(payload), target, threads), quiet=False) as watch:
        from mlsearch.verify import verify

        verification = verify(payload, spec, target, threads, seed, function, watch)
    write_json(verification.to_json(), json_to)

    from mlsearch.report.verification import complaints, print_verification

    print_verification(open_console(text_stream(json_to)), verification)
    if not verification.ok:
        reasons = "; ".join(complaints(verification)) or "it does not hold"
        raise SpecError(f"{spec}: {reasons}")

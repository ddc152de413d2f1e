"""What `verify` prints, and what it holds against a spec."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mlsearch.report.tables import add_row, new_table, numerics_text, whole_lines
from mlsearch.report.text import ABSENT, interval_text, one_line, speedup_text

if TYPE_CHECKING:
    from mlsearch.verify import Verification


def print_verification(console: Console, verification: Verification) -> None:
    """One row per entry of the spec, then the whole payload."""
    numbers = ("speedup", "95 % interval")
    table = new_table("entry", "applied to", "numerics", *numbers, numbers=numbers)
    for entry in verification.entries:
        add_row(
            table,
            one_line(entry.name),
            "\n".join(one_line(dispatch) for dispatch in entry.applied_to) or "nothing",
            numerics_text(entry.numerics),
            speedup_text(entry.speedup.speedup) if entry.speedup else ABSENT,
            interval_text(entry.speedup.ci95) if entry.speedup else ABSENT,
            style="red" if entry.problem else "",
        )
    if verification.entries:
        console.print(table)
    else:
        console.print(Text("the spec has no entries"))
    if verification.whole:
        for line in whole_lines(verification.whole):
            console.print(line, soft_wrap=True)
    for note in verification.notes:
        console.print(Text(f"note: {one_line(note)}"), soft_wrap=True)
    if verification.ok:
        console.print(Text(_verdict(verification), style="bold"))


def _verdict(verification: Verification) -> str:
    if verification.entries:
        return "verified: every entry is applied, numbers agree, none is slower"
    if verification.whole:
        return "verified: numbers agree, and the payload is not slower"
    return "nothing was verified"


def complaints(verification: Verification) -> tuple[str, ...]:
    """Each problem once, those of an entry with its name."""
    of_entries = [
        f"entry '{entry.name}': {entry.problem}" for entry in verification.entries if entry.problem is not None
    ]
    told = {entry.problem for entry in verification.entries}
    others = [problem for problem in verification.problems if problem not in told | set(of_entries)]
    return (*of_entries, *others)

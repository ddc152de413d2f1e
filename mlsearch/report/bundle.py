"""What an import of measurements brought, as tables."""

from __future__ import annotations

from rich.console import Console

from mlsearch.bundle.intake import Taken
from mlsearch.report.tables import add_row, new_table
from mlsearch.report.text import ABSENT, interval_text, one_line, outcomes_text, speedup_text, time_text

_PAIRED_SHOWN = 4


def print_taken(console: Console, taken: Taken) -> None:
    """Per task: what was added, and how its fastest candidates did in paired rounds."""
    console.print(f"measured on {one_line(taken.measured_on)}", soft_wrap=True, markup=False)
    numbers = ("added", "known", "not measured")
    table = new_table("id", "task", *numbers, "outcomes", numbers=numbers)
    for task in taken.tasks:
        counts = (str(task.added), str(task.known), str(task.missing))
        outcomes = outcomes_text(task.outcomes) if task.outcomes else ABSENT
        add_row(table, task.id, one_line(task.label), *counts, outcomes)
    console.print(table)
    if not any(task.paired for task in taken.tasks):
        return
    times = ("untuned", "tuned", "speedup", "95 % interval")
    table = new_table("id", "candidate", *times, numbers=times)
    for task in taken.tasks:
        for each in task.paired[:_PAIRED_SHOWN]:
            knobs = " ".join(f"{name}={value}" for name, value in each.candidate.assignment)
            add_row(
                table,
                task.id,
                one_line(knobs),
                time_text(each.speedup.baseline_us),
                time_text(each.speedup.tuned_us),
                speedup_text(each.speedup.speedup) if each.agrees else "wrong",
                interval_text(each.speedup.ci95),
            )
    console.print(table)

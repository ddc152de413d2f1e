"""What an import of measurements brought, as tables."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mlsearch.report.tables import add_row, new_table
from mlsearch.report.text import ABSENT, count_text, interval_text, one_line, outcomes_text, speedup_text, time_text

if TYPE_CHECKING:
    from mlsearch.bundle.intake import Taken
    from mlsearch.bundle.proven import ProvenSpec

_PAIRED_SHOWN = 4


def print_taken(console: Console, taken: Taken) -> None:
    """Per task: what was added, and how its fastest candidates did in paired rounds; then the spec, if one was asked
    for."""
    console.print(Text(f"measured on {one_line(taken.measured_on)}"), soft_wrap=True)
    numbers = ("added", "known", "not measured")
    table = new_table("id", "task", *numbers, "outcomes", numbers=numbers)
    for task in taken.tasks:
        counts = (str(task.added), str(task.known), str(task.missing))
        outcomes = outcomes_text(task.outcomes) if task.outcomes else ABSENT
        add_row(table, task.id, one_line(task.label), *counts, outcomes)
    console.print(table)
    _print_paired(console, taken)
    carried = sum(task.carried_over for task in taken.tasks)
    if carried:
        told = f"{count_text(carried, 'candidate')} that the compiler alone ruled out for {taken.exported_for}"
        console.print(Text(f"{told} carried over"), soft_wrap=True)
    if taken.spec is not None:
        _print_spec(console, taken.spec)


def next_steps(taken: Taken, repeated: Sequence[str]) -> Iterator[str]:
    """How to go on; `repeated` are the arguments that say on what, the payload first."""
    if taken.target is None:
        yield (
            f"note: {taken.measured_on} is not this target: its times are kept in studies of their own, "
            "and `mlsearch tune` here does not use them"
        )
        return
    if taken.target != taken.exported_for:
        yield f"note: exported for {taken.exported_for}; the times are those of {taken.target}, and in its studies"
    target = tuple(_options(("--target", taken.target, "llvm-cpu"), ("--threads", str(taken.threads), "1")))
    if taken.spec is not None and taken.spec.entries:
        verify = shlex.join(["mlsearch", "verify", repeated[0], "--spec", str(taken.spec.path), *target])
        yield f"entries are proven one by one; to time the whole payload, where the device is: {verify}"
    cache = tuple(_options(("--cache", taken.cache, "warm")))
    command = shlex.join(["mlsearch", "bundle", "export", *repeated, *target, *cache, "--trials", "64"])
    yield f"to go on, guided by what came back: {command} -o NEXT.bundle"


def _options(*given: tuple[str, str, str]) -> Iterator[str]:
    """Of (option, value, default) those that are not the default."""
    for option, value, default in given:
        if value != default:
            yield from (option, value)


def _print_spec(console: Console, spec: ProvenSpec) -> None:
    for task, reason in spec.left_out:
        console.print(Text(f"{task}: not in the spec: {one_line(reason)}"), soft_wrap=True)
    held = ", ".join(entry.name for entry in spec.entries) or "no entry"
    told = f"spec: {one_line(str(spec.path))}, with {held}; the whole payload was not timed"
    console.print(Text(told), soft_wrap=True)


def _print_paired(console: Console, taken: Taken) -> None:
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

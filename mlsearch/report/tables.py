"""What a finished tuning run says: per task, then the whole payload, then how to use the spec."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mlsearch.candidate import Numerics
from mlsearch.report.progress import has_winner
from mlsearch.report.text import (
    ABSENT,
    failures,
    interval_text,
    one_line,
    outcomes_text,
    share_text,
    span_text,
    speedup_text,
    three_digits,
    time_text,
)
from mlsearch.summary import DEFAULT_VARIANT, TaskSummary, TimeSpent, TuneSummary, WholePayload


def print_summary(console: Console, summary: TuneSummary, command: tuple[str, ...]) -> None:
    """`command` is the `iree-compile` call that uses the spec."""
    tuned = [task for task in summary.tasks if task.not_tunable is None]
    if tuned:
        if summary.variant != DEFAULT_VARIANT:
            console.print(Text(f"tasks of variant {one_line(summary.variant)}"), soft_wrap=True)
        for table in (_times_table(tuned), _proof_table(tuned)):
            console.print(table)
            console.print()
    # Lines are left for the terminal to wrap: paths and commands stay in one piece when copied.
    for line in _lines(summary):
        console.print(line, soft_wrap=True)
    if _holds_something(summary) and not summary.earlier_spec:
        console.print(Text("use it with:"))
        console.print(Text(f"  {one_line(shlex.join(command))}"), soft_wrap=True)


def numerics_text(numerics: Numerics | None) -> str:
    """`agrees`, or what is wrong."""
    if numerics is None:
        return ABSENT
    if numerics.unwritten:
        return f"{numerics.unwritten} of {numerics.elements} unwritten"
    return "agrees" if numerics.agrees else f"error {numerics.max_rel_error:.1e} > {numerics.tolerance:.1e}"


def yes_no(value: bool | None) -> str:
    return ABSENT if value is None else "yes" if value else "NO"


def new_table(*headings: str, numbers: tuple[str, ...] = (), short: tuple[str, ...] = ()) -> Table:
    """A table whose columns named in `numbers` are right-aligned; these and the `short` ones keep to one line, other
    text is folded, never cut."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in headings:
        right = heading in numbers
        whole = right or heading in short
        table.add_column(heading, justify="right" if right else "left", no_wrap=whole, overflow="fold")
    return table


def add_row(table: Table, *cells: str, style: str = "") -> None:
    """Cells are literal text: names from a payload may look like rich's markup."""
    table.add_row(*(Text(cell, style=style) for cell in cells))


def _times_table(tasks: list[TaskSummary]) -> Table:
    numbers = ("sites", "untuned", "best", "speedup", "95 % interval")
    table = new_table("id", "task", *numbers, numbers=numbers)
    for task in tasks:
        won = has_winner(task)
        add_row(
            table,
            task.id,
            one_line(task.label),
            str(task.sites),
            time_text(task.baseline_us),
            time_text(task.best_us),
            speedup_text(task.speedup) if won else "none",
            interval_text(task.speedup_ci95) if won else ABSENT,
            style="" if won else "dim",
        )
    return table


def _proof_table(tasks: list[TaskSummary]) -> Table:
    numbers = ("GFLOP/s", "trials", "failed")
    table = new_table("id", "GFLOP/s", "applied", "numerics", "trials", "failed", "outcomes", numbers=numbers)
    for task in tasks:
        add_row(
            table,
            task.id,
            ABSENT if task.gflops is None else three_digits(task.gflops),
            yes_no(task.applied),
            numerics_text(task.numerics),
            str(task.trials),
            str(failures(task.outcomes)),
            outcomes_text(task.outcomes),
        )
    return table


def _lines(summary: TuneSummary) -> Iterator[Text]:
    for task in summary.tasks:
        if task.not_tunable is not None:
            yield Text(f"not tuned: {task.id} {one_line(task.label)}: {one_line(task.not_tunable)}", style="dim")
        if task.note:
            yield Text(f"note on {task.id}: {one_line(task.note)}")
    if summary.whole_payload:
        yield from whole_lines(summary.whole_payload)
    elif summary.whole_payload_note:
        yield Text(f"whole payload: not measured: {one_line(summary.whole_payload_note)}")
    for note in summary.notes:
        yield Text(f"note: {one_line(note)}", style="yellow")
    if summary.earlier_spec:
        told = f"spec: {one_line(summary.spec)}, left as it was, its header says how to use it: {summary.earlier_spec}"
        yield Text(told, style="bold")
    elif _holds_something(summary):
        of_variant = "" if summary.variant == DEFAULT_VARIANT else f", for variant {one_line(summary.variant)}"
        yield Text(f"spec: {one_line(summary.spec)}{of_variant}", style="bold")
    else:
        yield Text(f"no improvement found; the spec {one_line(summary.spec)} is empty", style="bold")
    yield Text(f"time: {_time_text(summary.time)}")


def _holds_something(summary: TuneSummary) -> bool:
    """The spec has a schedule, or is for a variant of the payload that is faster without any."""
    return summary.variant != DEFAULT_VARIANT or any(has_winner(task) for task in summary.tasks)


def whole_lines(whole: WholePayload) -> Iterator[Text]:
    yield Text(
        f"whole payload: {time_text(whole.baseline_us)} untuned, {time_text(whole.tuned_us)} tuned,"
        f" {speedup_text(whole.speedup)} {interval_text(whole.speedup_ci95)}, numerics:"
        f" {numerics_text(whole.numerics)}",
        style="bold" if whole.numerics.agrees else "bold red",
    )
    if whole.dropped:
        yield Text(f"dropped, because they don't help there: {one_line(', '.join(whole.dropped))}")


def _time_text(spent: TimeSpent) -> str:
    if spent.wall_s <= 0:
        return span_text(spent.wall_s)
    shares = (("compiling", spent.compile_s), ("measuring", spent.measure_s), ("driver", spent.driver_s))
    text = ", ".join(f"{name} {share_text(seconds / spent.wall_s)}" for name, seconds in shares)
    return f"{span_text(spent.wall_s)} ({text})"

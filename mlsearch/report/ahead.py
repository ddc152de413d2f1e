"""What `tune --no-device` prints: a ranking by static features."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from mlsearch.report.tables import add_row, new_table
from mlsearch.report.text import ABSENT, count_text, one_line, outcomes_text, share_text, span_text, time_text

if TYPE_CHECKING:
    from mlsearch.tune.ahead import AheadSummary, BuiltCandidate, BuiltTask

SHOWN = 15
"""Candidates of a task that are printed; the JSON has them all."""
SPELLED_OUT = 5
"""Those whose knobs are printed as well."""
_LONGEST_REASON = 200
"""The JSON has all of it."""


def print_ranking(console: Console, summary: AheadSummary, repeated: Sequence[str]) -> None:
    """The best candidates of each task by estimate, then how building went, then how to go on; `repeated` are the
    arguments that say on what."""
    for built in summary.tasks:
        _print_task(console, built)
    for line in _closing_lines(summary, repeated):
        console.print(line, soft_wrap=True)


def _print_task(console: Console, built: BuiltTask) -> None:
    console.print(
        Text(f"{built.task.id} {one_line(built.task.label)}: ranking by static features, not measured", style="bold"),
        soft_wrap=True,
    )
    # Fits a terminal of 80 columns; how long each took to compile was told before, and is in the JSON.
    numbers = ("rank", "estimate", "waves", "occup.", "regs", "shared", "mma", "loads")
    table = new_table(*numbers[:2], "bound by", *numbers[2:], numbers=numbers, short=("bound by",))
    for rank, each in enumerate(built.ranked[:SHOWN], start=1):
        add_row(table, *_cells(str(rank), each))
    for each in built.carried:
        add_row(table, *_cells("measured", each), style="dim")
    add_row(table, *_cells("untuned", built.untuned), style="dim")
    console.print(table)
    for rank, each in enumerate(built.ranked[:SPELLED_OUT], start=1):
        console.print(Text(f"{rank}: {_candidate_text(each)}"), soft_wrap=True)
    if len(built.ranked) > SHOWN:
        console.print(Text(f"and {len(built.ranked) - SHOWN} more in the JSON"))
    for line in _building_lines(built):
        console.print(Text(line), soft_wrap=True)
    console.print()


def _cells(rank: str, built: BuiltCandidate) -> list[str]:
    features, guess = built.features, built.estimate
    return [
        rank,
        time_text(guess.time_us) if guess else ABSENT,
        guess.bound.removesuffix(" memory") if guess else ABSENT,
        str(guess.waves) if guess else ABSENT,
        share_text(features.occupancy.share) if features and features.occupancy else ABSENT,
        str(features.registers) if features and features.registers is not None else ABSENT,
        f"{features.shared_bytes / 1024:.1f} KiB" if features else ABSENT,
        str(features.counts.mma) if features else ABSENT,
        f"{features.counts.global_vector_loads}/{features.counts.global_loads}" if features else ABSENT,
    ]


def _candidate_text(built: BuiltCandidate) -> str:
    knobs = " ".join(f"{name}={_short(str(value))}" for name, value in built.candidate.assignment)
    return one_line(f"{built.candidate.template} {knobs}")


def _short(value: str) -> str:
    """`Transpose` of `#iree_gpu.reorder_workgroups_strategy<Transpose>`."""
    return value.partition("<")[2].rstrip(">") if value.startswith("#iree_gpu.") else value


def _shortened(reason: str) -> str:
    return reason if len(reason) <= _LONGEST_REASON else reason[:_LONGEST_REASON] + "..."


def _building_lines(built: BuiltTask) -> Iterator[str]:
    spent = built.spent
    if built.known:
        yield f"{count_text(built.known, 'candidate')} of earlier runs not compiled again"
    if not spent.asked:
        return
    yield (
        f"{built.compiled} of {count_text(spent.asked, 'asked candidate')} compiled, out of a space of"
        f" {built.space_size}: {outcomes_text(spent.outcomes)}"
    )
    for outcome, reason in spent.reasons.items():
        yield f"{outcome}, the first one: {_shortened(one_line(reason))}"
    if spent.pruned:
        yield f"{count_text(spent.pruned, 'candidate')} passed over by the model"
    if built.wall_s > 0:
        yield (
            f"{spent.asked / built.wall_s:.2f} candidates a second over {span_text(built.wall_s)};"
            f" {share_text(spent.spilling_s / spent.compile_s if spent.compile_s else 0.0)} of the compile time went to"
            " candidates that spill"
        )


def _closing_lines(summary: AheadSummary, repeated: Sequence[str]) -> Iterator[Text]:
    for task, reason in summary.not_tunable:
        yield Text(f"not built: {task}: {one_line(reason)}", style="dim")
    if summary.missing:
        yield Text(f"note: {summary.missing}", style="yellow")
    yield Text(f"ranking: {one_line(str(summary.ranking))}", style="bold")
    if summary.bundle is None:
        yield Text("no task could be built: there is no bundle, and nothing to measure")
        return
    yield Text(f"bundle: {one_line(str(summary.bundle))}", style="bold")
    yield Text("no spec is written: nothing was measured yet")
    measured = summary.bundle.with_suffix(".measured.jsonl")
    measure = ("mlsearch", "bundle", "run", str(summary.bundle), "-o", measured.name)
    yield Text(f"on the machine with the GPU: {one_line(shlex.join(measure))}")
    take_in = ("mlsearch", "bundle", "import", *repeated, str(measured), "-o", str(summary.spec))
    yield Text(f"then here: {one_line(shlex.join(take_in))}")

"""The report for a terminal: a view that is redrawn in place, several times a second."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mlsearch import events
from mlsearch.report.plain import header_line
from mlsearch.report.progress import Progress, RunHeader, TaskProgress, advance, has_winner
from mlsearch.report.text import (
    count_text,
    failures,
    one_line,
    outcomes_text,
    span_text,
    speedup_text,
    time_text,
    variant_prefix,
)
from mlsearch.summary import TaskSummary

_FINISHED_ROWS = 8
"""More would push the running task off a small terminal."""


class LiveReporter:
    """A watcher to be used as a context manager. The view disappears at the end; warnings stay."""

    def __init__(self, console: Console, header: RunHeader) -> None:
        self._console = console
        self._header = header
        self._began_s = time.monotonic()
        # Replaced as a whole by each event, so the thread that redraws always sees a consistent value.
        self._progress = Progress("starting", self._began_s)
        self._live = Live(console=console, get_renderable=self._view, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveReporter:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, event: events.Event) -> None:
        self._progress = advance(self._progress, event, time.monotonic())
        if isinstance(event, events.Warn):
            self._console.print(Text(f"warning: {one_line(event.text)}", style="yellow"))

    def _view(self) -> RenderableType:
        return view(self._header, self._progress, time.monotonic(), self._began_s)


def view(header: RunHeader, progress: Progress, now_s: float, began_s: float) -> RenderableType:
    """All that is seen at the moment `now_s`."""
    title = Text(f"{header_line(header)}  {span_text(now_s - began_s)}", style="bold", no_wrap=True)
    activity = f"{one_line(progress.activity)} ({span_text(now_s - progress.since_s)})"
    parts: list[RenderableType] = [title, Text(activity, style="cyan", no_wrap=True, overflow="ellipsis")]
    if progress.task:
        parts += _task_view(progress.task)
    if progress.finished:
        parts += ["", _finished_table(progress.finished)]
    return Group(*parts)


def _task_view(task: TaskProgress) -> list[RenderableType]:
    started = task.started
    bar = Table.grid(padding=(0, 2))
    bar.add_row(
        ProgressBar(total=task.planned, completed=task.trials, width=30, pulse=task.planned is None),
        Text(f"trial {task.trials}/{task.planned}" if task.planned else count_text(task.trials, "trial")),
        Text("" if task.seconds_left is None else f"about {span_text(task.seconds_left)} left"),
    )
    best = Text.assemble(
        "best ",
        (time_text(task.best_us), "bold green" if task.best_us < started.baseline_us else "bold"),
        f"  untuned {time_text(started.baseline_us)}  ",
        (speedup_text(started.baseline_us / task.best_us if task.best_us > 0 else None), "bold"),
    )
    name = f"{variant_prefix(started.variant)}{started.task} {one_line(started.label)}"
    place = f"task {started.position} of {started.of}"
    return [
        "",
        Text(f"{name}  {place}", no_wrap=True, overflow="ellipsis"),
        bar,
        best,
        Text(f"outcomes: {outcomes_text(task.outcomes)}", style="dim"),
        Text(f"surrogate: {_surrogate_text(task.surrogate)}", style="dim"),
        _recent_table(task),
    ]


def _surrogate_text(state: events.SurrogateState | None) -> str:
    if state is None:
        return "off, nothing learned yet"
    return f"{'on' if state.active else 'off'}, rank skill {state.rank_skill:.2f}"


def _recent_table(task: TaskProgress) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    for trial in task.recent:
        style = "" if trial.time_us is not None else "dim"
        reused = " (known)" if trial.reused else ""
        cells = (
            str(trial.number),
            trial.outcome + reused,
            time_text(trial.time_us),
            one_line(trial.assignment),
        )
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table


def _finished_table(finished: tuple[TaskSummary, ...]) -> Table:
    left_out = len(finished) - _FINISHED_ROWS
    table = Table(
        box=None,
        pad_edge=False,
        caption=f"and {left_out} before" if left_out > 0 else None,
        caption_justify="left",
    )
    table.add_column("done", no_wrap=True)
    table.add_column("task", no_wrap=True, overflow="ellipsis")
    for heading in ("untuned", "best", "speedup", "trials", "failed"):
        table.add_column(heading, justify="right", no_wrap=True)
    for task in finished[-_FINISHED_ROWS:]:
        cells = (
            task.id,
            one_line(task.label),
            time_text(task.baseline_us),
            time_text(task.best_us),
            speedup_text(task.speedup) if has_winner(task) else "none",
            str(task.trials),
            str(failures(task.outcomes)),
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table

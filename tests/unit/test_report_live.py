"""The report for a terminal."""

from __future__ import annotations

import io
import time
from dataclasses import replace

import pytest
from report_values import HEADER, run_of_events, task, unimproved_task
from rich.console import Console

from mlsearch import events
from mlsearch.report import open_report
from mlsearch.report.live import LiveReporter, view
from mlsearch.report.plain import PlainReporter
from mlsearch.report.progress import Progress, RunHeader, advance


def seen(run: list[events.Event], width: int = 80, header: RunHeader = HEADER) -> str:
    """The view after a run of events, as text; ten seconds after it began."""
    progress = Progress("starting", 0.0)
    for event in run:
        progress = advance(progress, event, 2.0)
    console = Console(file=io.StringIO(), width=width, record=True, color_system=None)
    console.print(view(header, progress, 10.0, 0.0))
    return console.export_text()


def test_the_stage_is_shown_with_its_elapsed_time() -> None:
    text = seen(run_of_events()[:1])
    assert "mlsearch tune samples/matmul.mlir for llvm-cpu, 1 thread  10 s" in text
    assert "compiling the untuned payload (8 s)" in text


def test_a_running_task_shows_progress_best_outcomes_surrogate_and_time_left() -> None:
    text = seen(run_of_events()[:7])
    assert "t0 matmul_731x1023x137_f32  task 1 of 1" in text
    assert "trial 15/76" in text
    assert "about 35 s left" in text
    assert "best 4.33 ms  untuned 199 ms  46.0x" in text
    assert "outcomes: Measured 2, BuildFailed 1" in text
    assert "surrogate: on, rank skill 0.71" in text
    assert "tile_m=8 tile_n=13" in text


def test_the_running_task_of_a_variant_is_told_from_that_of_another() -> None:
    text = seen([events.of_variant(event, "o3") for event in run_of_events()[:7]])
    assert "variant o3: tuning t0: 15 trials of 76 done" in text
    assert "variant o3: t0 matmul_731x1023x137_f32  task 1 of 1" in text


def test_without_a_trial_limit_only_the_count_is_shown() -> None:
    run = run_of_events()[:5]
    run[2] = replace(run[2], planned=None)  # type: ignore[type-var]
    assert "14 trials" in seen(run)


def test_a_finished_task_becomes_a_row_and_its_trials_go() -> None:
    text = seen(run_of_events()[:9])
    row = next(line for line in text.splitlines() if line.startswith("t0"))
    assert row.split() == ["t0", "matmul_731x1023x137_f32", "199", "ms", "4.33", "ms", "46.0x", "64", "4"]
    assert "trial 15/76" not in text


def test_a_task_without_improvement_shows_none_as_its_speedup() -> None:
    assert "none" in seen([events.TaskDone(unimproved_task())])


def test_many_finished_tasks_do_not_fill_the_screen() -> None:
    text = seen([events.TaskDone(task(id=f"t{number}")) for number in range(100)])
    assert "and 92 before" in text
    assert len(text.splitlines()) < 20


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    long = "x" * 300
    run = [*run_of_events()[:7], events.TaskDone(task(label=long)), events.Step(long)]
    assert all(len(line) <= width for line in seen(run, width).splitlines())


def test_names_that_look_like_markup_are_shown_as_they_are() -> None:
    run: list[events.Event] = [
        events.TaskDone(task(label="[red]a :smile: [/]")),
        events.Step("cutting [bold]"),
    ]
    text = seen(run, header=RunHeader("tune", "[blue]$ x.mlir", "llvm-cpu", 1))
    assert "[blue]$ x.mlir" in text
    assert "cutting [bold]" in text
    assert "[red]a :smile: [/]" in text


def test_the_view_is_alive_between_events_and_gone_at_the_end() -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    with LiveReporter(console, HEADER) as watch:
        watch(events.Step("compiling"))
        watch(events.Warn("the machine's speed drifted"))
        before = len(stream.getvalue())
        limit = time.monotonic() + 30
        while len(stream.getvalue()) == before and time.monotonic() < limit:
            time.sleep(0.01)
        assert len(stream.getvalue()) > before, "nothing was redrawn"
    written = stream.getvalue()
    assert "compiling" in written
    assert "warning: the machine's speed drifted" in written
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h"), "the cursor is left hidden"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_live_view_is_for_terminals_that_can_redraw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    assert isinstance(open_report(Terminal(), HEADER, quiet=False), LiveReporter)
    assert isinstance(open_report(Terminal(), HEADER, quiet=True), PlainReporter)
    assert isinstance(open_report(io.StringIO(), HEADER, quiet=False), PlainReporter)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(open_report(Terminal(), HEADER, quiet=False), PlainReporter)

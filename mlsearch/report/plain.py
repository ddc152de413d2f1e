"""The report for a pipe, a log file or `--quiet`: one line per event, no control codes."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import TextIO

from mlsearch import events
from mlsearch.report.heartbeat import Heartbeat
from mlsearch.report.progress import Progress, RunHeader, TaskProgress, advance, has_winner
from mlsearch.report.text import (
    count_text,
    failures,
    interval_text,
    one_line,
    span_text,
    speedup_text,
    time_text,
    variant_prefix,
)
from mlsearch.summary import TaskSummary, VariantSummary

_LONGEST_REASON = 160
"""The compiler's messages can be whole programs; `--json` has them unabridged."""
SILENCE_S = 4.0
"""Nothing may be silent for more than five seconds; one is left for a busy machine."""


class PlainReporter:
    """A watcher to be used as a context manager. Safe to call from one thread while the heartbeat writes."""

    def __init__(self, stream: TextIO, header: RunHeader, *, quiet: bool = False, silence_s: float = SILENCE_S) -> None:
        """`quiet` leaves out trials that don't improve on the best; the heartbeat still counts them."""
        self._stream = stream
        self._header = header
        self._quiet = quiet
        self._lock = threading.Lock()
        self._progress = Progress("starting", time.monotonic())
        self._heartbeat = Heartbeat(self._say_still, silence_s)

    def __enter__(self) -> PlainReporter:
        self._write(header_line(self._header))
        self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._heartbeat.stop()

    def __call__(self, event: events.Event) -> None:
        task_before = self._progress.task
        best_before = task_before.best_us if task_before else None
        self._progress = advance(self._progress, event, time.monotonic())
        if self._quiet and isinstance(event, events.TrialDone) and not _improves(event, best_before):
            return
        if isinstance(event, events.SurrogateState) and not _changes(event, task_before):
            return
        self._write(event_line(event))
        self._heartbeat.touch()

    def _say_still(self) -> None:
        progress = self._progress
        elapsed = span_text(time.monotonic() - progress.since_s)
        self._write(f"... still {one_line(progress.activity)} ({elapsed})")

    def _write(self, line: str) -> None:
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()


def header_line(header: RunHeader) -> str:
    threads = f", {count_text(header.threads, 'thread')}" if header.threads else ""
    return f"mlsearch {header.command} {one_line(header.payload)} for {one_line(header.target)}{threads}"


def event_line(event: events.Event) -> str:
    """What `event` says, in one line."""
    match event:
        case events.Step(text):
            return one_line(text)
        case events.TasksFound(tasks):
            stuck = sum(task.not_tunable is not None for task in tasks)
            rest = f", {stuck} can't be tuned" if stuck else ""
            return f"{count_text(len(tasks), 'task')} found: {len(tasks) - stuck} to tune{rest}"
        case events.TaskStarted():
            return _task_started_line(event)
        case events.TrialDone():
            return _trial_line(event)
        case events.CandidateBuilt():
            of = "" if event.of is None else f" of {event.of}"
            built = f"{event.task} {event.number}{of}: {event.outcome} in {event.compile_s:.2f} s"
            return f"{built}: {one_line(event.assignment)}"
        case events.SurrogateState(task, active, rank_skill, variant):
            return f"{variant_prefix(variant)}{task} surrogate {'on' if active else 'off'}, rank skill {rank_skill:.2f}"
        case events.TaskDone(summary, variant):
            return f"{variant_prefix(variant)}{task_line(summary)}"
        case events.WholeDone(whole):
            return (
                f"whole payload: {time_text(whole.baseline_us)} untuned, {time_text(whole.tuned_us)} tuned,"
                f" {speedup_text(whole.speedup)} {interval_text(whole.speedup_ci95)}"
            )
        case events.VariantDone(variant):
            return variant_line(variant)
        case events.Warn(text):
            return f"warning: {one_line(text)}"
        case events.Finished(summary):
            state = "interrupted" if summary.interrupted else "done"
            return f"{state} after {span_text(summary.time.wall_s)}"


def variant_line(variant: VariantSummary) -> str:
    """How a variant of the payload stands."""
    parts = []
    if variant.untuned_speedup is not None:
        parts.append(f"{speedup_text(variant.untuned_speedup)} untuned")
    if variant.speedup is not None:
        parts.append(f"{speedup_text(variant.speedup)} with schedules")
    if variant.dropped is not None:
        told = one_line(variant.dropped)
        parts.append(f"left: {told if len(told) <= _LONGEST_REASON else told[:_LONGEST_REASON] + '...'}")
    return f"variant {one_line(variant.name)}: {', '.join(parts)}"


def task_line(summary: TaskSummary) -> str:
    """A finished task in one line."""
    failed = failures(summary.outcomes)
    counts = f"{count_text(summary.trials, 'trial')}{f', {failed} failed' if failed else ''}"
    if not has_winner(summary):
        gain = f"no improvement on {time_text(summary.baseline_us)}"
    else:
        gain = (
            f"{time_text(summary.baseline_us)} untuned, {time_text(summary.best_us)} tuned,"
            f" {speedup_text(summary.speedup)} {interval_text(summary.speedup_ci95)}"
        )
    note = f"; {one_line(summary.note)}" if summary.note else ""
    return f"{summary.id} done: {gain}; {counts}{note}"


def _task_started_line(event: events.TaskStarted) -> str:
    planned = (
        f"{count_text(event.planned, 'trial')} planned"
        if event.planned is not None
        else "as many trials as time allows"
    )
    known = f", {event.done} done before" if event.done else ""
    return (
        f"{variant_prefix(event.variant)}{event.task} ({event.position} of {event.of}) {one_line(event.label)}:"
        f" {time_text(event.baseline_us)} untuned, {planned}{known}, {event.space_size} candidates"
    )


def _trial_line(event: events.TrialDone) -> str:
    if event.time_us is None:
        outcome = event.outcome
    else:
        outcome = f"{time_text(event.time_us)} ({speedup_text(_ratio(event.baseline_us, event.time_us))})"
    reused = " (known)" if event.reused else ""
    left = "" if event.seconds_left is None else f", about {span_text(event.seconds_left)} left"
    best = f"best {time_text(event.best_us)} ({speedup_text(_ratio(event.baseline_us, event.best_us))})"
    name = f"{variant_prefix(event.variant)}{event.task} trial {event.number}"
    return f"{name}: {outcome}{reused}, {best}{left}: {one_line(event.assignment)}"


def _improves(trial: events.TrialDone, best_before_us: float | None) -> bool:
    return best_before_us is None or trial.best_us < best_before_us


def _changes(state: events.SurrogateState, task_before: TaskProgress | None) -> bool:
    """The model begins to pick, or stops. It starts out as off."""
    before = task_before.surrogate if task_before else None
    return state.active != (before is not None and before.active)


def _ratio(baseline_us: float, time_us: float) -> float | None:
    return baseline_us / time_us if time_us > 0 else None

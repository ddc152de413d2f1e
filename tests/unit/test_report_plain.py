"""The report for a pipe."""

from __future__ import annotations

import io
import threading
import time
from types import SimpleNamespace

import pytest
from report_values import HEADER, run_of_events, summary, trial, unimproved_task

from mlsearch import events
from mlsearch.report import heartbeat
from mlsearch.report.plain import SILENCE_S, PlainReporter, event_line
from mlsearch.report.progress import RunHeader


def report(run: list[events.Event], *, quiet: bool = False) -> list[str]:
    stream = io.StringIO()
    with PlainReporter(stream, HEADER, quiet=quiet) as watch:
        for event in run:
            watch(event)
    return stream.getvalue().splitlines()


def test_each_event_is_one_line_after_the_header() -> None:
    lines = report(run_of_events())
    assert lines[0] == "mlsearch tune samples/matmul.mlir for llvm-cpu, 1 thread"
    assert len(lines) == 1 + len(run_of_events())


def test_there_are_no_control_codes() -> None:
    run = [*run_of_events(), events.Step("payload \x1b[31mred\x1b[0m\nnext")]
    assert all(line.isprintable() for line in report(run))


def test_a_trial_tells_time_speedup_best_and_knobs() -> None:
    assert event_line(trial(14, 5000.0, 4330.0)) == (
        "t0 trial 14: 5.00 ms (39.8x), best 4.33 ms (46.0x), about 35 s left: tile_m=8 tile_n=14"
    )


def test_lines_about_a_task_of_a_variant_name_the_variant() -> None:
    run = run_of_events()
    told = [event_line(events.of_variant(event, "o3")) for event in run]
    named = [line.removeprefix("warning: ").startswith("variant o3: ") for line in told]
    # All but the tasks that were found, the whole payload, and the end.
    assert named == [True, False, *[True] * 7, False, False]
    assert told[2].startswith("variant o3: t0 (1 of 1) matmul")
    assert told[3].startswith("variant o3: t0 trial 12: ")
    assert not any(event_line(event).startswith("variant") for event in run)


def test_a_failed_trial_tells_how_it_ended() -> None:
    assert "trial 13: BuildFailed, best" in event_line(trial(13, None, 5000.0))


def test_a_known_trial_says_so() -> None:
    assert "(known)" in event_line(trial(1, 5000.0, 5000.0, reused=True))


def test_a_task_without_improvement_says_so() -> None:
    assert "no improvement on 199 ms" in event_line(events.TaskDone(unimproved_task()))


def test_an_interrupted_run_does_not_end_as_done() -> None:
    assert event_line(events.Finished(summary(interrupted=True))).startswith("interrupted")


def test_quiet_shows_only_the_trials_that_improve() -> None:
    shown = [line for line in report(run_of_events(), quiet=True) if " trial " in line]
    assert [line.split(":")[0] for line in shown] == ["t0 trial 12", "t0 trial 14"]


def said_in_time(stream: io.StringIO, text: str, times: int = 1) -> bool:
    limit = time.monotonic() + 30
    while stream.getvalue().count(text) < times and time.monotonic() < limit:
        time.sleep(0.01)
    return stream.getvalue().count(text) >= times


def test_silence_is_broken_with_what_is_going_on_and_for_how_long() -> None:
    stream = io.StringIO()
    with PlainReporter(stream, HEADER, silence_s=0.05) as watch:
        watch(events.Step("compiling the untuned payload"))
        assert said_in_time(stream, "... still compiling the untuned payload (", times=2)


def test_nobody_waits_five_seconds_for_a_sign_of_life() -> None:
    assert SILENCE_S < 5


def test_the_heartbeat_counts_the_trials_of_a_task() -> None:
    stream = io.StringIO()
    with PlainReporter(stream, HEADER, silence_s=0.05) as watch:
        for event in run_of_events()[:4]:
            watch(event)
        assert said_in_time(stream, "... still tuning t0: 13 trials of 76 done (")


def test_the_heartbeat_stops_with_the_report() -> None:
    stream = io.StringIO()
    with pytest.raises(RuntimeError), PlainReporter(stream, HEADER, silence_s=0.02):
        raise RuntimeError
    said = stream.getvalue()
    time.sleep(0.08)
    assert stream.getvalue() == said
    assert not any(thread.name == "mlsearch-heartbeat" for thread in threading.enumerate())


def test_events_keep_the_heartbeat_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    # By a clock that stands still between the steps: however late a thread runs, an event is never 50 ms old.
    now_s = 0.0
    monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: now_s))
    stream = io.StringIO()
    with PlainReporter(stream, HEADER, silence_s=0.05) as watch:
        for number in range(40):
            now_s += 0.04
            watch(trial(number, 5000.0, 5000.0))
            time.sleep(0.01)
    assert "..." not in stream.getvalue()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_reader_that_left_does_not_raise_from_the_heartbeat(capsys: pytest.CaptureFixture[str]) -> None:
    refused = threading.Event()

    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            if text.startswith("..."):
                refused.set()
                raise BrokenPipeError
            return super().write(text)

    with PlainReporter(Closed(), HEADER, silence_s=0.01):
        assert refused.wait(30)
    assert capsys.readouterr().err == ""


def test_names_are_printed_as_they_are() -> None:
    stream = io.StringIO()
    with PlainReporter(stream, RunHeader("tune", 'a [bold] $x "q".mlir', "llvm-cpu", 2)):
        pass
    assert 'a [bold] $x "q".mlir for llvm-cpu, 2 threads' in stream.getvalue()


def test_the_surrogate_is_told_of_when_it_begins_or_stops_to_pick_only() -> None:
    states = [(False, 0.0), (True, 0.7), (True, 0.8), (False, 0.1), (False, 0.2)]
    run = [run_of_events()[2], *(events.SurrogateState("t0", active, skill) for active, skill in states)]
    shown = [line for line in report(run) if "surrogate" in line]
    assert shown == ["t0 surrogate on, rank skill 0.70", "t0 surrogate off, rank skill 0.10"]

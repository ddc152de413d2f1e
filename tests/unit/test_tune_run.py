"""A whole tuning run: a real payload, cut by the real compiler, on a machine that only pretends."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from loop_harness import BASELINE_US, Machine, options
from remembered_tools import run_once
from small_templates import load, template_text
from test_finals import always
from test_space import FITS
from test_task_search import WRONG

from mlsearch import spec, toolchain
from mlsearch.candidate import RunFailed
from mlsearch.errors import PayloadError
from mlsearch.events import Finished, TaskDone, TasksFound, Warn
from mlsearch.ir.library import EMPTY_LIBRARY
from mlsearch.space.template import Template, load_templates
from mlsearch.summary import TuneSummary
from mlsearch.tune import run as tune_run
from mlsearch.tune.earlier import EarlierSpec

PAYLOAD = """
func.func @main(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %r = linalg.matmul ins(%a, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}
"""


class Run:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        (folder / "payload.mlir").write_text(PAYLOAD)
        load(folder / "templates", template_text(asserts=FITS))
        self.machine = Machine(folder / "work")
        self.machine.time_us = self._time_us
        self.machine.before_run = self._before_run
        self.interrupt_after: int | None = None
        self.payload_us = 400.0
        self._runs = 0

        def templates_for(target: Any, user: Any) -> list[Template]:
            return load_templates(folder / "templates", "cpu")

        @contextmanager
        def open_workbench(target: Any, watch: Any, **_: Any) -> Iterator[Any]:
            yield replace(self.machine.bench, watch=watch)

        monkeypatch.setattr(toolchain, "run", run_once)
        monkeypatch.setattr(tune_run, "templates_for", templates_for)
        monkeypatch.setattr(tune_run, "open_workbench", open_workbench)

    def tune(self, **changes: object) -> TuneSummary:
        self.events: list[Any] = []
        self.summary = tune_run.tune(options(self.folder, **changes), self.events.append)
        return self.summary

    @property
    def spec(self) -> str:
        return (self.folder / "out.spec.mlir").read_text()

    def _time_us(self, key: str) -> float:
        if key.startswith("payload-"):
            return BASELINE_US if key == self._untuned_payload else self.payload_us
        return BASELINE_US / 2

    @property
    def _untuned_payload(self) -> str:
        from mlsearch.candidate import digest

        return f"payload-{digest(None)}"

    def _before_run(self) -> None:
        self._runs += 1
        if self.interrupt_after is not None and self._runs > self.interrupt_after:
            self.interrupt_after = None
            raise KeyboardInterrupt


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_a_faster_schedule_goes_into_the_spec_with_its_proof(run: Run) -> None:
    summary = run.tune(trials=6)
    [task] = summary.tasks
    assert (task.speedup, task.applied, task.trials, task.outcomes) == (2.0, True, 6, {"Measured": 6})
    assert (summary.baseline_us, summary.tuned_us, summary.speedup) == (1000.0, 400.0, 2.5)
    assert task.template == "cpu/small"
    assert f"@match_{task.label}" in run.spec
    assert not summary.interrupted
    assert isinstance(run.events[-1], Finished)
    assert [type(event).__name__ for event in run.events].index("TasksFound") < [
        type(event).__name__ for event in run.events
    ].index("TaskStarted")


def test_no_improvement_is_an_empty_spec(run: Run) -> None:
    run.machine.time_us = lambda key: BASELINE_US
    summary = run.tune(trials=5)
    assert run.spec.endswith(EMPTY_LIBRARY)
    assert summary.tasks[0].speedup == 1.0
    assert summary.tasks[0].applied is None
    assert "not proven faster" in summary.tasks[0].note


def test_a_winner_whose_interval_includes_1_is_not_in_the_spec(run: Run) -> None:
    def noisy(request: Any) -> Any:
        from mlsearch.candidate import Compared
        from mlsearch.testing.runners import RIGHT

        rounds = request.rounds
        tuned = tuple(900.0 if r % 2 else 1100.0 for r in range(rounds))
        return Compared(((1000.0,) * rounds, tuned), (RIGHT, RIGHT))

    run.machine.compare_answers = [always([1000, 500, 500, 500, 500]), noisy]
    summary = run.tune(trials=5)
    assert run.spec.endswith(EMPTY_LIBRARY)
    assert "not proven faster (95 % interval 0.91 to 1.11)" in summary.tasks[0].note


def test_a_winner_that_is_wrong_in_its_second_run_is_not_in_the_spec(run: Run) -> None:
    run.machine.compare_answers = [
        always([1000, 500, 500, 500, 500], [True, True, True, True, True]),
        always([1000, 500], [True, False]),
    ]
    summary = run.tune(trials=5)
    assert run.spec.endswith(EMPTY_LIBRARY)
    assert "numbers are wrong" in summary.tasks[0].note


def never_firing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = spec.application

    def application(*arguments: Any) -> spec.Application:
        return replace(real(*arguments), functions={})

    monkeypatch.setattr(spec, "application", application)


def test_what_is_left_when_an_entry_fires_on_the_task_alone_is_timed_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_firing(monkeypatch)
    summary = run.tune(trials=5)
    assert run.spec.endswith(EMPTY_LIBRARY)
    assert summary.whole_payload is not None
    assert (summary.whole_payload.speedup, len(summary.whole_payload.dropped)) == (1.0, 1)
    assert any(isinstance(event, Warn) and spec.NEVER_FIRES in event.text for event in run.events)


def test_an_entry_that_makes_the_payload_slower_is_not_in_the_spec(run: Run) -> None:
    run.payload_us = 1500.0
    summary = run.tune(trials=5)
    assert run.spec.endswith(EMPTY_LIBRARY)
    assert summary.whole_payload is not None
    assert summary.whole_payload.dropped == (f"{summary.tasks[0].label}_{summary.tasks[0].workload[:6]}",)
    assert summary.speedup == 1.0
    assert any(isinstance(event, Warn) and "left out of the spec" in event.text for event in run.events)


def test_an_interrupt_writes_the_best_spec_so_far(run: Run) -> None:
    run.interrupt_after = 4  # the untuned build and three candidates
    summary = run.tune(trials=14)
    assert summary.interrupted
    [task] = summary.tasks
    assert (task.trials, task.speedup) == (4, 2.0)
    assert f"@match_{task.label}" in run.spec


def test_an_interrupt_before_anything_is_proven_leaves_an_earlier_spec_in_place(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.tune(trials=6)
    before = run.spec

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlsearch.tune.contender.decide", interrupted)
    assert run.tune(trials=8).interrupted
    assert run.spec == before


def test_the_same_command_goes_on_after_an_interrupt(run: Run) -> None:
    run.interrupt_after = 4
    run.tune(trials=8)
    before = len(run.machine.built)
    summary = run.tune(trials=8)
    assert not summary.interrupted
    assert summary.tasks[0].trials == 8
    assert run.machine.built[before:].count("t0-untuned") == 1


def test_an_interrupt_before_anything_was_found_still_writes_a_spec(run: Run) -> None:
    run.interrupt_after = 1
    summary = run.tune(trials=8)
    assert summary.interrupted
    assert run.spec.endswith(EMPTY_LIBRARY)


def test_a_task_that_does_not_run_untuned_is_listed_with_the_reason(run: Run) -> None:
    run.machine.run_answers["t0-untuned"] = RunFailed("no such device", None)
    summary = run.tune(trials=4)
    assert "no such device" in str(summary.tasks[0].not_tunable)
    assert run.spec.endswith(EMPTY_LIBRARY)


def test_a_payload_without_dispatches_is_an_empty_spec(run: Run) -> None:
    (run.folder / "payload.mlir").write_text(
        "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }"
    )
    summary = run.tune(trials=4)
    assert summary.tasks == ()
    assert run.spec.endswith(EMPTY_LIBRARY)


def test_the_budget_is_a_number_of_trials_unless_time_is_the_limit(run: Run) -> None:
    plain = options(run.folder)
    assert plain.trials_per_task == 16
    assert replace(plain, budget="full").trials_per_task == 256
    assert replace(plain, trials=3).trials_per_task == 3
    assert replace(plain, max_time_s=60.0).trials_per_task is None


def test_a_function_that_is_not_there_is_told_with_those_that_are(run: Run) -> None:
    with pytest.raises(PayloadError, match=r"--function 'gone'.*'main'"):
        run.tune(function="gone")


def test_every_task_is_reported_once_it_is_done(run: Run) -> None:
    run.tune(trials=4)
    assert len([event for event in run.events if isinstance(event, TaskDone)]) == 1
    [found] = [event for event in run.events if isinstance(event, TasksFound)]
    assert [task.id for task in found.tasks] == ["t0"]


def test_everything_that_json_holds_is_plain(run: Run) -> None:
    from mlsearch.cli.output import json_text

    json_text(run.tune(trials=4).to_json())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no public function, so there is nothing to compile$"),
        (f"// A spec.\n{EMPTY_LIBRARY}", "it is a transform library, such as a spec"),
    ],
)
def test_a_payload_without_a_function_is_an_error(run: Run, text: str, told: str) -> None:
    (run.folder / "payload.mlir").write_text(text)
    with pytest.raises(PayloadError, match=told):
        run.tune(trials=4)
    assert not (run.folder / "out.spec.mlir").exists()


DYNAMIC = """
func.func @other(%a: tensor<?xf32>) -> tensor<?xf32> {
  %r = math.exp %a : tensor<?xf32>
  return %r : tensor<?xf32>
}
"""


@pytest.mark.parametrize(
    ("other", "function", "told"),
    [
        (DYNAMIC, None, "function 'other' can't be run"),
        (PAYLOAD.replace("@main", "@other"), "main", "function 'other' is not the one that was asked for"),
    ],
)
def test_no_variant_ships_where_a_function_of_the_payload_is_never_run(
    run: Run, other: str, function: str | None, told: str
) -> None:
    (run.folder / "payload.mlir").write_text(PAYLOAD + other)
    summary = run.tune(trials=4, variants="all", function=function)
    [warned] = [event.text for event in run.events if isinstance(event, Warn) and "variants" in event.text]
    assert told in warned
    assert (summary.variant, summary.variants) == ("default", ())


def test_a_template_that_fails_here_is_told_once_and_the_others_go_on(run: Run) -> None:
    """Its own example is larger than the payload."""
    domains, defaults = 'tile = [4], count = ["10 .. n"]', "tile = 4, count = 10, peel = true"
    empty = template_text(domains=domains, defaults=defaults, dims={"m": 8, "n": 16, "k": 8})
    load(run.folder / "templates", empty, "cpu/empty.mlir")
    summary = run.tune(trials=4, variants="all")
    warned = [event.text for event in run.events if isinstance(event, Warn) and "cpu/empty" in event.text]
    assert len(warned) == len(set(warned)) == 1
    assert summary.tasks[0].template == "cpu/small"


def second_run(run: Run, earlier_us: float, meanwhile: Callable[[], None] = lambda: None) -> str:
    """What is said of an earlier spec after a run with another store that finds nothing."""
    run.tune(trials=6)
    before = run.spec
    assert "@match_" in before
    meanwhile()
    times = {"shipped": BASELINE_US, "earlier": earlier_us}
    run.machine.time_us = lambda key: times.get(key, BASELINE_US)
    summary = run.tune(trials=4, store=str(run.folder / "other.journal"))
    assert (run.spec == before) == bool(summary.earlier_spec)
    warned = [event.text for event in run.events if isinstance(event, Warn) and "left as it was" in event.text]
    assert warned == ([f"{summary.spec} is left as it was: {summary.earlier_spec}"] if summary.earlier_spec else [])
    return summary.earlier_spec


def test_a_faster_spec_of_an_earlier_run_stays(run: Run) -> None:
    assert second_run(run, 400.0) == "it is 2.50x faster than what was found now"


def test_a_spec_of_an_earlier_run_that_is_no_faster_gives_way(run: Run) -> None:
    assert second_run(run, BASELINE_US) == ""


def test_a_spec_of_an_earlier_run_that_fits_nothing_gives_way(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert second_run(run, 400.0, lambda: never_firing(monkeypatch)) == ""


def test_a_spec_of_an_earlier_run_that_computes_something_else_gives_way(run: Run) -> None:
    real = run.machine.runner._answer_compare

    def wrong(request: Any) -> Any:
        compared = real(request)
        if [artifact.stem for artifact in request.artifacts] == ["shipped", "earlier"]:
            return replace(compared, numerics=(compared.numerics[0], WRONG))
        return compared

    run.machine.runner._answer_compare = wrong  # type: ignore[method-assign]
    assert second_run(run, 400.0) == ""


def test_a_stop_while_specs_are_compared_leaves_what_was_proven(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlsearch.tune.earlier.compare_functions", stopped)
    assert second_run(run, 400.0) == "it holds more than was proven now"
    assert run.summary.interrupted


def test_specs_that_can_not_be_compared_are_judged_by_what_was_proven(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlsearch.tune.earlier.compare_functions", lambda *arguments: "it hangs")
    assert second_run(run, 400.0) == "it holds more than was proven now"
    assert any("can't be compared with what was found now: it hangs" in str(event) for event in run.events)
    assert not run.summary.interrupted


def test_no_earlier_spec_is_waited_for_at_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def waits(path: Path) -> str:
        pytest.fail(f"{path} is read")

    monkeypatch.setattr(spec, "read_spec", waits)
    os.mkfifo(tmp_path / "pipe")
    assert EarlierSpec.at(tmp_path / "pipe") is None

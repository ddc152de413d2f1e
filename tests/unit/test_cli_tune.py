"""`mlsearch tune` with a stand-in for the search."""

from __future__ import annotations

import errno
import json
import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cli_fakes import FakeTuneOptions, install_tune
from click.testing import CliRunner, Result
from report_values import run_of_events, summary, task, unimproved_task

from mlsearch.cli.main import command_line
from mlsearch.durations import parse_duration
from mlsearch.errors import ToolchainError


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[FakeTuneOptions]:
    """What the library was asked for; it answers with a run that found something."""
    calls: list[FakeTuneOptions] = []

    def tune(options: FakeTuneOptions, watch: Any) -> Any:
        calls.append(options)
        for event in run_of_events():
            watch(event)
        return summary()

    install_tune(monkeypatch, tune)
    monkeypatch.chdir(tmp_path)
    Path("payload.mlir").write_text("module {}")
    return calls


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_line, ["tune", "payload.mlir", *arguments], prog_name="mlsearch")


def test_the_defaults_are_those_that_help_shows(asked: list[FakeTuneOptions]) -> None:
    assert run().exit_code == 0
    assert asked == [
        FakeTuneOptions(
            payload=Path("payload.mlir"),
            target="llvm-cpu",
            trials=None,
            max_time_s=None,
            budget="default",
            seed=0,
            function=None,
            store=".mlsearch/store.journal",
            study=None,
            output=Path("payload.spec.mlir"),
            threads=1,
            jobs=None,
            templates=None,
            workdir=None,
            sampler="tpe",
            surrogate=True,
            cache="warm",
            variants="all",
        )
    ]


def test_every_option_reaches_the_library(asked: list[FakeTuneOptions], tmp_path: Path) -> None:
    (tmp_path / "templates").mkdir()
    line = (
        "--target t --trials 8 --max-time 1h30m --budget full --seed 7 --store s.journal --study nightly"
        " -o out.mlir --threads 2 --jobs 3 --templates templates --workdir work --sampler random"
        " --surrogate off --cache cold --variants o3,im2col"
    )
    result = run(*line.split(), "--function", 'a "b" $c')
    assert result.exit_code == 0, result.output
    assert asked == [
        FakeTuneOptions(
            payload=Path("payload.mlir"),
            target="t",
            trials=8,
            max_time_s=5400.0,
            budget="full",
            seed=7,
            function='a "b" $c',
            store="s.journal",
            study="nightly",
            output=Path("out.mlir"),
            threads=2,
            jobs=3,
            templates=Path("templates"),
            workdir=Path("work"),
            sampler="random",
            surrogate=False,
            cache="cold",
            variants="o3,im2col",
        )
    ]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("10m", 600), ("1h30m", 5400), ("45", 45), ("0.5h", 1800), ("1h0m30s", 3630), ("2M", 120)],
)
def test_lengths_of_time_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10x", "m", "30m1h", "-5", "1e3", "500ms", "nan", "inf", "10 m"])
def test_other_texts_are_no_length_of_time(text: str) -> None:
    assert parse_duration(text) is None


@pytest.mark.parametrize(
    "wrong",
    [
        "--max-time 10x",
        "--max-time 0",
        "--trials 0",
        "--trials many",
        "--budget huge",
        "--threads 0",
        "--jobs -1",
        "--seed -1",
        "--sampler grid",
        "--surrogate maybe",
        "--cache hot",
        "--frobnicate",
        "other.mlir",
        "-o payload.mlir",
        "--json payload.mlir",
        "-o same.mlir --json same.mlir",
    ],
)
def test_usage_errors_end_with_2_before_anything_is_tuned(wrong: str, asked: list[FakeTuneOptions]) -> None:
    result = run(*wrong.split())
    assert result.exit_code == 2
    assert "Usage:" in result.stderr
    assert asked == []


@pytest.mark.parametrize("wrong", ["-o gone/x.mlir", "--json gone/x.json", "--templates gone", "-o ."])
def test_what_cannot_be_written_or_read_is_found_before_tuning(wrong: str, asked: list[FakeTuneOptions]) -> None:
    result = run(*wrong.split())
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith("mlsearch: error: ")
    assert len(result.stderr.splitlines()) == 1
    assert asked == []


def test_a_missing_payload_is_one_line(asked: list[FakeTuneOptions]) -> None:
    result = CliRunner().invoke(command_line, ["tune", "gone.mlir"])
    assert (result.exit_code, result.stderr) == (1, "mlsearch: error: no payload file gone.mlir\n")


def test_the_end_shows_tables_and_how_to_use_the_spec(asked: list[FakeTuneOptions]) -> None:
    shown = run().stdout
    assert "spec: matmul.spec.mlir" in shown
    assert "iree-compile payload.mlir -o payload.vmfb --iree-hal-target-device=local" in shown
    assert "--iree-codegen-transform-dialect-library=matmul.spec.mlir" in shown


def test_json_on_stdout_is_pure_and_all_else_is_on_stderr(asked: list[FakeTuneOptions]) -> None:
    result = run("--json", "-")
    assert json.loads(result.stdout)["tasks"][0]["id"] == "t0"
    assert "t0 trial 12" in result.stderr
    assert "spec: matmul.spec.mlir" in result.stderr


def test_json_to_a_file_leaves_stdout_to_people(asked: list[FakeTuneOptions]) -> None:
    result = run("--json", "out.json")
    assert json.loads(Path("out.json").read_text())["speedup"] == 45.2
    assert "spec: matmul.spec.mlir" in result.stdout
    assert result.stderr == ""


def test_json_has_null_where_nothing_could_be_measured(
    asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    install_tune(monkeypatch, lambda options, watch: summary(speedup=math.nan, speedup_ci95=(0.5, math.inf)))
    told = json.loads(run("--json", "-").stdout, parse_constant=pytest.fail)
    assert told["speedup"] is None
    assert told["speedup_ci95"] == [0.5, None]


def test_no_improvement_is_a_normal_end(asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    install_tune(monkeypatch, lambda options, watch: summary(tasks=(unimproved_task(),)))
    result = run()
    assert result.exit_code == 0
    assert "no improvement found" in result.stdout


def test_an_interrupted_run_says_how_to_go_on(asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    install_tune(monkeypatch, lambda options, watch: summary(interrupted=True))
    result = run("--study", "a b", "--json", "-")
    assert result.exit_code == 130
    assert "to go on: mlsearch tune payload.mlir --study 'a b' --json -\n" in result.stderr
    assert json.loads(result.stdout)["interrupted"] is True


def test_an_interrupt_that_the_search_does_not_see_is_one_line_that_says_how_to_go_on(
    asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tune(options: FakeTuneOptions, watch: Any) -> Any:
        raise KeyboardInterrupt

    install_tune(monkeypatch, tune)
    result = run()
    told = "mlsearch: interrupted before a spec was written; what was measured is kept, to go on:"
    assert (result.exit_code, result.stderr) == (130, f"{told} mlsearch tune payload.mlir\n")


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def tune(options: FakeTuneOptions, watch: Any) -> Any:
        raise error

    install_tune(monkeypatch, tune)


def test_an_error_of_ours_is_one_line(asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, ToolchainError("iree-compile failed:\n  error: expected ')'\n"))
    result = run()
    assert (result.exit_code, result.stderr) == (
        1,
        "mlsearch: error: iree-compile failed: error: expected ')'\n",
    )


def test_an_unexpected_error_is_one_line_that_names_debug(
    asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, KeyError("x"))
    result = run()
    assert result.exit_code == 1
    assert result.stderr == ("mlsearch: error: unexpected KeyError: 'x' (run again with --debug for the traceback)\n")


def test_a_full_disk_is_told_with_what_helps(asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
    assert run().stderr == (
        "mlsearch: error: [Errno 28] No space left on device: free some, or set TMPDIR or --workdir to where there is"
        " room\n"
    )


@pytest.mark.parametrize("error", [KeyError("x"), ToolchainError("it broke")])
def test_debug_adds_the_traceback(
    error: Exception, asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, error)
    lines = run("--debug").stderr.splitlines()
    assert lines[0].startswith("Traceback")
    assert lines[-1].startswith("mlsearch: error: ")
    assert "run again" not in lines[-1]


def test_a_reader_that_left_ends_the_run_quietly(asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, BrokenPipeError())
    result = run()
    assert (result.exit_code, result.stderr) == (141, "")


def test_names_that_look_like_markup_or_shell_are_printed_as_they_are(
    asked: list[FakeTuneOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a [bold] $x.mlir"
    Path(name).write_text("module {}")
    found = replace(summary(tasks=(task(label="[red]$"),)), spec="a [bold] $x.spec.mlir")
    install_tune(monkeypatch, lambda options, watch: found)
    shown = CliRunner().invoke(command_line, ["tune", name]).stdout
    assert f"mlsearch tune {name} for" in shown
    assert "[red]$" in shown
    assert "iree-compile 'a [bold] $x.mlir' -o 'a [bold] $x.vmfb'" in shown


def test_quiet_shows_fewer_trials(asked: list[FakeTuneOptions]) -> None:
    assert "BuildFailed, best" in run().stdout
    assert "BuildFailed, best" not in run("--quiet").stdout

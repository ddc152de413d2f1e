"""How the installed command ends when something goes wrong, seen from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MLSEARCH = [sys.executable, "-m", "mlsearch.cli.main"]

WITH_A_STAND_IN = """
import os, signal, sys, time
from types import ModuleType
import mlsearch.cli.main
from mlsearch.events import Step

def tune(options, watch):
    watch(Step("waiting [bold]"))
    {body}

fake = ModuleType("mlsearch.tune")
fake.TuneOptions, fake.tune = dict, tune
sys.modules["mlsearch.tune"] = fake
sys.argv = ["mlsearch", "tune", "payload.mlir"]
mlsearch.cli.main.main()
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("payload.mlir").write_text("module {}")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MLSEARCH, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def start_tune(body: str, **environment: str) -> subprocess.Popen[str]:
    """`mlsearch tune payload.mlir` in a process of its own, with `body` for the search."""
    return subprocess.Popen(
        [sys.executable, "-c", WITH_A_STAND_IN.format(body=body)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize(
    "line",
    [
        "tune gone.mlir",
        "tune payload.mlir -o gone/spec.mlir",
        "inspect gone.mlir",
        "space gone.mlir --task t0",
        "compile payload.mlir --spec gone.mlir -o out.vmfb",
        "verify payload.mlir --spec gone.mlir",
        "records list",
        "records list --store payload.mlir",
        "records show x --store sqlite:////gone/x.db",
        "records import gone.jsonl",
    ],
)
def test_errors_are_one_line_on_stderr(line: str) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("mlsearch: error: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("line", ["tune", "tune gone.mlir --trials 0", "frobnicate", "verify payload.mlir"])
def test_usage_errors_end_with_2(line: str) -> None:
    done = run(*line.split())
    assert (done.returncode, done.stdout) == (2, "")


def test_help_starts_without_what_tuning_needs() -> None:
    code = "import sys, mlsearch.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"optuna", "lightgbm", "iree", "numpy", "rich", "sqlalchemy"} & set(done.stdout.split())


def test_an_encoding_that_lacks_a_character_does_not_stop_a_run() -> None:
    process = start_tune("watch(Step('12 µs')); raise SystemExit(0)", PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=60)
    assert out.splitlines()[-1] == r"12 \xb5s"
    assert (process.returncode, err) == (0, "")


def test_a_pipe_gets_no_control_codes_even_where_colours_are_forced() -> None:
    process = start_tune("raise KeyError(1)", FORCE_COLOR="1", TTY_COMPATIBLE="1")
    out, _ = process.communicate(timeout=60)
    assert "waiting [bold]\n" in out
    assert "\x1b" not in out


def test_a_reader_that_leaves_ends_the_run_without_a_word() -> None:
    process = start_tune("while True: watch(Step('still here')); time.sleep(0.01)")
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


def test_an_interrupt_is_one_line() -> None:
    process = start_tune("time.sleep(60)")
    assert process.stdout is not None
    while "waiting" not in process.stdout.readline():
        pass
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.startswith("mlsearch: interrupted before a spec was written")
    assert len(err.splitlines()) == 1


END_AND_REMOVE = """try:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(60)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)
        watch(Step("all is removed"))"""


def test_a_second_signal_does_not_stop_the_removing_after_the_first() -> None:
    process = start_tune(END_AND_REMOVE)
    out, _ = process.communicate(timeout=60)
    assert "all is removed\n" in out
    assert process.returncode == 128 + signal.SIGHUP


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout_is_an_error() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*MLSEARCH, "--version"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
        )
    assert done.returncode != 0

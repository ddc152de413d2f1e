"""Tuning that was killed goes on, and two runs can share a store."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from command import MLSEARCH, mlsearch, told
from optuna.trial import TrialState
from payload_texts import matmul

from mlsearch.records.store import Store
from mlsearch.trial_attributes import CANDIDATE

COMMAND = (
    "tune", "payload.mlir", "--variants", "default", "--trials", "10", "--threads", "1", "--jobs", "1",
    "--surrogate", "off", "--store", "s.journal", "-o", "spec.mlir", "--json", "-",
)  # fmt: skip


def start(folder: Path, *changes: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MLSEARCH, *COMMAND, *changes], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_kill_9_in_the_middle_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    (tmp_path / "payload.mlir").write_text(matmul(29, 31, 37))
    process = start(tmp_path, "--trials", "500")
    assert process.stderr is not None and process.stdout is not None
    for line in process.stderr:
        if line.startswith("t0 trial"):
            break
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stdout.close(), process.stderr.close()

    before = list(Store.open(tmp_path / "s.journal").records())
    assert 2 <= len(before) < 500

    planned = len(before) + 5
    summary = told(mlsearch(tmp_path, *COMMAND, "--trials", str(planned)))
    [task] = summary["tasks"]
    assert sum(task["outcomes"].values()) == planned
    after = list(Store.open(tmp_path / "s.journal").records())
    assert len(after) == planned
    assert [each.record for each in after[: len(before)]] == [each.record for each in before]
    assert len({each.record.candidate.key for each in after}) == planned
    assert (tmp_path / "spec.mlir").exists()


def test_ctrl_c_writes_a_spec_and_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "payload.mlir").write_text(matmul(29, 31, 37))
    process = start(tmp_path, "--trials", "500")
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("t0 trial 3"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "to go on: " in err
    summary = json.loads(out)
    assert summary["interrupted"] is True
    assert (tmp_path / "spec.mlir").exists()
    assert len(list(Store.open(tmp_path / "s.journal").records())) == sum(summary["tasks"][0]["outcomes"].values())


def test_two_runs_at_once_share_a_store(tmp_path: Path) -> None:
    (tmp_path / "payload.mlir").write_text(matmul(29, 31, 37))
    runs = [start(tmp_path, "-o", "one.mlir"), start(tmp_path, "-o", "two.mlir")]
    for run in runs:
        out, err = run.communicate(timeout=240)
        assert run.returncode == 0, err
        assert sum(json.loads(out)["tasks"][0]["outcomes"].values()) >= 2
    store = Store.open(tmp_path / "s.journal")
    [name] = store.study_names()
    trials = store.study(name).trials
    assert all(trial.state != TrialState.RUNNING for trial in trials)
    keys = [trial.user_attrs[CANDIDATE] for trial in trials if trial.user_attrs[CANDIDATE]]
    # Runs that start at the same moment may ask for the same first batch; then each sees what the other has begun.
    assert len(set(keys)) > 0.5 * len(keys), "the two did each other's work"
    assert (tmp_path / "one.mlir").exists() and (tmp_path / "two.mlir").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_terminated_run_leaves_no_temporary_folder(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "payload.mlir").write_text(matmul())
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process = subprocess.Popen(
        [*MLSEARCH, "tune", "payload.mlir", "--variants", "default", "--trials", "500"],
        cwd=tmp_path,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    limit = time.monotonic() + 60
    while not list(temporary.glob("mlsearch-*/t0-*")) and time.monotonic() < limit:
        time.sleep(0.05)
    assert list(temporary.glob("mlsearch-*/t0-*"))
    process.send_signal(number)
    assert process.wait(timeout=60) == 128 + number
    assert not list(temporary.glob("mlsearch-*/"))

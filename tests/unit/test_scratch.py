"""Temporary folders go with their run; those of killed ones go with the next run, and nothing else does."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mlsearch.errors import MlsearchError
from mlsearch.scratch import PREFIX, remove_abandoned, scratch_folder

HOLD = """
import subprocess, sys
from mlsearch.scratch import scratch_folder
with scratch_folder() as folder:
    (folder / "t0.vmfb").write_text("x")
    subprocess.Popen(["sleep", "60"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # it outlives this process
    print(folder, flush=True)
    sys.stdin.read()
"""
MANY = """
import sys
from mlsearch.scratch import scratch_folder
for _ in range(200):
    with scratch_folder() as folder:
        (folder / "x").write_text("x")
        assert (folder / "x").read_text() == "x"
"""


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # for processes
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # for this one


@contextmanager
def another_run() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A process that holds a folder, and the folder."""
    command = [sys.executable, "-c", HOLD]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        yield process, Path(process.stdout.readline().strip())
        os.killpg(process.pid, signal.SIGKILL)


def test_a_folder_goes_with_its_run_also_on_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), scratch_folder() as folder:
        (folder / "deep").mkdir()
        (folder / "deep" / "x").write_text("x")
        assert list(tmp_path.iterdir()) == [folder]
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_kill_9_leaves_behind_the_next_run_removes(tmp_path: Path) -> None:
    with another_run() as (process, left):
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert (left / "t0.vmfb").exists()
        with scratch_folder() as folder:
            assert list(tmp_path.iterdir()) == [folder]


def test_the_folder_of_a_living_run_stays(tmp_path: Path) -> None:
    with another_run() as (_, held), scratch_folder() as folder:
        assert {held, folder} == set(tmp_path.iterdir())
        assert (held / "t0.vmfb").exists()


def test_links_files_and_other_folders_are_left_alone(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "x").write_text("x")
    (tmp_path / f"{PREFIX}link").symlink_to(victim)
    (tmp_path / f"{PREFIX}file").write_text("x")
    (tmp_path / "mlsearch-other").mkdir()
    abandoned = tmp_path / f"{PREFIX}abandoned"
    abandoned.mkdir()
    (abandoned / "link").symlink_to(victim)
    before = set(tmp_path.iterdir())
    remove_abandoned(tmp_path)
    assert set(tmp_path.iterdir()) == before - {abandoned}
    assert (victim / "x").read_text() == "x"


def test_what_another_user_left_behind_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"{PREFIX}theirs").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        remove_abandoned(tmp_path)
    assert (tmp_path / f"{PREFIX}theirs").exists()
    remove_abandoned(tmp_path)
    assert not (tmp_path / f"{PREFIX}theirs").exists()


def test_a_folder_that_another_run_removes_before_it_is_locked_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Path] = []
    usual, lock = Path.mkdir, fcntl.flock

    def robbed(folder: Path, mode: int) -> None:
        usual(folder, mode)
        made.append(folder)
        if len(made) == 1:
            shutil.rmtree(folder)

    def robbed_before_the_lock(descriptor: int, operation: int) -> None:
        if len(made) == 2:
            shutil.rmtree(made[1])
        lock(descriptor, operation)

    monkeypatch.setattr(Path, "mkdir", robbed)
    monkeypatch.setattr(fcntl, "flock", robbed_before_the_lock)
    with scratch_folder() as folder:
        assert folder == made[2]
        assert folder.is_dir()


def test_many_runs_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    runs = [subprocess.Popen([sys.executable, "-c", MANY], stderr=subprocess.PIPE, text=True) for _ in range(4)]
    for run in runs:
        _, err = run.communicate()
        assert run.returncode == 0, err
    assert list(tmp_path.iterdir()) == []


def test_without_locks_a_folder_is_made_and_none_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    (tmp_path / f"{PREFIX}held").mkdir()
    with scratch_folder() as folder:
        assert folder.is_dir()
    assert [each.name for each in tmp_path.iterdir()] == [f"{PREFIX}held"]


def test_no_place_for_a_folder_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with (
        pytest.raises(MlsearchError, match=r"can't make a temporary folder: No such file .*; set TMPDIR"),
        scratch_folder(),
    ):
        pass


def test_a_signal_while_the_folder_is_made_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Path.mkdir

    def interrupted(folder: Path, mode: int) -> None:
        usual(folder, mode)
        assert list(tmp_path.iterdir()) == [folder]
        raise KeyboardInterrupt  # wherever a signal's handler runs, and whichever thread got the signal

    monkeypatch.setattr(Path, "mkdir", interrupted)
    with pytest.raises(KeyboardInterrupt), scratch_folder():
        pass
    assert not list(tmp_path.iterdir())

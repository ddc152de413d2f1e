"""The file of measurements: appended to, gone on with, checked line by line."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import bundles
import pytest

from mlsearch.bundle.archive import open_bundle
from mlsearch.bundle.measured import ArtifactMeasured, ArtifactsCompared, Line, MeasuredFile, read_measured
from mlsearch.bundle.site import Conditions
from mlsearch.candidate import Compared, Measured, RunFailed, RunTimeout
from mlsearch.errors import BundleError
from mlsearch.testing.runners import RIGHT, measured

CALM = Conditions(0.1, 3000.0, "performance", None, None)
WHEN = "2026-01-01T00:00:00Z"


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return bundles.bundle(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "measured.jsonl"


def lines_of(bundle: Path) -> list[Line]:
    """The untuned build, an artifact that failed, one that hung, and a comparison."""
    with open_bundle(bundle) as opened:
        [task] = opened.manifest.tasks
    untuned, first, second, third = task.artifacts
    rounds = Compared(((2.0, 2.0), (1.0, 1.0)), (RIGHT, RIGHT))
    return [
        ArtifactMeasured("t0", untuned, measured(2.0), WHEN, CALM),
        ArtifactMeasured("t0", first, RunFailed("it broke", None), WHEN, CALM),
        ArtifactMeasured("t0", second, RunTimeout(3.0), WHEN, CALM),
        ArtifactMeasured("t0", third, measured(1.0), WHEN, CALM),
        ArtifactsCompared("t0", (untuned, third), rounds, WHEN, CALM),
    ]


def write(bundle: Path, path: Path, lines: list[Line], **site: Any) -> None:
    with open_bundle(bundle) as opened, MeasuredFile.open(path, opened, bundles.site(**site)) as file:
        for line in lines:
            file.append(line)


def test_what_was_written_is_what_is_read(bundle: Path, path: Path) -> None:
    lines = lines_of(bundle)
    write(bundle, path, lines)
    read = read_measured(path)
    assert [*read.runs.values(), *read.comparisons.values()] == lines
    assert read.site == bundles.site()
    with open_bundle(bundle) as opened:
        assert (read.bundle, read.manifest) == (opened.digest, opened.manifest)


def test_where_the_other_machine_kept_its_log_is_left_out(bundle: Path, path: Path) -> None:
    line = lines_of(bundle)[1]
    write(bundle, path, [ArtifactMeasured("t0", line.artifact, RunFailed("no", Path("/tmp/x")), WHEN, CALM)])  # type: ignore[union-attr]
    [run] = read_measured(path).runs.values()
    assert run.outcome == RunFailed("no", None)


@pytest.mark.parametrize("torn", range(0, 400, 37))
def test_a_line_that_was_torn_is_cut_and_written_again(bundle: Path, path: Path, torn: int) -> None:
    lines = lines_of(bundle)
    write(bundle, path, lines[:1])
    whole = path.read_bytes()
    write(bundle, path, lines[1:2])
    size = len(whole) + min(torn, path.stat().st_size - len(whole) - 1)
    path.write_bytes(path.read_bytes()[:size])
    assert len(read_measured(path).runs) == 1
    write(bundle, path, lines[1:])
    read = read_measured(path)
    assert [*read.runs.values(), *read.comparisons.values()] == lines


def test_a_torn_first_line_is_written_again(bundle: Path, path: Path) -> None:
    write(bundle, path, [])
    path.write_bytes(path.read_bytes()[:50])
    write(bundle, path, lines_of(bundle))
    assert len(read_measured(path).runs) == 4


def test_a_file_of_something_else_is_left_as_it_is(bundle: Path, path: Path) -> None:
    for text in ("dear diary", "dear diary\n", '{"mlsearch_records": 1}\n'):
        path.write_text(text)
        with pytest.raises(BundleError):
            write(bundle, path, [])
        assert path.read_text() == text


def test_measurements_of_another_bundle_or_place_do_not_mix(bundle: Path, path: Path, tmp_path: Path) -> None:
    write(bundle, path, lines_of(bundle))
    content = path.read_bytes()
    with pytest.raises(BundleError, match="was begun on"):
        write(bundle, path, [], device="local-task")
    other = bundles.bundle(tmp_path, bundles.task(tmp_path / "built", contents=("x",)))
    with pytest.raises(BundleError, match="of another bundle"):
        write(other, path, [])
    assert path.read_bytes() == content


def test_a_restarted_container_goes_on_under_its_new_name(bundle: Path, path: Path) -> None:
    write(bundle, path, lines_of(bundle)[:1])
    write(bundle, path, lines_of(bundle)[1:2], host="another")
    assert len(read_measured(path).runs) == 2


def test_two_processes_do_not_write_the_same_file(bundle: Path, path: Path) -> None:
    with (
        open_bundle(bundle) as opened,
        MeasuredFile.open(path, opened, bundles.site()),
        pytest.raises(BundleError, match="another process"),
    ):
        MeasuredFile.open(path, opened, bundles.site())


DAMAGES: dict[str, Callable[[list[dict[str, Any]]], object]] = {
    "task 't9' is not in the bundle": lambda lines: lines[1].update(task="t9"),
    "no candidate of task t0 has the artifact '0000": lambda lines: lines[4].update(artifact="0" * 64),
    "no candidate of task t0 has the artifact '1111": lambda lines: lines[5].update(
        artifacts=[lines[1]["artifact"], "1" * 64]
    ),
    "was measured already": lambda lines: lines.insert(2, lines[1]),
    "does not begin with the untuned build": lambda lines: lines[5]["artifacts"].reverse(),
    "rounds of a comparison are not complete": lambda lines: lines[5]["outcome"]["samples_us"][0].pop(),
    "a comparison lists an artifact twice": lambda lines: lines[5].update(artifacts=[lines[1]["artifact"]] * 2),
    "too large a number": lambda lines: lines[1]["outcome"].update(samples_us=[10**400]),
    "a time is one that no clock tells": lambda lines: lines[1]["outcome"].update(samples_us=[1e-300]),
    "a time is not positive": lambda lines: lines[1]["outcome"].update(samples_us=[-1.0]),
    "or with wrong numbers": lambda lines: lines[1]["outcome"]["numerics"].update(agrees=False),
    "without samples": lambda lines: lines[1]["outcome"].update(samples_us=[]),
    "unknown field": lambda lines: lines[1].update(extra=1),
    "not a measurement": lambda lines: lines[1].update(type="Other"),
    r"newer mlsearch \(format 9\)": lambda lines: lines[0].update(mlsearch_measured=9),
    r"newer mlsearch \(schema 9": lambda lines: lines[0]["manifest"].update(mlsearch_bundle=9),
    "site": lambda lines: lines[0].update(site=None),
}


@pytest.mark.parametrize("message", DAMAGES)
def test_every_line_is_checked(bundle: Path, path: Path, message: str) -> None:
    write(bundle, path, lines_of(bundle))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    DAMAGES[message](lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(BundleError, match=rf"line \d+: .*{message}"):
        read_measured(path)


def test_a_time_that_is_no_number_is_refused(bundle: Path, path: Path) -> None:
    untuned = lines_of(bundle)[0]
    assert isinstance(untuned, ArtifactMeasured)
    endless = Measured((float("inf"),), (), RIGHT, cut_short=True)
    write(bundle, path, [ArtifactMeasured("t0", untuned.artifact, endless, WHEN, CALM)])
    with pytest.raises(BundleError, match="not positive and finite"):
        read_measured(path)


def test_whose_numbers_were_wrong_once_is_remembered(bundle: Path, path: Path) -> None:
    *runs, comparison = lines_of(bundle)
    assert isinstance(comparison, ArtifactsCompared) and isinstance(comparison.outcome, Compared)
    wrong = replace(comparison.outcome, numerics=(RIGHT, replace(RIGHT, agrees=False)))
    write(bundle, path, [*runs, replace(comparison, outcome=wrong), comparison])
    read = read_measured(path)
    assert read.comparisons["t0"] == comparison
    assert read.wrong == {("t0", comparison.artifacts[1])}


def test_a_file_system_without_locks_is_an_error_of_one_line(
    bundle: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, operation: int) -> NoReturn:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(BundleError, match=f"can't write {path}: No locks available"):
        write(bundle, path, [])


def test_a_pipe_can_not_be_gone_on_with_and_is_not_waited_for(bundle: Path, path: Path) -> None:
    def waits(number: int, frame: object) -> NoReturn:
        raise AssertionError("it waits for the pipe")

    os.mkfifo(path)
    usual = signal.signal(signal.SIGALRM, waits)
    signal.alarm(10)
    try:
        with pytest.raises(BundleError, match="not a regular file"):
            write(bundle, path, [])
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)


def test_a_file_that_does_not_tell_its_size_is_read_only_so_far(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pour() -> None:
        with suppress(BrokenPipeError):
            path.write_bytes(bytes(64 << 20))

    monkeypatch.setattr("mlsearch.bundle.measured.MOST_BYTES", 1 << 20)
    os.mkfifo(path)
    threading.Thread(target=pour, daemon=True).start()
    with pytest.raises(BundleError, match="larger than"):
        read_measured(path)

"""`mlsearch tune --no-device`: what one run has learned, the next one knows."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from test_bundle_for_cuda import MATMUL, measure, site

from mlsearch.bundle.archive import open_bundle
from mlsearch.cli.main import command_line
from mlsearch.errors import StoreError
from mlsearch.space.template import built_in_folder
from mlsearch.tune.unmeasured import UnmeasuredSearch


def mlsearch(folder: Path, *arguments: object) -> str:
    command = [sys.executable, "-m", "mlsearch.cli.main", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_end_names_the_commands_that_go_on_and_its_table_fits_a_terminal(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    told = mlsearch(folder, "tune", "matmul.mlir", "--target", "cuda:sm_90", "--trials", 4, "--no-device",
                    "--store", "a store", "-o", "my spec.mlir", "--quiet")  # fmt: skip
    assert "mlsearch bundle run 'my spec.bundle' -o 'my spec.measured.jsonl'\n" in told
    assert "mlsearch bundle import matmul.mlir --store 'a store' 'my spec.measured.jsonl' -o 'my spec.mlir'\n" in told
    _, table = told.split("not measured\n")
    heading, *rows = table.splitlines()[:5]
    assert heading.split()[:4] == ["rank", "estimate", "bound", "by"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "untuned"]


def test_time_alone_may_be_the_limit(folder: Path) -> None:
    mlsearch(folder, "tune", "matmul.mlir", "--target", "cuda:sm_90", "--max-time", "1s", "--no-device",
             "-o", "spec.mlir", "--json", "ahead.json")  # fmt: skip
    [task] = json.loads((folder / "ahead.json").read_text())["tasks"]
    assert 1 <= len(task["ranking"]) < 64


def test_an_interrupted_run_ranks_and_bundles_what_it_has_built(folder: Path) -> None:
    arguments = ["tune", "matmul.mlir", "--target", "cuda:sm_90", "--trials", "500", "--no-device", "-o", "spec.mlir"]
    command = [sys.executable, "-m", "mlsearch.cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout is not None
        before = next(line for line in process.stdout if " 2 of 499: " in line)
        process.send_signal(signal.SIGINT)
        told = process.stdout.read()
    assert process.returncode == 130, before + told
    assert told.splitlines()[-1] == f"interrupted; to go on: mlsearch {' '.join(arguments)}"
    with open_bundle(folder / "spec.bundle") as bundle:
        held = {each.candidate.key for each in bundle.manifest.tasks[0].candidates}
    [task] = json.loads((folder / "spec.ranking.json").read_text())["tasks"]
    assert len(held) >= 1 and {each["key"] for each in task["ranking"]} == held


@pytest.mark.parametrize("command", [("tune", "--no-device"), ("bundle", "export")])
def test_a_full_disk_is_an_error_and_no_reason_why_a_task_can_not_be_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def full(search: UnmeasuredSearch, *arguments: object) -> None:
        raise StoreError("no space left to write 'store'")

    monkeypatch.chdir(folder)
    monkeypatch.setattr(UnmeasuredSearch, "run", full)
    ended = CliRunner().invoke(command_line, [*command, "matmul.mlir", "--target", "cuda:sm_90", "-o", "out"])
    assert ended.exit_code == 1
    assert "mlsearch: error: no space left to write 'store'" in ended.output
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("option", "name"), [("--store", "out.bundle"), ("--json", "out.bundle"), ("--store", "out.ranking.json")]
)
def test_what_is_written_beside_the_spec_overwrites_nothing_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch, option: str, name: str
) -> None:
    monkeypatch.chdir(folder)
    arguments = [
        "tune",
        "matmul.mlir",
        "--target",
        "cuda:sm_90",
        "--no-device",
        "-o",
        "out.mlir",
        "--trials",
        "1",
        option,
        name,
    ]
    ended = CliRunner().invoke(command_line, arguments)
    assert ended.exit_code == 2
    assert f"the output would overwrite {name}; choose another file" in ended.output
    assert [each.name for each in folder.iterdir()] == ["matmul.mlir"]


def test_a_bundle_that_can_not_be_written_is_told_before_anything_is_built(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    Path("out.bundle").mkdir()
    arguments = ["tune", "matmul.mlir", "--target", "cuda:sm_90", "--no-device", "--trials", "1", "-o", "out.mlir"]
    ended = CliRunner().invoke(command_line, arguments)
    assert ended.exit_code == 1
    assert "mlsearch: error: can't write out.bundle: it is a folder; name a file" in ended.output


@pytest.mark.parametrize(
    ("variant", "told"), [("fast", "there is no variant 'fast'"), ("mine", "the payload is built as it is")]
)
def test_a_variant_that_would_not_be_looked_at_is_refused(folder: Path, variant: str, told: str) -> None:
    for source, copy in (
        ("cuda/contraction_simt", "cuda/my_simt"),
        ("preprocessing/cpu/o3", "preprocessing/cuda/mine"),
    ):
        (folder / "templates" / copy).parent.mkdir(parents=True)
        shutil.copy(built_in_folder() / f"{source}.mlir", folder / "templates" / f"{copy}.mlir")
    arguments = ("--target", "cuda:sm_90", "--no-device", "--templates", "templates", "--variants", variant)
    command = [sys.executable, "-m", "mlsearch.cli.main", "tune", "matmul.mlir", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 1
    assert told in done.stderr and len(done.stderr.splitlines()) == 1


def build_ahead(folder: Path, trials: int, target: str = "cuda:sm_90") -> tuple[dict[str, Any], list[str]]:
    """The task's part of the JSON, and the keys of the candidates in the bundle, in their order."""
    arguments = ("--target", target, "--trials", trials, "--no-device", "-o", "spec.mlir", "--json", "ahead.json")
    mlsearch(folder, "tune", "matmul.mlir", *arguments)
    assert not (folder / "spec.mlir").exists()
    [task] = json.loads((folder / "ahead.json").read_text())["tasks"]
    with open_bundle(folder / "spec.bundle") as bundle:
        return task, [each.candidate.key for each in bundle.manifest.tasks[0].candidates]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "matmul.mlir").write_text(MATMUL)
    return tmp_path


def test_a_second_run_compiles_what_is_new_and_nothing_else(folder: Path) -> None:
    first, shipped = build_ahead(folder, 5)
    assert (first["known"], first["outcomes"]) == (0, {"Unmeasured": 4})
    assert sorted(each["key"] for each in first["ranking"]) == sorted(shipped)

    again, same = build_ahead(folder, 5)
    assert (again["known"], again["outcomes"]) == (4, {})
    assert (again["ranking"], same) == (first["ranking"], shipped)

    more, all_of_them = build_ahead(folder, 8)
    assert (more["known"], more["outcomes"]) == (4, {"Unmeasured": 3})
    assert set(shipped) < set(all_of_them) and len(all_of_them) == 7


def test_artifacts_are_built_again_where_the_bundle_is_gone(folder: Path) -> None:
    _, shipped = build_ahead(folder, 4)
    with open_bundle(folder / "spec.bundle") as bundle:
        held = {member.sha256 for member in bundle.manifest.members if member.name.startswith("artifacts/")}
    (folder / "spec.bundle").write_bytes(b"no bundle any more")
    again, same = build_ahead(folder, 4)
    assert (again["outcomes"], same) == ({}, shipped)
    with open_bundle(folder / "spec.bundle") as bundle:
        assert held <= {member.sha256 for member in bundle.manifest.members}


def test_the_fastest_that_came_back_lead_the_next_bundle(folder: Path) -> None:
    _, shipped = build_ahead(folder, 4, "cuda:h200")
    measure(folder / "spec.bundle", folder / "measured", site("h200"))
    mlsearch(folder, "bundle", "import", "matmul.mlir", "measured")
    task, next_ones = build_ahead(folder, 6, "cuda:h200")
    assert task["known"] == 3
    # The first is IREE's own choice: the same artifact as the untuned build, which takes longest here.
    assert next_ones[:2] == shipped[1:3] == [each["key"] for each in task["carried"]]
    assert not set(next_ones[2:]) & set(shipped)

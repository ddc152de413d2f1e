"""`mlsearch tune --no-device`: what one run has learned, the next one knows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_bundle_for_cuda import MATMUL, measure, site

from mlsearch.bundle.archive import open_bundle


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
    assert next_ones[:2] == shipped[:2] == [each["key"] for each in task["carried"]]
    assert not set(next_ones[2:]) & set(shipped)

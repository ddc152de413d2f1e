"""`mlsearch records` on a real store in a temporary folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from report_values import AGREES

from mlsearch.candidate import BuildFailed, Candidate, Measured, Provenance, Record
from mlsearch.cli.main import command_line
from mlsearch.cli.options import DEFAULT_STORE
from mlsearch.records.store import DEFAULT_PATH, Store


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command_line, ["records", *arguments])


def record(tile: int, workload: str = "w1") -> Record:
    outcome = (
        Measured((4330.0,), (199_000.0,), AGREES, False) if tile else BuildFailed("compile", "it\nbroke", None, (), 0.5)
    )
    return Record(
        Candidate.of("cpu/x", "d", {"tile_m": tile}),
        outcome,
        0.5,
        None,
        Provenance(workload, "target", "3.13.0", "3.13.0", "0.1.0", 0, 1, "2026-01-01T00:00:00Z"),
    )


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    opened = Store.open("s.journal")
    first, second = opened.study("first"), opened.study("second")
    opened.add(first, record(8))
    opened.add(first, record(0))
    opened.add(second, record(16, "w2"))
    return "s.journal"


def ids(shown: str) -> list[str]:
    return [line.split()[0] for line in shown.splitlines() if "cpu/x" in line]


def test_the_default_store_is_the_one_of_the_library() -> None:
    assert Path(DEFAULT_STORE) == DEFAULT_PATH


def test_list_shows_a_line_for_each_record_by_study(store: str) -> None:
    shown = run("list", "--store", store).stdout
    assert [line for line in shown.splitlines() if line.startswith("study")] == [
        "study first",
        "study second",
    ]
    assert len(ids(shown)) == 3
    assert "4.33 ms" in shown
    assert "BuildFailed" in shown
    assert shown.endswith("3 records\n")


@pytest.mark.parametrize(("option", "value", "count"), [("--study", "first", 2), ("--workload", "w2", 1)])
def test_list_filters(store: str, option: str, value: str, count: int) -> None:
    assert len(ids(run("list", "--store", store, option, value).stdout)) == count


def test_show_prints_one_record_as_json(store: str) -> None:
    shown = ids(run("list", "--store", store, "--study", "second").stdout)
    told = json.loads(run("show", shown[0], "--store", store).stdout)
    assert told["study"] == "second"
    assert told["id"].startswith(shown[0])
    assert told["record"]["candidate"]["assignment"] == [["tile_m", 16]]


def test_show_refuses_an_id_that_fits_none_or_several(store: str) -> None:
    result = run("show", "xyz", "--store", store)
    assert (result.exit_code, result.stderr[:28]) == (1, "mlsearch: error: no record x")
    result = run("show", "", "--store", store)
    assert result.exit_code == 1
    assert "fits 3 records" in result.stderr


def test_what_is_exported_can_be_imported_elsewhere_once(store: str) -> None:
    assert run("export", "out.jsonl", "--store", store).stdout == "exported 3 records\n"
    assert run("import", "out.jsonl", "--store", "new.journal").stdout == "imported 3 records, 0 known already\n"
    again = run("import", "out.jsonl", "--store", "new.journal")
    assert again.stdout == "imported 0 records, 3 known already\n"
    assert sorted(ids(run("list", "--store", "new.journal").stdout)) == sorted(
        ids(run("list", "--store", store).stdout)
    )


def test_export_to_stdout_is_pure(store: str) -> None:
    result = run("export", "-", "--store", store)
    assert all(json.loads(line) for line in result.stdout.splitlines())
    assert result.stderr == "exported 3 records\n"


@pytest.mark.parametrize("command", ["list", "show x", "export -"])
def test_a_mistyped_store_is_an_error_and_is_not_made(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*command.split(), "--store", "gone.journal")
    assert result.exit_code == 1
    assert result.stderr == "mlsearch: error: no record store gone.journal; name one with --store\n"
    assert list(tmp_path.iterdir()) == []


def test_import_names_the_file_and_line_that_is_wrong(store: str) -> None:
    Path("bad.jsonl").write_text('{"mlsearch_records": 1}\nnonsense\n')
    result = run("import", "bad.jsonl", "--store", store)
    assert result.exit_code == 1
    assert result.stderr.startswith("mlsearch: error: bad.jsonl: line 2: ")


def test_import_of_a_missing_file_is_one_line(store: str) -> None:
    result = run("import", "gone.jsonl", "--store", store)
    assert (result.exit_code, result.stderr) == (
        1,
        "mlsearch: error: can't read gone.jsonl: No such file or directory\n",
    )

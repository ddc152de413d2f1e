"""Records to JSON lines and back."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from mlsearch.errors import StoreError
from mlsearch.records.exchange import Imported, export_records, import_records
from mlsearch.records.store import Store
from mlsearch.testing.records_contract import EVERY_OUTCOME, put, record_of


@pytest.fixture
def exported(tmp_path: Path) -> str:
    """One record of each outcome in two studies."""
    store = Store.open(tmp_path / "from.journal")
    for number, outcome in enumerate(EVERY_OUTCOME):
        put(store.study(f"s{number % 2}"), record_of(outcome, seed=number))
    stream = io.StringIO()
    assert export_records(store.records(), stream) == len(EVERY_OUTCOME)
    return stream.getvalue()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "to.journal")


def test_what_was_exported_is_imported_equal(exported: str, store: Store) -> None:
    assert import_records(store, io.StringIO(exported)) == Imported(len(EVERY_OUTCOME), 0)
    found = sorted((stored.record for stored in store.records()), key=lambda record: record.provenance.seed)
    assert [record.outcome for record in found] == list(EVERY_OUTCOME)
    assert store.study_names() == ["imported:s0", "imported:s1"]


def test_an_imported_record_is_found_by_content(exported: str, store: Store) -> None:
    import_records(store, io.StringIO(exported))
    assert store.find(record_of().candidate.key, "w" * 16, "t" * 16, "3.13.0", 1) is not None


def test_importing_again_adds_nothing(exported: str, store: Store) -> None:
    import_records(store, io.StringIO(exported))
    assert import_records(store, io.StringIO(exported)) == Imported(0, len(EVERY_OUTCOME))
    again = io.StringIO()
    export_records(store.records(), again)
    assert import_records(store, io.StringIO(again.getvalue())) == Imported(0, len(EVERY_OUTCOME))


def test_a_record_that_the_file_holds_twice_is_added_once(exported: str, store: Store) -> None:
    twice = exported + exported.splitlines()[1] + "\n"
    assert import_records(store, io.StringIO(twice)) == Imported(len(EVERY_OUTCOME), 1)


def test_each_line_stands_alone(exported: str, store: Store) -> None:
    lines = exported.splitlines()
    assert import_records(store, io.StringIO(f"{lines[0]}\n\n{lines[5]}\n")) == Imported(1, 0)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 4: not valid JSON"),
        ("[]", "line 4: not an exported record"),
        ('{"study": "s", "record": {"schema": 1}}', "line 4: a record can't be read"),
        ('{"study": "s", "record": {"schema": 99}}', r"line 4: .*newer mlsearch"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(exported: str, store: Store, line: str, message: str) -> None:
    lines = exported.splitlines()
    with pytest.raises(StoreError, match=message):
        import_records(store, io.StringIO("\n".join([*lines[:3], line, *lines[3:]])))
    assert list(store.records()) == []
    assert store.study_names() == []


@pytest.mark.parametrize("text", ["", "\n", "tile_m\n", '{"records": 1}\n', "[1]\n", '{"mlsearch_records": 0}\n'])
def test_a_file_without_the_header_is_refused(store: Store, text: str) -> None:
    with pytest.raises(StoreError, match="line 1 is not"):
        import_records(store, io.StringIO(text))


def test_a_newer_format_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"newer mlsearch \(format 2\)"):
        import_records(store, io.StringIO('{"mlsearch_records": 2}\n'))


def test_a_binary_file_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"\xff\xd8\xff\xe0")
    with (tmp_path / "x").open(encoding="utf-8") as stream, pytest.raises(StoreError, match="not UTF-8"):
        import_records(store, stream)


def test_the_file_is_strict_json_in_every_line(exported: str) -> None:
    for line in exported.splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

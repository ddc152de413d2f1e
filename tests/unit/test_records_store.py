"""The store on a journal and on SQLite against the contract, and what is particular to each."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsearch.errors import StoreError
from mlsearch.records.store import Store
from mlsearch.testing.records_contract import StoreContract


class TestJournal(StoreContract):
    def location(self, folder: Path) -> str:
        return str(folder / "new folder" / "store.journal")


class TestSqlite(StoreContract):
    def location(self, folder: Path) -> str:
        return f"sqlite:///{folder}/store.db"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://me:secret@nowhere/db", r"postgresql://me:\*\*\*@nowhere/db needs a database driver"),
        ("sqlite:////no/such/folder/x.db", "cannot open record store sqlite:////no/such/folder/x.db: "),
        ("nosuchdb://x", "nosuchdb://x"),
        ("://", "not a database URL"),
    ],
)
def test_a_database_that_cannot_be_opened_is_told_in_one_line_without_a_password(url: str, message: str) -> None:
    with pytest.raises(StoreError, match=message) as raised:
        Store.open(url)
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_file_that_is_no_database_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"\xff\xd8\xff\xe0 not a database at all" * 100)
    with pytest.raises(StoreError, match="cannot open record store sqlite"):
        Store.open(f"sqlite:///{tmp_path}/x.db")

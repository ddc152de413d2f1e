"""The journal file: torn lines are cut, foreign files are left alone, a full disk loses nothing."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from threading import Thread

import pytest

from mlsearch.errors import StoreError
from mlsearch.records import journal
from mlsearch.records.store import Store
from mlsearch.testing.records_contract import put, record_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store with three records."""
    path = tmp_path / "store.journal"
    study = Store.open(path).study("s")
    for seed in range(3):
        put(study, record_of(seed=seed))
    return path


def seeds(path: Path) -> list[int]:
    return [stored.record.provenance.seed for stored in Store.open(path).records()]


def test_a_store_cut_at_any_byte_opens_with_what_was_complete_and_takes_more(path: Path) -> None:
    whole = path.read_bytes()
    last_trial = whole.rindex(b'{"op_code":4')
    for end in (*range(last_trial, len(whole), 97), len(whole) - 1):
        path.write_bytes(whole[:end])
        torn = end - (whole.rindex(b"\n", 0, end) + 1)
        store = Store.open(path)
        assert store.cut_bytes == torn
        put(store.study("s"), record_of(seed=9))
        assert [seed for seed in seeds(path) if seed in (0, 1, 9)] == [0, 1, 9]


def test_a_single_torn_line_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "store.journal"
    for torn in (b"{", b'{"op_code":0,"worker_id":"x-1","stu'):
        path.write_bytes(torn)
        assert Store.open(path).cut_bytes == len(torn)
        assert path.read_bytes() == b""


def test_zeros_behind_the_last_line_are_cut(path: Path) -> None:
    # What a file system may leave after a power cut.
    with path.open("ab") as file:
        file.write(bytes(4096))
    assert seeds(path) == [0, 1, 2]


def test_a_line_torn_by_another_process_is_cut_before_the_next_append(path: Path) -> None:
    study = Store.open(path).study("s")
    with path.open("ab") as file:
        file.write(b'{"op_code":4,"worker_id":"dead-1","study_id":0,"da')
    put(study, record_of(seed=3))
    assert seeds(path) == [0, 1, 2, 3]


FOREIGN = {
    "JPEG": b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(range(256)) * 20,
    "text": b"tile_m = 8\n",
    "JSON": b'{"version": 1}',
    "JSON lines": b'{"version": 1}\n{"x": 2}\n',
    "blank line": b"\n",
    "SQLite": b"SQLite format 3\x00" + bytes(100),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_a_file_that_is_not_ours_is_refused_in_one_line_and_left_as_it_was(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(FOREIGN[kind])
    with pytest.raises(StoreError, match="is not a record store") as raised:
        Store.open(path)
    assert path.read_bytes() == FOREIGN[kind]
    assert "\n" not in str(raised.value)


def test_an_sqlite_file_is_told_how_to_be_opened(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(FOREIGN["SQLite"])
    with pytest.raises(StoreError, match=r"sqlite:///.*/x\.db"):
        Store.open(tmp_path / "x.db")


def test_a_folder_is_refused_and_one_that_cannot_be_made_too(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="is a folder; name a file"):
        Store.open(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot open record store"):
        Store.open(tmp_path / "file" / "store.journal")


def test_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a regular file"):
        Store.open("/dev/null")


def test_damage_in_the_middle_is_told_with_its_line_and_nothing_is_cut(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:4], b"#" * 9 + b"\n", *lines[5:]])
    for end in (len(damaged), len(damaged) - 5):
        path.write_bytes(damaged[:end])
        with pytest.raises(StoreError, match="is damaged: line 5 is no journal entry"):
            Store.open(path)
        assert path.read_bytes() == damaged[:end]


def test_an_entry_that_does_not_fit_is_told(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"op_code":77,"worker_id":"x"}\n')
    with pytest.raises(StoreError, match="is damaged: an entry does not fit"):
        Store.open(path)


def test_a_full_disk_is_told_and_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Store.open(path).study("s")
    before = path.read_bytes()
    write = os.write

    def half_a_line(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, data[: len(data) // 2])

    with monkeypatch.context() as patch:
        patch.setattr(journal.os, "write", half_a_line)
        with pytest.raises(StoreError, match="no space left to write"):
            put(study, record_of(seed=3))
    assert path.read_bytes() == before
    put(study, record_of(seed=4))
    assert seeds(path) == [0, 1, 2, 4]


def test_an_append_waits_for_the_lock(path: Path) -> None:
    study = Store.open(path).study("s")
    append = Thread(target=put, args=(study, record_of(seed=3)))
    with path.open("rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        before = path.read_bytes()
        append.start()
        append.join(timeout=0.2)
        assert append.is_alive()
        assert path.read_bytes() == before
    append.join(timeout=10)
    assert seeds(path) == [0, 1, 2, 3]


def test_two_stores_of_one_process_take_turns(path: Path) -> None:
    studies = [Store.open(path).study("s") for _ in range(2)]
    for seed in range(10, 14):
        put(studies[seed % 2], record_of(seed=seed))
    assert seeds(path) == [0, 1, 2, 10, 11, 12, 13]


def test_nothing_but_the_journal_is_left_in_the_folder(path: Path) -> None:
    assert list(path.parent.iterdir()) == [path]

"""Files are either the old ones or complete new ones."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from mlsearch import files
from mlsearch.errors import MlsearchError
from mlsearch.files import check_writable, draft_of, write_atomically


def test_a_file_is_written_whole_and_leaves_nothing_else(tmp_path: Path) -> None:
    write_atomically(tmp_path / "x", "µ\n")
    assert (tmp_path / "x").read_text(encoding="utf-8") == "µ\n"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_the_old_file_stays_when_the_new_one_can_not_be_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x"
    path.write_text("old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(MlsearchError, match=r"can't write .*x: No space left"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [each.name for each in tmp_path.iterdir()] == ["x"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    check_writable(pipe)
    write_atomically(pipe, "through")
    reader.join(timeout=10)
    assert read == ["through"]


@pytest.mark.parametrize(("name", "words"), [("gone/x", "no folder"), (".", "is a folder")])
def test_what_can_not_be_written_is_told_before_and_after(name: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(MlsearchError, match=words):
        check_writable(tmp_path / name)
    with pytest.raises(MlsearchError, match="can't write"):
        write_atomically(tmp_path / name, "")


def test_trying_leaves_a_file_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    check_writable(tmp_path / "x")
    check_writable(tmp_path / "new")
    assert (tmp_path / "x").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("name", ["n" * 240, "長" * 85], ids=["of letters", "of bytes"])
def test_a_very_long_name_is_written_like_any_other(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    check_writable(path)
    write_atomically(path, "x")
    assert path.read_text() == "x"


def test_a_pipe_or_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="not a regular file"), draft_of(pipe) as draft:
        draft.write_bytes(b"x")
    with pytest.raises(MlsearchError, match="not a regular file"):
        check_writable(pipe, only_files=True)
    assert pipe.is_fifo()
    assert list(tmp_path.iterdir()) == [pipe]


def test_what_a_link_names_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    with draft_of(tmp_path / "link") as draft:
        draft.write_bytes(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"new"


def test_a_file_is_on_disk_before_it_takes_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append((os.fstat(descriptor).st_size, path.exists())))
    path = tmp_path / "x"
    with draft_of(path) as draft:
        draft.write_bytes(b"new")
    assert synced == [(3, False)]


def test_a_disk_is_full_where_hardly_anything_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not files.is_full(tmp_path)
    assert not files.is_full(tmp_path / "gone")
    monkeypatch.setattr(files.shutil, "disk_usage", lambda folder: SimpleNamespace(free=4096))
    assert files.is_full(tmp_path)

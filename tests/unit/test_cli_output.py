"""Strict JSON and atomic files."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from mlsearch.cli.main import command_line
from mlsearch.cli.output import check_writable, json_text, write_atomically
from mlsearch.errors import MlsearchError


def strict(text: str) -> object:
    def refuse(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_json_has_no_number_for_becomes_null() -> None:
    value = {"a": math.nan, "b": (math.inf, -math.inf, 1.5), "c": np.float32("nan")}
    assert strict(json_text(value)) == {"a": None, "b": [None, None, 1.5], "c": None}


def test_the_values_of_a_summary_have_a_json_form() -> None:
    value = {"n": np.int64(3), "t": np.float64(0.5), "p": Path("a/b"), "f": True, "none": None, 7: "key"}
    assert strict(json_text(value)) == {"n": 3, "t": 0.5, "p": "a/b", "f": True, "none": None, "7": "key"}


def test_a_file_name_that_is_not_text_does_not_break_the_json() -> None:
    name = os.fsdecode(b"caf\xe9.mlir")
    assert strict(json_text({"payload": name})) == {"payload": "caf?.mlir"}


def test_an_unknown_type_is_a_mistake_of_ours() -> None:
    with pytest.raises(TypeError, match="no JSON for a set"):
        json_text({1, 2})


def test_a_file_is_replaced_and_no_draft_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_atomically(path, "half a text \udc80")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "out", "text")
    (tmp_path / "usual").write_text("text")
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("out", "usual")}
    assert len(modes) == 1


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "place")
    write_atomically(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "place").read_text() == "text"


def test_a_device_is_written_to_and_not_replaced() -> None:
    check_writable("/dev/null")
    write_atomically(Path("/dev/null"), "text")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    check_writable(tmp_path / "out.json")
    check_writable(None)
    check_writable("-")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(MlsearchError, match=r"no folder .*gone"):
        check_writable(tmp_path / "gone" / "out.json")


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(MlsearchError, match="it is a folder"):
        check_writable(tmp_path)


def test_a_file_in_place_of_the_folder_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MlsearchError, match="can't write"):
        check_writable(tmp_path / "file" / "out.json")


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "p.mlir", "--spec", "s.mlir", "--json", "s.mlir"],
        ["verify", "p.mlir", "--spec", "s.mlir", "--json", "./p.mlir"],
        ["inspect", "p.mlir", "--json", "p.mlir"],
        ["space", "p.mlir", "--task", "t0", "--json", "p.mlir"],
        ["tune", "p.mlir", "--store", "st.journal", "-o", "st.journal"],
        ["tune", "p.mlir", "--store", "st.journal", "--json", "st.journal"],
        ["records", "export", "st.journal", "--store", "st.journal"],
    ],
)
def test_no_output_overwrites_what_the_command_reads(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("p.mlir", "s.mlir", "st.journal"):
        (tmp_path / name).write_text(name)
    done = CliRunner().invoke(command_line, arguments)
    assert done.exit_code == 2
    assert "would overwrite" in done.output
    assert [(tmp_path / name).read_text() for name in ("p.mlir", "s.mlir", "st.journal")] == [
        "p.mlir",
        "s.mlir",
        "st.journal",
    ]

"""A spec's text: readable, honest about what was measured, and one comment whatever the names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from spec_time_functions import elementwise, matmul, read
from test_transform_library import entry

from mlsearch.candidate import Candidate
from mlsearch.errors import SpecError
from mlsearch.ir.library import EMPTY_LIBRARY
from mlsearch.ir.module import new_context, parse
from mlsearch.spec import TUNING_SPEC_FLAG, Application, SpecEntry, read_spec, spec_text
from mlsearch.summary import Speedup
from mlsearch.target import resolve
from mlsearch.toolchain import LIBRARY_FLAG

TARGET = resolve("llvm-cpu", 1)
SPEEDUP = Speedup(100.0, 40.0, 2.5, (2.4, 2.6))


def spec_entry(name: str, text: str, *, is_strategy: bool = False) -> SpecEntry:
    candidate = Candidate.of("cpu/x", "digest", {"tile_m": 8, "peel": "true"})
    return SpecEntry(
        "t0", "label", ("main_dispatch_0",), 3, candidate, SPEEDUP, entry(name, read(text), is_strategy=is_strategy)
    )


def header(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("//")]


def test_the_header_says_what_was_tuned_when_with_what_and_how_much_faster() -> None:
    text = spec_text([spec_entry("mm", matmul())], Path("some/payload.mlir"), TARGET, "2026-01-02T03:04:05Z")
    shown = "\n".join(header(text))
    for words in (
        "2026-01-02T03:04:05Z",
        "IREE 3.13",
        "payload.mlir",
        TARGET.fingerprint,
        "mm  (3 site(s))",
        "100.0 us -> 40.0 us, 2.50x faster (95 % interval 2.40 to 2.60)",
        "cpu/x: peel=true tile_m=8",
        " ".join(TARGET.compile_flags),
        LIBRARY_FLAG,
        f"{TUNING_SPEC_FLAG}=SPEC does the same",
    ):
        assert words in shown
    parse(text, new_context())


def test_a_strategy_needs_the_library_flag_and_the_header_says_so() -> None:
    entries = [spec_entry("mm", matmul()), spec_entry("ew", elementwise(), is_strategy=True)]
    text = spec_text(entries, Path("p.mlir"), TARGET, "now")
    assert "does the same" not in text
    assert "IREE does not find behind" in text
    assert "tuning_spec" not in "\n".join(line for line in text.splitlines() if not line.startswith("//"))


def test_an_empty_spec_says_so_and_changes_nothing() -> None:
    text = spec_text([], Path("p.mlir"), TARGET, "now")
    assert text.endswith(EMPTY_LIBRARY)
    assert "changes nothing" in "\n".join(header(text))


def test_a_name_with_line_breaks_stays_within_the_comment() -> None:
    text = spec_text([], Path("a\nmodule {\n.mlir"), TARGET, "now")
    assert str(parse(text, new_context())) == str(parse(EMPTY_LIBRARY, new_context()))


def test_entries_that_apply_nowhere_are_known() -> None:
    found = Application(("a", "b", "c"), {"b": ("f",)})
    assert found.unused == ("a", "c")


def test_a_spec_that_can_not_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"gone\.mlir"):
        read_spec(tmp_path / "gone.mlir")
    binary = tmp_path / "x.mlir"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(SpecError, match=r"x\.mlir"):
        read_spec(binary)


def test_a_machines_name_can_not_add_to_the_spec() -> None:
    named = replace(TARGET, hardware=replace(TARGET.hardware, name="CPU\nmodule {}\r#evil = 1 : i64\x0b"))
    text = spec_text([], Path("p.mlir"), named, "now")
    assert str(parse(text, new_context())) == str(parse(EMPTY_LIBRARY, new_context()))
    assert all(line.startswith("//") or line in EMPTY_LIBRARY for line in text.splitlines())

"""Every sample is a payload that the compiler accepts, and says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlsearch.payload import load_payload
from mlsearch.target import resolve

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.mlir"))


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_a_sample_says_what_it_is_and_can_be_run(sample: Path, tmp_path: Path) -> None:
    first, second = sample.read_text().splitlines()[:2]
    assert first.startswith("// ") and first.endswith(".")
    assert not second.startswith("//")
    functions = load_payload(sample, resolve("llvm-cpu", 1), tmp_path).functions
    assert functions and [function.problem for function in functions if function.signature is None] == []

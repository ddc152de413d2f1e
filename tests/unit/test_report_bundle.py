"""What an import tells to do next."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test_spec_text import matmul, spec_entry

from mlsearch.bundle.intake import Taken
from mlsearch.bundle.proven import ProvenSpec
from mlsearch.report.bundle import next_steps

TAKEN = Taken((), "local-task (cpu) of h", "llvm-cpu", "llvm-cpu", "warm", 1, None)
SPEC = ProvenSpec(Path("my spec.mlir"), (spec_entry("mm", matmul()),), ())


def test_the_next_bundle_is_for_the_studies_that_the_times_are_in() -> None:
    [line] = next_steps(replace(TAKEN, threads=2, cache="cold"), ("a b.mlir", "--study", "x"))
    assert line.endswith("export 'a b.mlir' --study x --threads 2 --cache cold --trials 64 -o NEXT.bundle")


def test_a_spec_with_entries_is_to_be_timed_as_a_whole_where_the_device_is() -> None:
    first, _ = next_steps(replace(TAKEN, target="cuda:h200", exported_for="cuda:h200", spec=SPEC), ("p.mlir",))
    assert first.endswith("mlsearch verify p.mlir --spec 'my spec.mlir' --target cuda:h200")
    assert len(list(next_steps(replace(TAKEN, spec=replace(SPEC, entries=())), ("p.mlir",)))) == 1

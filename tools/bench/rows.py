"""What was measured of a row, as a value and as a file: finished rows are kept, so that a killed run goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench import peak
from bench.measure import Column
from mlsearch.candidate import Numerics
from mlsearch.cli.output import json_text
from mlsearch.files import write_atomically
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup


@dataclass(frozen=True)
class Comparison:
    """A row, all its columns from the same interleaved rounds."""

    row: str
    columns: tuple[Column, ...]
    measured_at: str
    flops: int | None = None
    peak_us: tuple[float, ...] = ()
    """One core's time for `peak.FLOPS`, in the same rounds."""
    tuning: Mapping[str, str] = field(default_factory=dict)
    """What the search says of itself."""

    def __getitem__(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def ratio(self, slow: str, fast: str) -> Speedup | None:
        """Time of `slow` over that of `fast`, paired by round; None where one of them was not measured."""
        a, b = self[slow], self[fast]
        if a is None or b is None or not a.samples_us or not b.samples_us:
            return None
        return paired_speedup(a.samples_us, b.samples_us)

    def fastest(self, names: Sequence[str]) -> str | None:
        """Of these columns the one with the least median; None where none was measured."""
        present = [column for column in self.columns if column.name in names and column.samples_us]
        return min(present, key=lambda column: np.median(column.samples_us)).name if present else None

    @property
    def peak_gflops(self) -> float | None:
        """10^9 FLOPs per second of one core, median."""
        return peak.FLOPS / float(np.median(self.peak_us)) / 1000 if self.peak_us else None

    def share_of_peak(self, name: str, cores: int) -> float | None:
        """FLOPs per second over what so many cores do at most, paired by round; 1 is the peak."""
        column = self[name]
        if column is None or not column.samples_us or not self.peak_us or self.flops is None:
            return None
        times = np.asarray(column.samples_us) / np.asarray(self.peak_us)
        return float(np.median(self.flops / peak.FLOPS / cores / times))


@dataclass(frozen=True)
class RowFailed:
    """Not kept: the next run tries again."""

    row: str
    reason: str


class Ledger:
    """A folder with a file for each finished row under each setting that it was measured in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, row: str, key: str) -> Comparison | None:
        path = self._path(row, key)
        return decode(json.loads(path.read_text())) if path.is_file() else None

    def put(self, comparison: Comparison, key: str) -> None:
        """Raises MlsearchError if it can't be written."""
        self._folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path(comparison.row, key), json_text(asdict(comparison)))

    def _path(self, row: str, key: str) -> Path:
        return self._folder / f"{row}-{key}.json"


def decode(value: Mapping[str, Any]) -> Comparison:
    """The inverse of `asdict`."""
    columns = (
        Column(
            name=column["name"],
            samples_us=tuple(column["samples_us"]),
            numerics=Numerics(**_with_infinities(column["numerics"])) if column["numerics"] else None,
            facts=column["facts"],
            problem=column["problem"],
        )
        for column in value["columns"]
    )
    return Comparison(**{**value, "columns": tuple(columns), "peak_us": tuple(value["peak_us"])})


def _with_infinities(numerics: Mapping[str, Any]) -> dict[str, Any]:
    """JSON has no infinity, which is what the error of an output with a misplaced NaN is."""
    return {name: float("inf") if each is None else each for name, each in numerics.items()}

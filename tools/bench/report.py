"""A comparison as values, as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.measure import NUMPY, Column
from mlsearch.report.text import ABSENT, interval_text, speedup_text, time_text
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup

UNTUNED, TUNED = "IREE untuned", "IREE tuned"


@dataclass(frozen=True)
class Setting:
    """What the numbers depend on besides the programs."""

    date: str
    cpu: str
    threads: int
    rounds: int
    trials: int | None
    """Per task; None where the specs were there already."""
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Comparison:
    """One sample, all its columns from the same interleaved rounds."""

    sample: str
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)

    def ratio(self, slow: str, fast: str) -> Speedup | None:
        """Time of `slow` over that of `fast`, paired by round; None where one of them was not measured."""
        a, b = self[slow], self[fast]
        if a is None or b is None or not a.samples_us or not b.samples_us:
            return None
        return paired_speedup(a.samples_us, b.samples_us)


def spread(samples_us: Sequence[float]) -> tuple[float, float, float]:
    """Median, 10th and 90th percentile."""
    low, middle, high = np.percentile(np.asarray(samples_us, dtype=np.float64), (10, 50, 90))
    return float(middle), float(low), float(high)


def to_json(setting: Setting, comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """All samples, and what the Markdown says of them. Times in microseconds."""
    return {"setting": asdict(setting), "samples": [_sample_json(comparison) for comparison in comparisons]}


def _sample_json(comparison: Comparison) -> dict[str, Any]:
    columns = {}
    for column in comparison.columns:
        columns[column.name] = asdict(column)
        if column.samples_us:
            columns[column.name] |= dict(zip(("median_us", "p10_us", "p90_us"), spread(column.samples_us), strict=True))
    ratios = {"tuned_vs_untuned": comparison.ratio(UNTUNED, TUNED), "tuned_vs_numpy": comparison.ratio(NUMPY, TUNED)}
    return {
        "sample": comparison.sample,
        "columns": columns,
        **{name: asdict(ratio) if ratio else None for name, ratio in ratios.items()},
    }


def to_markdown(setting: Setting, comparisons: Sequence[Comparison]) -> str:
    found = dict.fromkeys(column.name for comparison in comparisons for column in comparison.columns)
    names = sorted(found, key=lambda name: name != NUMPY)
    header = ["sample", *names, "tuned vs untuned", "95 %", "tuned vs NumPy", "95 %"]
    rows = [[comparison.sample, *_cells(comparison, names)] for comparison in comparisons]
    lines = [
        "# On this CPU: untuned, tuned, and NumPy",
        "",
        "Written by `tools/bench_cpu.py`. Medians, with the 10th and 90th percentile below them. All programs of a row",
        "ran in turns, so the ratios hold; times of different rows, and of other runs, are not comparable.",
        "",
        *_setting_lines(setting, comparisons),
        "",
        _row(header),
        _row(["---", *["---:"] * (len(header) - 1)]),
        *(_row(row) for row in rows),
        "",
        *_remarks(comparisons),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _cells(comparison: Comparison, names: Sequence[str]) -> list[str]:
    cells = []
    for name in names:
        column = comparison[name]
        if column is None or not column.samples_us:
            cells.append(ABSENT)
            continue
        middle, low, high = spread(column.samples_us)
        cells.append(f"{time_text(middle)}<br>{time_text(low)} to {time_text(high)}")
    for other in (UNTUNED, NUMPY):
        ratio = comparison.ratio(other, TUNED)
        cells += [speedup_text(ratio.speedup), interval_text(ratio.ci95)] if ratio else [ABSENT, ABSENT]
    return cells


def _setting_lines(setting: Setting, comparisons: Sequence[Comparison]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in setting.versions.items())
    blas = next((column.facts for each in comparisons if (column := each[NUMPY]) and column.facts), {})
    kernel = (
        f"{blas['internal_api']} {blas['version']}, kernel {blas['architecture']}, {blas['num_threads']} thread(s)"
        if blas
        else "not measured"
    )
    tuning = "from existing specs" if setting.trials is None else f"{setting.trials} trials per task"
    return [
        f"- {setting.date}, {setting.cpu}, {setting.threads} thread(s), {setting.rounds} rounds",
        f"- {versions}",
        f"- NumPy as in `tools/bench/references.py`, its BLAS: {kernel}",
        f"- tuned: {tuning}, applied by plain `iree-compile`",
    ]


def _remarks(comparisons: Sequence[Comparison]) -> list[str]:
    remarks = []
    for comparison in comparisons:
        for column in comparison.columns:
            if column.problem:
                remarks.append(f"- {comparison.sample}, {column.name}: {column.problem}")
            if column.numerics is not None and not column.numerics.agrees:
                remarks.append(
                    f"- {comparison.sample}, {column.name}: **wrong numbers**, relative error"
                    f" {column.numerics.max_rel_error:.2g}, tolerance {column.numerics.tolerance:.2g}"
                )
    return remarks or ["All numbers agree."]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

"""How much of the speedup does `--budget quick` bring? Two specs per row, measured in the same rounds.

The measure is the share of the log-speedup: of a row that a long search makes 4x faster, 2x is half. Over all
rows logs are summed, so a row counts by how much there is to gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from bench.report import UNTUNED, Setting
from bench.rows import Comparison, RowFailed
from mlsearch.report.text import ABSENT, interval_text, share_text, span_text, speedup_text
from mlsearch.statistics import median_interval

SMALL, LARGE = "quick", "long"
TARGET = 0.7


@dataclass(frozen=True)
class Share:
    share: float
    ci95: tuple[float, float]
    """Of the measurements alone: what another seed would find is not in it."""


def column_of(budget: str) -> str:
    return f"IREE tuned, {budget} search"


def share_of_log_speedup(comparisons: Sequence[Comparison]) -> Share | None:
    """Sum over rows of log(untuned / small) over that of log(untuned / large), round by round.

    None without rows, or where the long search brings nothing that could be shared.
    """
    if not comparisons:
        return None
    rounds = min(len(_times(each, UNTUNED)) for each in comparisons)
    small, large = (
        np.sum(
            [np.log(_times(each, UNTUNED)[:rounds] / _times(each, column_of(budget))[:rounds]) for each in comparisons],
            0,
        )
        for budget in (SMALL, LARGE)
    )
    if not np.all(large > 0):
        return None
    shares = small / large
    return Share(float(np.median(shares)), median_interval(shares.tolist()))


def to_json(setting: Setting, comparisons: Sequence[Comparison], failed: Sequence[RowFailed]) -> dict[str, Any]:
    """All samples, and what the Markdown says of them. Times in microseconds."""
    share = share_of_log_speedup(comparisons)
    rows = []
    for each in comparisons:
        ratios = {budget: each.ratio(UNTUNED, column_of(budget)) for budget in (SMALL, LARGE)}
        rows.append(
            asdict(each) | {"speedups": {name: asdict(ratio) if ratio else None for name, ratio in ratios.items()}}
        )
    return {
        "setting": asdict(setting),
        "share_of_log_speedup": asdict(share) if share else None,
        "target": TARGET,
        "rows": rows,
        "failed": [asdict(each) for each in failed],
    }


def to_markdown(setting: Setting, comparisons: Sequence[Comparison], failed: Sequence[RowFailed]) -> str:
    share = share_of_log_speedup(comparisons)
    if share is None:
        verdict = "The long search brings no speedup here that the quick one could have a share of."
    else:
        verdict = (
            f"`--budget {SMALL}` brings **{share_text(share.share)}** of the log-speedup of"
            f" `mlsearch tune {setting.budget}` (95 % interval {share_text(share.ci95[0])} to"
            f" {share_text(share.ci95[1])}, of the measurements alone); the aim is {share_text(TARGET)}."
        )
    versions = ", ".join(f"{name} {version}" for name, version in setting.versions.items())
    lines = [
        "# How much of the speedup a small budget brings",
        "",
        "Written by `tools/bench_cpu.py --compare-budgets`. One search per row and budget, each with a store of its",
        "own; both results and the untuned build ran in turns. Speedups are against the untuned build, with the 95 %",
        "interval of the median ratio.",
        "",
        f"- {setting.date}, {setting.cpu}, {setting.threads} thread(s), up to {setting.rounds} rounds",
        f"- {versions}",
        "",
        verdict,
        "",
        f"| row | {SMALL} | {LARGE} | share of the log-speedup | tuning, {SMALL} | tuning, {LARGE} |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for each in comparisons:
        own = share_of_log_speedup([each])
        cells = [each.row]
        for budget in (SMALL, LARGE):
            ratio = each.ratio(UNTUNED, column_of(budget))
            cells.append(f"{speedup_text(ratio.speedup)} {interval_text(ratio.ci95)}" if ratio else ABSENT)
        cells.append(share_text(own.share) if own else ABSENT)
        cells += [span_text(float(each.tuning[f"{budget}_tuning_s"])) for budget in (SMALL, LARGE)]
        lines.append(f"| {' | '.join(cells)} |")
    remarks = [f"- {each.row}: **not measured**, {each.reason}" for each in failed]
    for each in comparisons:
        for column in each.columns:
            if column.numerics is not None and not column.numerics.agrees:
                remarks.append(f"- {each.row}, {column.name}: **wrong numbers**")
    return "\n".join([*lines, "", *remarks]).rstrip() + "\n"


def _times(comparison: Comparison, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    column = comparison[name]
    assert column is not None, name
    return np.asarray(column.samples_us, dtype=np.float64)

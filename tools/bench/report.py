"""A comparison as Markdown and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

import numpy as np

from bench.measure import MIN_SAMPLE_US
from bench.rows import Comparison, RowFailed
from mlsearch.report.text import ABSENT, interval_text, share_text, span_text, speedup_text, time_text

NUMPY, UNTUNED, TUNED = "NumPy", "IREE untuned", "IREE tuned"
TORCH, TORCH_PREPACKED, ONNX_RUNTIME = "PyTorch", "PyTorch prepacked", "ONNX Runtime"
SWITCHES: Mapping[str, tuple[str, ...]] = {
    UNTUNED: (),
    "IREE -O3": ("--iree-opt-level=O3",),
    "IREE data tiling": ("--iree-opt-data-tiling",),
    "IREE inner tiled": ("--iree-opt-data-tiling", "--iree-llvmcpu-enable-inner-tiled"),
}
"""What IREE does without a spec: by default, and with its own switches for speed."""
BEST_SWITCH = "IREE's fastest switch"
_BUSY = 1.25
"""90th over 10th percentile of one program's times; at most 1.08 in six rows on an idle Zen 5 machine."""
_RIVALS = (UNTUNED, BEST_SWITCH, NUMPY, TORCH, TORCH_PREPACKED, ONNX_RUNTIME)


@dataclass(frozen=True)
class Setting:
    """What the numbers depend on besides the programs."""

    date: str
    cpu: str
    threads: int
    rounds: int
    budget: str
    """As given to `mlsearch tune`."""
    versions: Mapping[str, str]


def spread(samples_us: Sequence[float]) -> tuple[float, float, float]:
    """Median, 10th and 90th percentile."""
    low, middle, high = np.percentile(np.asarray(samples_us, dtype=np.float64), (10, 50, 90))
    return float(middle), float(low), float(high)


def to_json(setting: Setting, comparisons: Sequence[Comparison], failed: Sequence[RowFailed] = ()) -> dict[str, Any]:
    """All samples, and what the Markdown says of them. Times in microseconds."""
    return {
        "setting": asdict(setting),
        "rows": [_row_json(comparison, setting.threads) for comparison in comparisons],
        "failed": [asdict(each) for each in failed],
    }


def _row_json(comparison: Comparison, threads: int) -> dict[str, Any]:
    columns = {}
    for column in comparison.columns:
        columns[column.name] = asdict(column)
        if column.samples_us:
            columns[column.name] |= dict(zip(("median_us", "p10_us", "p90_us"), spread(column.samples_us), strict=True))
            columns[column.name]["share_of_peak"] = comparison.share_of_peak(column.name, threads)
    ratios = {name: ratio for name in _RIVALS if (ratio := _tuned_against(comparison, name)) is not None}
    return {
        "row": comparison.row,
        "measured_at": comparison.measured_at,
        "flops": comparison.flops,
        "peak_us": comparison.peak_us,
        "peak_gflops": comparison.peak_gflops,
        "tuning": comparison.tuning,
        "columns": columns,
        "tuned_against": {name: {"column": slow, **asdict(ratio)} for name, (slow, ratio) in ratios.items()},
    }


def to_markdown(setting: Setting, comparisons: Sequence[Comparison], failed: Sequence[RowFailed] = ()) -> str:
    lines = [
        "# On this CPU: untuned, tuned, and other libraries",
        "",
        "Written by `tools/bench_cpu.py`. All programs of a row ran in turns, so the ratios hold; times of different",
        "rows, and of other runs, are not comparable. A sample is the mean of as many calls as take the fastest",
        f"program {MIN_SAMPLE_US / 1000:.0f} ms, the same number for all, behind an untimed one.",
        "",
        *_setting_lines(setting, comparisons),
        "",
        "## Times",
        "Medians, with the 10th and 90th percentile below them. `_const`: the weights are a constant of the payload,",
        "and IREE, PyTorch prepacked and ONNX Runtime may pack them ahead of time; OpenBLAS packs them in every call.",
        "",
        *_times(comparisons),
        "",
        "## Tuned against each",
        "Their time over that of tuned code, paired by round, with the 95 % interval of the median: above 1, tuned",
        f"code is faster. {BEST_SWITCH}: the least median among IREE's columns without a spec, chosen row by row.",
        "",
        *_ratios(comparisons),
        "",
        *_peak(comparisons, setting.threads),
        *_choices(comparisons),
        "## Remarks",
        *_remarks(comparisons, failed, setting),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _tuned_against(comparison: Comparison, rival: str) -> tuple[str, Any] | None:
    """The column that is meant, and its ratio to the tuned one."""
    name = comparison.fastest(tuple(SWITCHES)) if rival == BEST_SWITCH else rival
    ratio = comparison.ratio(name, TUNED) if name else None
    return (name, ratio) if name and ratio else None


def _names(comparisons: Sequence[Comparison]) -> list[str]:
    found = dict.fromkeys(column.name for comparison in comparisons for column in comparison.columns)
    # First ours and what it is held against, then the extras.
    return sorted(found, key=(NUMPY, *SWITCHES, TUNED, TORCH, TORCH_PREPACKED, ONNX_RUNTIME).index)


def _times(comparisons: Sequence[Comparison]) -> list[str]:
    names = _names(comparisons)
    rows = [[comparison.row, *(_time_cell(comparison, name) for name in names)] for comparison in comparisons]
    return _table(["row", *names], rows)


def _time_cell(comparison: Comparison, name: str) -> str:
    column = comparison[name]
    if column is None or not column.samples_us:
        return ABSENT
    middle, low, high = spread(column.samples_us)
    return f"{time_text(middle)}<br>{time_text(low)} to {time_text(high)}"


def _ratios(comparisons: Sequence[Comparison]) -> list[str]:
    table = {each.row: [_tuned_against(each, rival) for rival in _RIVALS] for each in comparisons}
    rivals = [i for i in range(len(_RIVALS)) if any(cells[i] for cells in table.values())]
    rows = []
    for name, cells in table.items():
        texts = [_ratio_cell(cell, _RIVALS[i] == BEST_SWITCH) for i, cell in enumerate(cells) if i in rivals]
        rows.append([name, *texts])
    means = [_geometric_mean([cell[1].speedup for cells in table.values() if (cell := cells[i])]) for i in rivals]
    return _table(["row", *(_RIVALS[i] for i in rivals)], [*rows, ["geometric mean", *means]])


def _ratio_cell(cell: tuple[str, Any] | None, with_name: bool) -> str:
    if cell is None:
        return ABSENT
    name, ratio = cell
    text = f"{speedup_text(ratio.speedup)} {interval_text(ratio.ci95)}"
    return f"{text}<br>{name.removeprefix('IREE ')}" if with_name else text


def _geometric_mean(ratios: Sequence[float]) -> str:
    mean = exp(sum(map(log, ratios)) / len(ratios))
    return f"**{speedup_text(mean)}**<br>of {len(ratios)}"


def _peak(comparisons: Sequence[Comparison], threads: int) -> list[str]:
    counted = [each for each in comparisons if each.flops and each.peak_gflops]
    if not counted:
        return []
    names = _names(counted)
    rows = []
    for each in counted:
        shares = [share_text(each.share_of_peak(name, threads)) for name in names]
        rows.append([each.row, f"{each.peak_gflops:.0f} GFLOP/s", *shares])
    return [
        "## Percent of the peak",
        "Multiplications and additions per second, over those of a kernel that does nothing else, in registers, on",
        "each core (`tools/bench/peak.py`), timed in the same rounds.",
        "",
        *_table(["row", "peak of a core", *names], rows),
        "",
    ]


def _choices(comparisons: Sequence[Comparison]) -> list[str]:
    """What the tuned columns are made of."""
    rows = []
    for each in comparisons:
        facts = each.tuning
        if facts:
            seconds = span_text(float(facts["tuning_s"]))
            rows.append([each.row, facts["variant"], facts["templates"] or ABSENT, facts["trials"], seconds])
    if not rows:
        return []
    return [
        "## What was chosen",
        "The payload's variant, the templates of the spec's entries, trials of its tasks, and the time of the whole",
        f"search. Where the variant is `default` and there is no template ({ABSENT}), nothing was proven faster.",
        "",
        *_table(["row", "variant", "templates", "trials", "time"], rows),
        "",
    ]


def _setting_lines(setting: Setting, comparisons: Sequence[Comparison]) -> list[str]:
    versions = ", ".join(f"{name} {version}" for name, version in setting.versions.items())
    dates = sorted(each.measured_at for each in comparisons)
    measured = f"; rows measured from {dates[0]} to {dates[-1]}" if dates else ""
    lines = [
        f"- {setting.date}, {setting.cpu}, {setting.threads} thread(s), up to {setting.rounds} rounds{measured}",
        f"- {versions}",
        f"- tuned: `mlsearch tune {setting.budget}`, applied by plain `iree-compile` as `mlsearch compile` calls it",
    ]
    for name, flags in SWITCHES.items():
        if flags:
            lines.append(f"- {name}: {' '.join(f'`{flag}`' for flag in flags)}, no spec")
    blas = _facts(comparisons, NUMPY)
    if blas:
        lines.append(
            f"- NumPy as in `tools/bench/references.py`, its BLAS: {blas['internal_api']} {blas['version']}, kernel"
            f" {blas['architecture']}, {blas['num_threads']} thread(s)"
        )
    torch = _facts(comparisons, TORCH)
    if torch:
        lines.append(
            f"- PyTorch {torch['version']} as in `tools/bench/torch_programs.py`, eager, {torch['capability']};"
            f" {torch['libraries']}. Its float matmuls are MKL's, which picks kernels by the CPU's maker; prepacked"
            " weights and convolutions are oneDNN's"
        )
    onnx = _facts(comparisons, ONNX_RUNTIME)
    if onnx:
        lines.append(
            f"- ONNX Runtime {onnx['version']} as in `tools/bench/onnx_programs.py`; convolutions in NCHW, its own"
            " layout"
        )
    return lines


def _facts(comparisons: Sequence[Comparison], name: str) -> Mapping[str, str]:
    return next((column.facts for each in comparisons if (column := each[name]) and column.facts), {})


def _remarks(comparisons: Sequence[Comparison], failed: Sequence[RowFailed], setting: Setting) -> list[str]:
    remarks = [f"- {each.row}: **not measured**, {each.reason}" for each in failed]
    wrong = False
    for comparison in comparisons:
        for column in comparison.columns:
            if column.problem:
                remarks.append(f"- {comparison.row}, {column.name}: {column.problem}")
            if column.numerics is not None and not column.numerics.agrees:
                wrong = True
                remarks.append(
                    f"- {comparison.row}, {column.name}: **wrong numbers**, relative error"
                    f" {column.numerics.max_rel_error:.2g}, tolerance {column.numerics.tolerance:.2g}"
                )
        rounds = max((len(column.samples_us) for column in comparison.columns), default=0)
        column = comparison[UNTUNED]
        if column and column.samples_us:
            _, low, high = spread(column.samples_us)
            if high / low > _BUSY:
                remarks.append(
                    f"- {comparison.row}: **the machine had other work**, times of {UNTUNED} reach from"
                    f" {time_text(low)} to {time_text(high)}"
                )
        if rounds < setting.rounds:
            remarks.append(f"- {comparison.row}: {rounds} rounds, since one takes long")
    if not wrong:
        remarks.append(
            "- All numbers that were measured agree with the first column's, within the tolerance of a search."
        )
    spent = [float(each.tuning["tuning_s"]) for each in comparisons if each.tuning.get("tuning_s")]
    if spent:
        remarks.append(f"- Tuning took {span_text(sum(spent))} in all, {span_text(max(spent))} for the longest row.")
    return remarks


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(header) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in (header, rule, *rows)]

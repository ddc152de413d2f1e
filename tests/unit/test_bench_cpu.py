"""tools/bench_cpu.py, as far as it needs no compiler and no clock."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from math import erf, inf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import bench_cpu
from bench import budgets, peak, references, report, tuned
from bench.measure import Column, Rival, Work, affordable, calls_in_a_sample, take_turns, worst
from bench.process import free_the_libraries
from bench.report import NUMPY, ONNX_RUNTIME, SWITCHES, TORCH, TORCH_PREPACKED, TUNED, UNTUNED
from bench.rows import Comparison, Ledger, RowFailed, decode
from bench.suite import SUITE, Row
from bench.tuned import Budget, TuningFailed
from bench.weights import write_with_constant

from mlsearch.candidate import Numerics, Signature, TensorSpec
from mlsearch.cli.output import json_text
from mlsearch.ir.module import new_context, parse, walk
from mlsearch.runner.inputs import make_inputs
from mlsearch.target import resolve

Array = np.ndarray[Any, Any]

AGREES = Numerics(True, 0.0, 0.0, 1e-4, 0, 4)
SETTING = report.Setting("2030-01-01T00:00:00Z", "a CPU", 1, 7, "--trials 64", {"IREE compiler": "3.13.0"})
BLAS = {"internal_api": "openblas", "version": "1", "architecture": "Zen", "num_threads": "1"}
COMPARISON = Comparison(
    "matmul_512",
    (
        Column(NUMPY, (50.0,) * 7, AGREES, BLAS),
        Column(UNTUNED, (400.0,) * 7, AGREES),
        Column("IREE -O3", (), problem="error: it broke"),
        Column("IREE data tiling", (300.0,) * 7, AGREES),
        Column(TUNED, (100.0,) * 7, AGREES),
    ),
    "2029-12-31T00:00:00Z",
    flops=peak.FLOPS,
    peak_us=(25.0,) * 7,
    tuning={"tuning_s": "61", "variant": "o3", "templates": "cpu/a", "trials": "64", "entries": "1"},
)


def cells_of(table: str, row: str) -> list[str]:
    [line] = [line for line in table.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


# -------------------------------------------------------------------------------------- measuring


def test_libraries_choose_their_kernels_by_themselves() -> None:
    environment = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "512", "OMP_NUM_THREADS": "8", "HOME": "/h"}
    free_the_libraries(environment, threads=2)
    assert environment == {"OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "HOME": "/h"}


def test_each_program_gives_one_sample_per_round() -> None:
    log: list[str] = []

    def program(name: str, time_us: float) -> Callable[[int], float]:
        def sample(calls: int) -> float:
            log.append(name)
            return time_us * calls

        return sample

    samples = take_turns([program("a", 1.0), program("b", 2.0), program("c", 3.0)], calls=10, rounds=20)
    assert samples == [(10.0,) * 20, (20.0,) * 20, (30.0,) * 20]
    rounds = [tuple(log[i : i + 3]) for i in range(0, 60, 3)]
    assert all(sorted(each) == ["a", "b", "c"] for each in rounds)
    assert len(set(rounds)) > 3, "the order changes from round to round"


def test_samples_of_short_calls_take_two_milliseconds() -> None:
    assert calls_in_a_sample(80.0) == 25
    assert calls_in_a_sample(1999.0) == 2
    assert calls_in_a_sample(5000.0) == 1
    assert calls_in_a_sample(0.0) == 20000


def test_slow_rows_get_fewer_rounds_but_enough_for_an_interval() -> None:
    assert affordable(31, round_s=0.1) == 31
    assert 11 < affordable(31, round_s=8.0) < 31
    assert affordable(31, round_s=1000.0) == 11
    assert affordable(7, round_s=1000.0) == 7, "never more than asked for"


def test_outputs_are_held_to_the_tolerance_of_the_search() -> None:
    signature = Signature("f", (), (TensorSpec((2, 2), "f32"),), (), reduction_length=16)
    want = np.ones((2, 2), np.float32)
    assert worst([want * np.float32(1 + 1e-6)], [want], signature).agrees
    assert not worst([want * np.float32(1.01)], [want], signature).agrees


def test_an_artifact_does_not_take_its_constant() -> None:
    a, b = TensorSpec((2, 3), "f32"), TensorSpec((3, 4), "f32")
    signature = Signature("f", (a, b), (TensorSpec((2, 4), "f32"),), (), reduction_length=3)
    assert Work("matmul", signature).artifact_signature == signature
    assert Work("matmul", signature, constant=1).artifact_signature == replace(signature, inputs=(a,))


def test_spread_is_median_and_outer_tenths() -> None:
    assert report.spread([float(i) for i in range(101)]) == (50.0, 10.0, 90.0)


def test_ratios_are_paired_by_round() -> None:
    fast = Column(TUNED, (10.0, 20.0, 40.0, 80.0, 160.0, 320.0))
    slow = Column(UNTUNED, tuple(3 * time for time in fast.samples_us))
    ratio = Comparison("x", (fast, slow), "").ratio(UNTUNED, TUNED)
    assert ratio is not None
    assert (ratio.speedup, ratio.ci95) == (3.0, (3.0, 3.0))


def test_there_is_no_ratio_to_what_was_not_measured() -> None:
    assert COMPARISON.ratio("IREE -O3", TUNED) is None
    assert COMPARISON.ratio(TORCH, TUNED) is None


def test_the_share_of_the_peak_is_paired_by_round_and_per_core() -> None:
    slow_machine = replace(COMPARISON, peak_us=(25.0,) * 3 + (50.0,) * 4)
    columns = (Column(TUNED, (100.0,) * 3 + (200.0,) * 4),)
    assert replace(slow_machine, columns=columns).share_of_peak(TUNED, cores=1) == 0.25
    assert replace(slow_machine, columns=columns).share_of_peak(TUNED, cores=2) == 0.125
    assert replace(COMPARISON, flops=None).share_of_peak(TUNED, cores=1) is None
    assert replace(COMPARISON, peak_us=()).share_of_peak(TUNED, cores=1) is None


# ---------------------------------------------------------------------------------------- reports


def test_the_times_of_each_column_are_in_the_table() -> None:
    cells = cells_of(section(report.to_markdown(SETTING, [COMPARISON]), "Times"), "matmul_512")
    assert [cell.partition("<br>")[0] for cell in cells[1:]] == ["50.0 µs", "400 µs", "–", "300 µs", "100 µs"]


def test_ratios_come_with_their_intervals_and_the_fastest_switch_by_name() -> None:
    text = section(report.to_markdown(SETTING, [COMPARISON]), "Tuned against each")
    assert cells_of(text, "row")[1:] == [UNTUNED, report.BEST_SWITCH, NUMPY]
    assert cells_of(text, "matmul_512")[1:] == [
        "4.00x [4.00, 4.00]",
        "3.00x [3.00, 3.00]<br>data tiling",
        "0.500x [0.500, 0.500]",
    ]


def test_means_are_geometric_and_over_the_rows_that_have_the_ratio() -> None:
    columns = (*COMPARISON.columns[1:-1], Column(TUNED, (200.0,) * 7, AGREES))
    without_numpy = Comparison("softmax_1024", columns, "")
    text = section(report.to_markdown(SETTING, [COMPARISON, without_numpy]), "Tuned against each")
    means = cells_of(text, "geometric mean")[1:]
    assert means == ["**2.83x**<br>of 2", "**2.12x**<br>of 2", "**0.500x**<br>of 1"]


def test_the_peak_is_in_the_report_where_it_was_measured() -> None:
    text = section(report.to_markdown(SETTING, [COMPARISON]), "Percent of the peak")
    assert cells_of(text, "matmul_512")[2:] == ["50 %", "6 %", "–", "8 %", "25 %"]
    assert "Percent" not in report.to_markdown(SETTING, [replace(COMPARISON, peak_us=())])


def test_the_report_names_what_the_numbers_depend_on() -> None:
    text = report.to_markdown(SETTING, [COMPARISON])
    parts = ("2030-01-01", "2029-12-31", "a CPU", "1 thread", "7 rounds", "--trials 64", "kernel Zen")
    assert all(part in text for part in parts)


def test_the_report_tells_what_failed_and_what_is_wrong() -> None:
    broken = replace(AGREES, agrees=False, max_rel_error=0.5)
    columns = (*COMPARISON.columns[:-1], replace(COMPARISON.columns[-1], numerics=broken))
    text = report.to_markdown(SETTING, [replace(COMPARISON, columns=columns)], [RowFailed("softmax_1024", "no memory")])
    assert "- matmul_512, IREE -O3: error: it broke" in text
    assert "IREE tuned: **wrong numbers**, relative error 0.5" in text
    assert "- softmax_1024: **not measured**, no memory" in text
    assert "All numbers" not in text


def test_the_report_says_where_rounds_are_fewer() -> None:
    assert "- matmul_512: 7 rounds, since" in report.to_markdown(replace(SETTING, rounds=31), [COMPARISON])
    assert "7 rounds, since" not in report.to_markdown(SETTING, [COMPARISON])


def test_the_report_says_where_the_machine_was_busy() -> None:
    columns = (Column(UNTUNED, (400.0,) * 5 + (600.0,) * 2, AGREES), Column(TUNED, (100.0,) * 7, AGREES))
    said = "- matmul_512: **the machine had other work**"
    assert said in report.to_markdown(SETTING, [replace(COMPARISON, columns=columns)])
    assert said not in report.to_markdown(SETTING, [COMPARISON])


def test_the_report_says_what_was_chosen() -> None:
    text = section(report.to_markdown(SETTING, [COMPARISON]), "What was chosen")
    assert cells_of(text, "matmul_512")[1:] == ["o3", "cpu/a", "64", "1 min 01 s"]
    empty = replace(COMPARISON, tuning={**COMPARISON.tuning, "variant": "default", "templates": ""})
    text = section(report.to_markdown(SETTING, [empty]), "What was chosen")
    assert cells_of(text, "matmul_512")[1:3] == ["default", "–"]


def test_facts_of_a_search_are_read_from_its_json(tmp_path: Path) -> None:
    tasks = [
        {"trials": 64, "applied": True, "template": "cpu/a"},
        {"trials": 16, "applied": True, "template": "cpu/a"},
        {"trials": 8, "applied": None, "template": None},
    ]
    summary = {"variant": "o3", "time": {"wall_s": 61.4}, "tasks": tasks}
    (tmp_path / "tuned.json").write_text(json.dumps(summary))
    assert tuned.tuning_facts(tmp_path) == {
        "tuning_s": "61", "variant": "o3", "trials": "88", "entries": "2", "templates": "cpu/a"
    }  # fmt: skip


def test_a_report_without_rows_is_still_one() -> None:
    assert "not measured" in report.to_markdown(SETTING, [], [RowFailed("softmax_1024", "no memory")])


def test_json_is_strict_even_for_few_rounds() -> None:
    columns = tuple(replace(column, samples_us=column.samples_us[:2]) for column in COMPARISON.columns)
    value = json.loads(json_text(report.to_json(SETTING, [replace(COMPARISON, columns=columns, peak_us=())])))
    [row] = value["rows"]
    assert row["tuned_against"][UNTUNED]["ci95"] == [0.0, None]
    assert row["tuned_against"][report.BEST_SWITCH]["column"] == "IREE data tiling"
    assert row["columns"][TUNED]["samples_us"] == [100.0, 100.0]


# ---------------------------------------------------------------------------------------- budgets


def budget_row(name: str, untuned: float, small: float, large: float) -> Comparison:
    times = {UNTUNED: untuned, budgets.column_of("quick"): small, budgets.column_of("long"): large}
    columns = tuple(Column(column, (time,) * 7, AGREES) for column, time in times.items())
    return Comparison(name, columns, "", tuning={"quick_tuning_s": "10", "long_tuning_s": "70"})


def test_a_budget_s_share_is_of_the_summed_log_speedups() -> None:
    half, all_of_it = budget_row("a", 16.0, 4.0, 1.0), budget_row("b", 4.0, 1.0, 1.0)
    share = budgets.share_of_log_speedup([half, all_of_it])
    assert share is not None
    assert share.share == pytest.approx(4 / 6)
    assert share.ci95 == pytest.approx((4 / 6, 4 / 6))


def test_there_is_no_share_of_nothing() -> None:
    assert budgets.share_of_log_speedup([]) is None
    assert budgets.share_of_log_speedup([budget_row("a", 4.0, 3.0, 4.0)]) is None


def test_the_report_on_budgets_says_the_share_and_each_row_s() -> None:
    text = budgets.to_markdown(SETTING, [budget_row("a", 16.0, 4.0, 1.0)], [RowFailed("b", "no memory")])
    assert "brings **50 %** of the log-speedup" in text
    assert cells_of(text, "a")[1:] == [
        "4.00x [4.00, 4.00]", "16.0x [16.0, 16.0]", "50 %", "10 s", "1 min 10 s"
    ]  # fmt: skip
    assert "- b: **not measured**, no memory" in text
    assert json.loads(json_text(budgets.to_json(SETTING, [budget_row("a", 16.0, 4.0, 1.0)], [])))[
        "share_of_log_speedup"
    ]["share"] == pytest.approx(0.5)


# ----------------------------------------------------------------------------- rows that are kept


def test_a_finished_row_is_read_back_as_it_was(tmp_path: Path) -> None:
    wrong = Numerics(False, inf, inf, 1e-4, 0, 4)
    row = replace(COMPARISON, columns=(*COMPARISON.columns, Column(ONNX_RUNTIME, (1.0,), wrong)))
    Ledger(tmp_path / "rows").put(row, "key")
    assert Ledger(tmp_path / "rows").get("matmul_512", "key") == row
    assert decode(json.loads(json_text(asdict(COMPARISON)))) == COMPARISON


def test_a_row_of_another_setting_is_not_finished(tmp_path: Path) -> None:
    Ledger(tmp_path).put(COMPARISON, "key")
    assert Ledger(tmp_path).get("matmul_512", "other key") is None
    assert Ledger(tmp_path).get("matmul_1024", "key") is None


class Measuring(bench_cpu.Bench):
    """Measures nothing: `answers` has what comes of each row, and `asked` who was asked for."""

    def __init__(
        self, work: Path, answers: Mapping[str, Comparison | BaseException], *, threads: int = 1, **changes: Any
    ):
        options = bench_cpu.read_options(["--work", str(work)])
        options = replace(options, threads=threads, **changes)
        super().__init__(options, resolve("llvm-cpu", threads), replace(SETTING, rounds=options.rounds), work / "tmp")
        self.answers, self.asked = answers, list[str]()

    def _compare(self, row: Row) -> Comparison:
        self.asked.append(row.name)
        answer = self.answers[row.name]
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_a_run_goes_on_with_the_rows_that_are_not_finished(tmp_path: Path) -> None:
    first = Measuring(tmp_path, {"matmul_512": COMPARISON, "softmax_1024": KeyboardInterrupt()})
    assert first.row(SUITE["matmul_512"]) == COMPARISON
    with pytest.raises(KeyboardInterrupt):
        first.row(SUITE["softmax_1024"])
    softmax = replace(COMPARISON, row="softmax_1024")
    second = Measuring(tmp_path, {"softmax_1024": softmax})
    assert [second.row(SUITE[name]) for name in ("matmul_512", "softmax_1024")] == [COMPARISON, softmax]
    assert second.asked == ["softmax_1024"]


@pytest.mark.parametrize("changes", [{"rounds": 5}, {"budget": Budget("default", trials=7)}])
def test_a_finished_row_is_measured_again_in_another_setting(tmp_path: Path, changes: dict[str, Any]) -> None:
    Measuring(tmp_path, {"matmul_512": COMPARISON}).row(SUITE["matmul_512"])
    again = Measuring(tmp_path, {"matmul_512": COMPARISON}, **changes)
    again.row(SUITE["matmul_512"])
    assert again.asked == ["matmul_512"]


@pytest.mark.parametrize("error", [TuningFailed("it does not tune"), RuntimeError("it does not tune\nmore")])
def test_a_row_that_fails_stops_no_other_and_is_tried_again(tmp_path: Path, error: Exception) -> None:
    bench = Measuring(tmp_path, {"matmul_512": error, "softmax_1024": replace(COMPARISON, row="softmax_1024")})
    options = replace(bench_cpu.read_options([]), rows=(SUITE["matmul_512"], SUITE["softmax_1024"]))
    comparisons, failed = bench_cpu.measure_all(options, bench.row)
    assert [each.row for each in comparisons] == ["softmax_1024"]
    assert failed == [RowFailed("matmul_512", "it does not tune")]
    bench.row(SUITE["matmul_512"])
    assert bench.asked.count("matmul_512") == 2


def test_what_other_code_has_measured_is_not_finished(tmp_path: Path) -> None:
    folder = tmp_path / "mlsearch"
    folder.mkdir()
    (folder / "loop.py").write_text("old")
    before = bench_cpu.source_digest(tmp_path)
    assert bench_cpu.source_digest(tmp_path) == before
    (folder / "loop.py").write_text("new")
    assert bench_cpu.source_digest(tmp_path) != before


# ------------------------------------------------------------------------------------ tuned code


def test_specs_come_from_a_plain_tuning_command() -> None:
    argv = tuned.tune_argv(Path("s/x.mlir"), Path("kept"), Budget("default", trials=8, max_time="5m"), threads=2)
    assert " ".join(argv[3:]) == (
        "tune s/x.mlir --trials 8 --max-time 5m --threads 2 --quiet"
        " --store kept/store.journal -o kept/tuned.spec.mlir --json kept/tuned.json"
    )
    assert Budget("quick").arguments == ("--budget", "quick")


def test_what_is_measured_as_tuned_comes_from_a_plain_compile_command() -> None:
    argv = tuned.compile_argv(Path("s/x.mlir"), Path("x.spec.mlir"), Path("x.vmfb"))
    assert " ".join(argv[3:]) == "compile s/x.mlir --spec x.spec.mlir -o x.vmfb"


@pytest.mark.parametrize(("kept", "runs"), [(None, 1), ("interrupted", 1), ("finished", 0)])
def test_only_a_finished_search_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: str | None, runs: int
) -> None:
    calls: list[list[str]] = []

    def run(argv: list[str]) -> None:
        calls.append(argv)
        (tmp_path / "tuned.json").write_text(json.dumps({"interrupted": False}))

    monkeypatch.setattr(tuned, "_run", run)
    if kept is not None:
        (tmp_path / "tuned.spec.mlir").touch()
        (tmp_path / "tuned.json").write_text(json.dumps({"interrupted": kept == "interrupted"}))
    assert tuned.tune(Path("x.mlir"), tmp_path, Budget("quick"), 1) == tmp_path / "tuned.spec.mlir"
    assert len(calls) == runs


def test_a_failed_command_says_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(TuningFailed, match=r"mlsearch compile: .*no payload file .*x\.mlir"):
        tuned.build_tuned(tmp_path / "x.mlir", tmp_path / "x.spec.mlir", tmp_path / "x.vmfb")


# ------------------------------------------------------------------------------------- the suite


def test_an_unknown_row_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        bench_cpu.read_options(["--only", "matmul_7"])
    assert ending.value.code == 2
    assert "no such row: matmul_7" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["--rounds", "0"], ["--max-time", "soon"], ["--compare-budgets", "--budget", "quick"]]
)
def test_arguments_that_make_no_sense_are_usage_errors(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        bench_cpu.read_options(arguments)
    assert ending.value.code == 2


def test_rows_run_in_the_order_of_the_suite() -> None:
    options = bench_cpu.read_options(["--only", "softmax_1024", "matmul_512"])
    assert [row.name for row in options.rows] == ["matmul_512", "softmax_1024"]
    assert bench_cpu.read_options([]).rows == tuple(SUITE.values())


def test_no_report_overwrites_another() -> None:
    every = {bench_cpu.default_output(threads, compare) for threads in (1, 2) for compare in (False, True)}
    assert len(every) == 4
    assert bench_cpu.default_output(1, False).name == "bench_cpu.md"


def test_every_row_has_its_sample_and_a_numpy_equivalent() -> None:
    assert [row.name for row in SUITE.values() if not row.sample.is_file()] == []
    assert [row.name for row in SUITE.values() if row.computation not in references.REFERENCES] == []


def test_prepacked_weights_are_compared_with_constant_ones_only() -> None:
    extras = [Rival(TORCH, "torch"), Rival(TORCH_PREPACKED, "torch-prepacked"), Rival(ONNX_RUNTIME, "onnx")]
    assert bench_cpu.rivals(SUITE["matmul_512_const"], extras) == extras
    assert bench_cpu.rivals(SUITE["matmul_512"], extras) == [extras[0], extras[2]]
    assert bench_cpu.rivals(SUITE["matmul_bf16_1024"], extras) == []


def test_a_constant_weight_is_in_the_payload_bit_by_bit(tmp_path: Path) -> None:
    sample = tmp_path / "sample.mlir"
    sample.write_text(
        "func.func @f(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>, %c: tensor<2x4xf32>) -> tensor<2x4xf32> {\n"
        "  %r = linalg.matmul ins(%a, %b : tensor<2x3xf32>, tensor<3x4xf32>) outs(%c : tensor<2x4xf32>)"
        " -> tensor<2x4xf32>\n  return %r : tensor<2x4xf32>\n}\n"
    )
    [_, values] = make_inputs((TensorSpec((2, 3), "f32"), TensorSpec((3, 4), "f32")), 0)
    write_with_constant(sample, 1, values, tmp_path / "constant.mlir")
    module = parse((tmp_path / "constant.mlir").read_bytes(), new_context())
    ops = {op.name: op for op in walk(module.operation)}
    matmul, constant = ops["linalg.matmul"], ops["arith.constant"]
    assert str(ops["func.func"].attributes["function_type"]) == (
        "(tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>"
    )
    assert matmul.operands[1] == constant.results[0]
    assert values.tobytes() in (tmp_path / "constant.mlir").read_bytes()
    with pytest.raises(ValueError, match="argument 1 is tensor<3x4xf32>"):
        write_with_constant(sample, 1, values.T.copy(), tmp_path / "wrong.mlir")


def test_the_peak_s_kernel_does_what_it_is_counted_for() -> None:
    ops = [op.name for op in walk(parse(peak.payload_text(), new_context()).operation)]
    per_element = 2 * ops.count("math.fma") + ops.count("arith.addf")
    assert peak.ELEMENTS * per_element == peak.FLOPS
    assert ops.count("math.fma") == peak.CHAINS * peak.STEPS


def test_switches_begin_with_none_at_all() -> None:
    assert next(iter(SWITCHES.items())) == (UNTUNED, ())


# ------------------------------------------------------------------------- what NumPy computes

RNG = np.random.default_rng(0)
X, Q, K, V = (RNG.standard_normal(shape, np.float32) for shape in ((5, 7), (2, 3, 4), (2, 6, 4), (2, 6, 4)))
SCALE, BIAS = RNG.standard_normal((2, 7), np.float32)
IMAGE, FILTERS = RNG.standard_normal((2, 6, 7, 3), np.float32), RNG.standard_normal((3, 2, 3, 4), np.float32)
SIGNAL, TAPS = RNG.standard_normal((2, 3, 9), np.float32), RNG.standard_normal((4, 3, 5), np.float32)
# The least numbers at the greatest length: their sums are the greatest that single precision has to hold exactly.
LEFT = np.concatenate([np.full((1, 1024), -128, np.int8), RNG.integers(-128, 128, (2, 1024), dtype=np.int8)])
RIGHT = np.concatenate([np.full((1024, 1), -128, np.int8), RNG.integers(-128, 128, (1024, 2), dtype=np.int8)], axis=1)
SHORT_A, SHORT_B = (RNG.standard_normal((5, 5)).astype(ml_dtypes.bfloat16) for _ in range(2))


def wide_softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def wide_gelu(x: Array) -> Array:
    return np.asarray(np.vectorize(lambda v: v * (1 + erf(v / 2**0.5)) / 2)(x.astype(np.float64)))


def wide_conv2d(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[:2], axis=(1, 2))
    return np.asarray(np.einsum("nhwcij,ijcf->nhwf", windows, w))


def wide_conv1d(x: Array, w: Array) -> Array:
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), w.shape[2], axis=2)
    return np.asarray(np.einsum("nctj,fcj->nft", windows, w))


CASES: Mapping[str, tuple[references.Computation, Array]] = MappingProxyType(
    {
        "matmul": (references.matmul(X.T.copy(), X), X.T.astype(np.float64) @ X),
        "batch_matmul": (references.matmul(Q, V.transpose(0, 2, 1).copy()), Q @ V.transpose(0, 2, 1)),
        "gelu": (references.matmul_bias_gelu(X.T.copy(), X, BIAS), wide_gelu(X.T @ X + BIAS)),
        "softmax": (references.softmax(X), wide_softmax(X)),
        "rmsnorm": (references.rmsnorm(X, SCALE), X / np.sqrt((X * X).mean(1, keepdims=True) + 1e-5) * SCALE),
        "layernorm": (
            references.layernorm(X, SCALE, BIAS),
            (X - X.mean(1, keepdims=True)) / np.sqrt(X.var(1, keepdims=True) + 1e-5) * SCALE + BIAS,
        ),
        "attention": (references.attention(Q, K, V), wide_softmax(0.125 * Q @ K.transpose(0, 2, 1)) @ V),
        "conv2d_nhwc": (references.conv2d_nhwc(IMAGE, FILTERS), wide_conv2d(IMAGE, FILTERS)),
        "conv1d_ncw": (references.conv1d_ncw(SIGNAL, TAPS), wide_conv1d(SIGNAL, TAPS)),
        "matmul_i8": (references.matmul_i8(LEFT, RIGHT), LEFT.astype(np.int64) @ RIGHT.astype(np.int64)),
        "matmul_bf16": (
            references.matmul_bf16(SHORT_A, SHORT_B), SHORT_A.astype(np.float64) @ SHORT_B.astype(np.float64)
        ),
    }
)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_reference_computes_what_its_name_says_every_time(name: str) -> None:
    compute, want = CASES[name]
    for _ in range(2):
        np.testing.assert_allclose(compute(), want, rtol=1e-4, atol=1e-5)


def test_sums_of_small_integers_are_exact_in_single_precision() -> None:
    compute, want = CASES["matmul_i8"]
    assert want.max() == 2**24
    assert compute().dtype == np.int32
    np.testing.assert_array_equal(compute(), want)


# ------------------------------------------------------------- the same in the optional libraries

OPERANDS: Mapping[str, tuple[Array, ...]] = MappingProxyType(
    {
        "matmul": (X.T.copy(), X),
        "matmul_bias_gelu": (X.T.copy(), X, BIAS),
        "softmax": (X,),
        "rmsnorm": (X, SCALE),
        "layernorm": (X, SCALE, BIAS),
        "attention": (Q, K, V),
        "conv2d_nhwc": (IMAGE, FILTERS),
        "conv1d_ncw": (SIGNAL, TAPS),
        "matmul_i8": (LEFT, RIGHT),
    }
)
OF_CASE: Mapping[str, str] = MappingProxyType({"matmul_bias_gelu": "gelu"})


def expected(computation: str) -> Array:
    return CASES[OF_CASE.get(computation, computation)][1]


@pytest.mark.parametrize("computation", OPERANDS)
def test_pytorch_computes_the_same(computation: str) -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is an extra")
    from bench.torch_programs import COMPUTATIONS, prepacked_matmul

    assert set(COMPUTATIONS) == set(OPERANDS)
    tensors = [torch.from_numpy(array) for array in OPERANDS[computation]]
    with torch.inference_mode():
        np.testing.assert_allclose(COMPUTATIONS[computation](*tensors)(), expected(computation), rtol=1e-4, atol=1e-5)
        if computation == "matmul":
            np.testing.assert_allclose(prepacked_matmul(*tensors)(), expected(computation), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("computation", OPERANDS)
@pytest.mark.parametrize("constant", [None, 1])
def test_onnx_runtime_computes_the_same(computation: str, constant: int | None) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is an extra")
    from bench.onnx_programs import MODELS, model_bytes

    assert set(MODELS) == set(OPERANDS)
    model = MODELS[computation]
    arrays = model.arrange(OPERANDS[computation])
    session = onnxruntime.InferenceSession(model_bytes(model, arrays, constant), providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    assert ("x1" in names) == (constant is None and len(arrays) > 1)
    [got] = session.run(["y"], {name: arrays[int(name[1:])] for name in names})
    np.testing.assert_allclose(model.back(got), expected(computation), rtol=1e-4, atol=1e-5)

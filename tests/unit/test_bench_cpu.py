"""tools/bench_cpu.py, as far as it needs no compiler and no clock."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import erf
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import bench_cpu
from bench import references, report
from bench.measure import NUMPY, Column, take_turns, worst
from bench.process import free_the_libraries

from mlsearch.candidate import Numerics, Signature, TensorSpec
from mlsearch.cli.output import json_text

Array = np.ndarray[Any, Any]

AGREES = Numerics(True, 0.0, 0.0, 1e-4, 0, 4)
SETTING = report.Setting("2030-01-01T00:00:00Z", "a CPU", 1, 7, 64, {"IREE compiler": "3.13.0"})
COMPARISON = report.Comparison(
    "matmul_512",
    (
        Column(NUMPY, (50.0,) * 7, AGREES, {"internal_api": "openblas", "version": "1", "architecture": "Zen",
                                            "num_threads": "1"}),
        Column(report.UNTUNED, (400.0,) * 7, AGREES),
        Column("IREE -O3", (), problem="error: it broke"),
        Column(report.TUNED, (100.0,) * 7, AGREES),
    ),
)  # fmt: skip


def test_numpy_chooses_its_kernel_by_itself() -> None:
    environment = {"OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_L2_SIZE": "512", "OMP_NUM_THREADS": "8", "HOME": "/h"}
    free_the_libraries(environment, threads=2)
    assert environment == {"OPENBLAS_NUM_THREADS": "2", "HOME": "/h"}


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


def test_outputs_are_held_to_the_tolerance_of_the_search() -> None:
    signature = Signature("f", (), (TensorSpec((2, 2), "f32"),), (), reduction_length=16)
    want = np.ones((2, 2), np.float32)
    assert worst([want * np.float32(1 + 1e-6)], [want], signature).agrees
    assert not worst([want * np.float32(1.01)], [want], signature).agrees


def test_spread_is_median_and_outer_tenths() -> None:
    assert report.spread([float(i) for i in range(101)]) == (50.0, 10.0, 90.0)


def test_ratios_are_paired_by_round() -> None:
    tuned = Column(report.TUNED, (10.0, 20.0, 40.0, 80.0, 160.0, 320.0))
    untuned = Column(report.UNTUNED, tuple(3 * time for time in tuned.samples_us))
    ratio = report.Comparison("x", (tuned, untuned)).ratio(report.UNTUNED, report.TUNED)
    assert ratio is not None
    assert (ratio.speedup, ratio.ci95) == (3.0, (3.0, 3.0))


def test_there_is_no_ratio_to_what_was_not_measured() -> None:
    assert COMPARISON.ratio("IREE -O3", report.TUNED) is None
    assert COMPARISON.ratio("PyTorch", report.TUNED) is None


def test_the_table_says_both_ratios_with_their_intervals() -> None:
    [row] = [line for line in report.to_markdown(SETTING, [COMPARISON]).splitlines() if line.startswith("| matmul")]
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[0] == "matmul_512"
    assert cells[1].startswith("50.0 µs")
    assert cells[3] == "–"
    assert cells[-4:] == ["4.00x", "[4.00, 4.00]", "0.500x", "[0.500, 0.500]"]


def test_the_report_names_what_the_numbers_depend_on() -> None:
    text = report.to_markdown(SETTING, [COMPARISON])
    assert all(part in text for part in ("2030-01-01", "a CPU", "1 thread", "7 rounds", "64 trials", "kernel Zen"))


def test_the_report_tells_what_failed_and_what_is_wrong() -> None:
    broken = replace(AGREES, agrees=False, max_rel_error=0.5)
    columns = (*COMPARISON.columns[:-1], replace(COMPARISON.columns[-1], numerics=broken))
    text = report.to_markdown(SETTING, [report.Comparison("matmul_512", columns)])
    assert "- matmul_512, IREE -O3: error: it broke" in text
    assert "IREE tuned: **wrong numbers**, relative error 0.5" in text
    assert "All numbers agree" not in text


def test_json_is_strict_even_for_few_rounds() -> None:
    columns = tuple(replace(column, samples_us=column.samples_us[:2]) for column in COMPARISON.columns)
    value = json.loads(json_text(report.to_json(SETTING, [report.Comparison("matmul_512", columns)])))
    [sample] = value["samples"]
    assert sample["tuned_vs_untuned"]["ci95"] == [0.0, None]
    assert sample["columns"][report.TUNED]["samples_us"] == [100.0, 100.0]


def test_specs_come_from_a_plain_tuning_command() -> None:
    argv = bench_cpu.tune_argv(Path("s/x.mlir"), Path("x.spec.mlir"), Path("store"), trials=8, threads=2)
    assert " ".join(argv[3:]) == (
        "tune s/x.mlir --trials 8 --threads 2 --store store -o x.spec.mlir --json x.spec.json"
    )


def test_an_unknown_sample_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as ending:
        bench_cpu.read_options(["--samples", "matmul_7"])
    assert ending.value.code == 2


def test_every_sample_that_is_measured_is_there() -> None:
    names = {*bench_cpu.SAMPLES, *references.REFERENCES}
    assert [name for name in names if not bench_cpu.sample_path(name).is_file()] == []


# ------------------------------------------------------------------------- what NumPy computes

RNG = np.random.default_rng(0)
X, Q, K, V = (RNG.standard_normal(shape, np.float32) for shape in ((5, 7), (2, 3, 4), (2, 6, 4), (2, 6, 4)))
SCALE, BIAS = RNG.standard_normal((2, 7), np.float32)


def wide_softmax(x: Array) -> Array:
    powers = np.exp(x.astype(np.float64))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def wide_gelu(x: Array) -> Array:
    return np.asarray(np.vectorize(lambda v: v * (1 + erf(v / 2**0.5)) / 2)(x.astype(np.float64)))


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
    }
)


@pytest.mark.parametrize("name", CASES)
def test_a_reference_computes_what_its_name_says_every_time(name: str) -> None:
    compute, want = CASES[name]
    for _ in range(2):
        np.testing.assert_allclose(compute(), want, rtol=1e-4, atol=1e-5)

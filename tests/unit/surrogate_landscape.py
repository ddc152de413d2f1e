"""A matmul whose time is a formula of its tiles: padding, cache misses, spills, and a shape that fails to
compile."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, exp

import numpy as np

from mlsearch.candidate import (
    BuildFailed,
    Candidate,
    Measured,
    Numerics,
    Provenance,
    Record,
    TrialOutcome,
)
from mlsearch.target import Hardware
from mlsearch.workload import Loop, Operand, Tiling, Workload

M, N, K = 731, 1023, 137
LANES, REGISTERS = 16, 32

HARDWARE = Hardware(
    name="test core",
    vector_bytes=64,
    vector_registers=REGISTERS,
    l1_bytes=32 * 1024,
    l2_bytes=1024 * 1024,
    llc_bytes=32 * 1024 * 1024,
    cores=2,
)
MATMUL = Workload(
    key="0" * 16,
    op_kind="matmul",
    loops=(Loop(M, "parallel", "m"), Loop(N, "parallel", "n"), Loop(K, "reduction", "k")),
    operands=(Operand((0, 2), "f32", False), Operand((2, 1), "f32", False), Operand((0, 1), "f32", True)),
    fused=("fill",),
    flops=2 * M * N * K,
    bytes=4 * (M * K + K * N + M * N),
)
OPTIONS = (("peel", "false"), ("peel", "true"))
NUMERICS = Numerics(True, 0.0, 0.0, 1e-5, 0, M * N)
PROVENANCE = Provenance(MATMUL.key, "target", "3.13.0", "3.13.0", "0.1.0", 0, 1, "2025-01-01T00:00:00Z")

DOMAINS: dict[str, tuple[int | str, ...]] = {
    "tile_m": (1, 2, 4, 6, 8, 12, 14, 16),
    "tile_n": (16, 32, 64),
    "step_k": (1, 2, 4, 8),
    "cache_m": (1, 2, 4, 8, 16),
    "cache_n": (1, 2, 4, 8, 64),
    "cache_k": (32, 64, 128, 0),
    "peel": ("false", "true"),
}


def draw(rng: np.random.Generator, count: int) -> list[Candidate]:
    """Distinct candidates, uniformly drawn."""
    drawn: dict[str, Candidate] = {}
    while len(drawn) < count:
        knobs = {name: values[rng.integers(len(values))] for name, values in DOMAINS.items()}
        candidate = Candidate.of("cpu/matmul", "0", knobs)
        drawn.setdefault(candidate.key, candidate)
    return list(drawn.values())


def describe(candidate: Candidate) -> Tiling | None:
    if candidate.is_untuned:
        return None
    knobs = candidate.knobs
    tile_m, tile_n = int(knobs["tile_m"]), int(knobs["tile_n"])
    cache_m, cache_n = tile_m * int(knobs["cache_m"]), tile_n * int(knobs["cache_n"])
    return Tiling(
        levels=(
            ("distribution", (4 * cache_m, 4 * cache_n, 0)),
            ("cache_parallel", (cache_m, cache_n, 0)),
            ("cache_reduction", (0, 0, int(knobs["cache_k"]))),
            ("vector_common_parallel", (tile_m, tile_n, 0)),
            ("vector_reduction", (0, 0, int(knobs["step_k"]))),
        ),
        options=(("peel", knobs["peel"]),),
    )


def time_us(candidate: Candidate) -> float:
    knobs = candidate.knobs
    tile_m, tile_n, step_k = int(knobs["tile_m"]), int(knobs["tile_n"]), int(knobs["step_k"])
    padding = ceil(M / tile_m) * tile_m / M * ceil(N / tile_n) * tile_n / N
    masked = 3.0 if knobs["peel"] == "false" else 1.0
    accumulators = tile_m * tile_n / LANES
    loads_per_fma = (tile_m + tile_n / LANES) / accumulators
    spills = max(0.0, accumulators + tile_n / LANES + 1 - REGISTERS)
    depth = int(knobs["cache_k"]) or K
    panel = 4 * depth * tile_n * int(knobs["cache_n"])
    misses = 1.0 + 0.6 * max(0.0, np.log2(panel / HARDWARE.l1_bytes))
    return 1000.0 * padding * masked * (1 + loads_per_fma + 0.2 * spills) * misses * (1 + 0.1 / step_k)


def fails(candidate: Candidate) -> bool:
    """As IREE does where a vector tile is too large."""
    knobs = candidate.knobs
    return int(knobs["tile_m"]) * int(knobs["tile_n"]) * int(knobs["step_k"]) * 4 >= 16384


def outcome(candidate: Candidate, rng: np.random.Generator) -> TrialOutcome:
    if fails(candidate):
        return BuildFailed("compile", "large vector sizes", None, ("iree-compile",), 0.2)
    measured = time_us(candidate) * exp(0.02 * rng.standard_normal())
    return Measured((measured,), (5000.0,), NUMERICS, cut_short=False)


def record_of(candidate: Candidate, outcome: TrialOutcome, predicted: float | None = None) -> Record:
    return replace(Record(candidate, outcome, 0.3, None, PROVENANCE), predicted=predicted)

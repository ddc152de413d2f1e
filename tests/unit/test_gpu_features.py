"""Registers, shared memory and waves of a tiling, worked out by hand for a 1024 cubed f16 matmul on an H100."""

from __future__ import annotations

from math import log2

import numpy as np
import pytest

from mlsearch.cuda.chips import find_chip
from mlsearch.errors import KnobError
from mlsearch.surrogate.gpu_features import GpuFeatureExtractor
from mlsearch.workload import Loop, Operand, Tiling, Workload

MATMUL = Workload(
    key="0" * 16,
    op_kind="matmul",
    loops=(Loop(1024, "parallel", "m"), Loop(1024, "parallel", "n"), Loop(1024, "reduction", "k")),
    operands=(Operand((0, 2), "f16", False), Operand((2, 1), "f16", False), Operand((0, 1), "f32", True)),
    fused=("fill",),
    flops=2 * 1024**3,
    bytes=2 * 2 * 1024**2 + 4 * 1024**2,
)
MMA = ("mma_kind", "#iree_gpu.mma_layout<NV_MMA_SYNC_F32_16x8x16_F16>")


def tiling(block: tuple[int, int], step: int, warp: tuple[int, int], threads: int, stages: int = 1) -> Tiling:
    levels = (("workgroup", (*block, 0)), ("step", (0, 0, step)), ("warp", (*warp, 0)))
    return Tiling(levels, (MMA, ("stages", stages), ("threads", threads)))


def features(*tilings: Tiling) -> dict[str, list[float]]:
    extractor = GpuFeatureExtractor(MATMUL, find_chip("h100"))
    matrix = extractor.matrix(tilings)
    assert matrix.shape == (len(tilings), len(extractor.names)) and np.isfinite(matrix).all()
    return {name: matrix[:, column].tolist() for column, name in enumerate(extractor.names)}


def test_registers_are_counted_against_what_a_thread_may_have() -> None:
    found = features(tiling((128, 128), 32, (64, 64), 128))
    # 128 x 128 sums over 128 threads.
    assert found["registers.accumulators"] == [pytest.approx(log2(128 / 255))]
    # A warp's 64 rows and 64 columns of one instruction's 16, two to a register, over 32 threads.
    assert found["registers.fragments"] == [pytest.approx(log2(32 / 255))]
    assert found["registers.step"] == [pytest.approx(log2(64 / 255))]
    assert found["registers.copies"] == [pytest.approx(log2(32 / 255))]
    assert found["registers.demand"] == [pytest.approx(log2((128 + 32 + 32 + 24) / 255))]


def test_a_large_block_leaves_its_threads_fewer_registers() -> None:
    few, many = features(tiling((128, 128), 16, (64, 64), 128), tiling((256, 256), 16, (64, 64), 512))[
        "registers.accumulators"
    ]
    assert many - few == pytest.approx(log2(255 / 128))


def test_each_stage_takes_its_shared_memory_and_leaves_room_for_fewer_blocks() -> None:
    found = features(tiling((128, 128), 64, (64, 64), 128), tiling((128, 128), 64, (64, 64), 128, stages=4))
    one = 256 * 64 * 2
    assert found["shared.bytes"] == [pytest.approx(log2(one / 227 / 1024)), pytest.approx(log2(4 * one / 227 / 1024))]
    assert [2**blocks for blocks in found["shared.blocks"]] == [pytest.approx(6), pytest.approx(1)]


def test_blocks_are_spread_over_the_multiprocessors() -> None:
    found = features(tiling((128, 128), 32, (64, 64), 128))
    assert found["blocks.waves"] == [pytest.approx(log2(64 / 132))]
    assert found["blocks.imbalance"] == [pytest.approx(log2(132 / 64))]
    assert found["steps"] == [5.0]
    # Four by eight matrix instructions, twice along the step.
    assert found["unrolled"] == [pytest.approx(log2(4 * 8 * 2))]


def test_levels_of_a_cpu_are_refused() -> None:
    extractor = GpuFeatureExtractor(MATMUL, find_chip("h100"))
    with pytest.raises(KnobError, match="'distribution' is not one of workgroup, step, warp, thread"):
        extractor.matrix([Tiling((("distribution", (8, 8, 0)),), ())])

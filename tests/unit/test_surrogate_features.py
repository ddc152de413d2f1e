from __future__ import annotations

import time
from dataclasses import replace
from math import log2

import numpy as np
import pytest
from surrogate_landscape import HARDWARE, MATMUL, OPTIONS, describe, draw

from mlsearch.errors import KnobError
from mlsearch.surrogate.features import FeatureExtractor, options_in
from mlsearch.workload import CPU_LEVELS, Loop, Operand, Tiling, Workload

# A register tile of 8x32 with reduction step 4, in cache tiles of 64x128x128, in tiles of 128x256.
TILED = Tiling(
    levels=(
        ("distribution", (128, 256, 0)),
        ("cache_parallel", (64, 128, 0)),
        ("cache_reduction", (0, 0, 128)),
        ("vector_common_parallel", (8, 32, 0)),
        ("vector_reduction", (0, 0, 4)),
    ),
    options=(("peel", "false"),),
)
FLAT = Tiling(levels=(("vector_common_parallel", (8, 32, 0)),), options=())


def features(
    tiling: Tiling, *, workload: Workload = MATMUL, threads: int = 1, vector_bytes: int = 64
) -> dict[str, float]:
    hardware = replace(HARDWARE, vector_bytes=vector_bytes)
    extractor = FeatureExtractor(workload, hardware, threads=threads, options=OPTIONS)
    return dict(zip(extractor.names, extractor.matrix([tiling])[0].tolist(), strict=True))


def test_tile_sizes_are_log2_by_slot() -> None:
    found = features(TILED)
    assert found["distribution.tile.m"] == 7
    assert found["distribution.tile.n"] == 8
    assert found["distribution.tile.k"] == pytest.approx(log2(137))
    assert found["cache_reduction.tile.k"] == 7
    assert found["vector_reduction.tile.k"] == 2
    assert found["vector_reduction.tile.other"] == 0


def test_a_loop_that_a_level_does_not_cut_keeps_the_tile_around_it() -> None:
    found = features(TILED)
    assert found["cache_reduction.tile.m"] == found["cache_parallel.tile.m"] == 6
    assert found["vector_inner_parallel.tile.n"] == 5


def test_a_level_that_is_missing_is_a_level_of_zeros() -> None:
    zeros = tuple((level, dict(FLAT.levels).get(level, (0, 0, 0))) for level in CPU_LEVELS)
    assert features(Tiling(zeros, ())) == features(FLAT)


def test_a_tile_larger_than_the_one_around_it_is_cut_to_fit() -> None:
    found = features(Tiling((("distribution", (4, 2048, 0)), ("vector_common_parallel", (8, 32, 0))), ()))
    assert found["distribution.tile.n"] == pytest.approx(log2(1023))
    assert found["vector_common_parallel.tile.m"] == 2


def test_trips_count_tiles_in_the_tile_around() -> None:
    found = features(TILED)
    assert found["distribution.trips.parallel"] == pytest.approx(log2(6 * 4))  # ceil(731/128), ceil(1023/256)
    assert found["distribution.trips.reduction"] == 0
    assert found["cache_parallel.trips.parallel"] == 2
    assert found["cache_reduction.trips.reduction"] == 1  # ceil(137/128)
    assert found["vector_common_parallel.trips.parallel"] == 5
    assert found["vector_reduction.trips.reduction"] == 5


def test_waste_is_padding_up_to_whole_tiles() -> None:
    found = features(FLAT)
    assert found["vector_common_parallel.waste.m"] == pytest.approx(log2(92 * 8 / 731))
    assert found["vector_common_parallel.waste.n"] == pytest.approx(log2(32 * 32 / 1023))
    assert found["vector_common_parallel.waste.k"] == 0


def test_waste_is_counted_in_each_tile_around() -> None:
    nested = Tiling((("distribution", (100, 0, 0)), ("vector_common_parallel", (8, 32, 0))), ())
    # Seven tiles of 100, each 13 vectors of 8, and one of 31 rows: four.
    assert features(nested)["vector_common_parallel.waste.m"] == pytest.approx(log2((7 * 13 + 4) * 8 / 731))


def test_bytes_are_what_one_tile_touches_over_the_cache_size() -> None:
    found = features(TILED)
    in0, in1, out = 64 * 128 * 4, 128 * 128 * 4, 64 * 128 * 4
    assert found["cache_reduction.bytes.in0"] == pytest.approx(log2(in0 / 32768))
    assert found["cache_reduction.bytes.in1"] == pytest.approx(log2(in1 / 32768))
    assert found["cache_reduction.bytes.out"] == pytest.approx(log2(out / 32768))
    assert found["cache_reduction.bytes.total.l2"] == pytest.approx(log2((in0 + in1 + out) / 2**20))
    operations = 2 * 64 * 128 * 128
    assert found["cache_reduction.intensity"] == pytest.approx(log2(operations / (in0 + in1 + out)))


def test_accumulators_are_vectors_of_the_output_tile() -> None:
    found = features(TILED)
    assert found["vector.accumulators"] == pytest.approx(log2(16 / 32))  # 8 x 32 / 16 lanes of 32 registers
    assert found["vector.spilled"] == 0
    assert found["vector.unrolled"] == pytest.approx(log2(16 * 4))


def test_accumulators_beyond_the_registers_are_spilled() -> None:
    wide = Tiling((("vector_common_parallel", (16, 64, 0)),), ())
    # 64 accumulators, a row of 4 and one more; 32 registers.
    assert features(wide)["vector.spilled"] == pytest.approx(log2(1 + 64 + 4 + 1 - 32))


def test_narrower_vectors_need_more_accumulators() -> None:
    assert features(TILED, vector_bytes=32)["vector.accumulators"] == pytest.approx(log2(32 / 32))


def test_contiguous_loops_are_measured_in_lanes() -> None:
    found = features(TILED)
    assert found["vector.contiguous.in0"] == pytest.approx(log2(4 / 16))  # k
    assert found["vector.contiguous.in1"] == found["vector.contiguous.out"] == 1  # n
    assert (found["vector.whole.in0"], found["vector.whole.in1"], found["vector.whole.out"]) == (0, 1, 1)


@pytest.mark.parametrize(("tile_n", "expected"), [(32, 1), (48, 0), (64, 1)])
def test_widths_that_are_no_power_of_two_are_marked(tile_n: int, expected: int) -> None:
    tiling = Tiling((("vector_common_parallel", (8, tile_n, 0)),), ())
    assert features(tiling)["vector.power_of_two"] == expected


def test_remainders_are_peeled_or_masked() -> None:
    masked = features(TILED)
    peeled = features(replace(TILED, options=(("enable_loop_peeling", "true"),)))
    assert masked["remainder.m"] == peeled["remainder.m"] == pytest.approx(3 / 731)
    assert masked["remainder.masked"] == peeled["remainder.peeled"] > 0
    assert masked["remainder.peeled"] == peeled["remainder.masked"] == 0


def test_remainders_of_each_tile_around_are_counted() -> None:
    nested = Tiling((("distribution", (100, 0, 0)), ("vector_common_parallel", (8, 32, 0))), ())
    # Seven tiles of 100 leave 4 rows each, one of 31 leaves 7.
    assert features(nested)["remainder.m"] == pytest.approx((7 * 4 + 7) / 731)


def test_tiles_that_divide_the_loops_leave_nothing_over() -> None:
    found = features(Tiling((("vector_common_parallel", (17, 33, 0)),), ()))
    assert found["remainder.m"] == found["remainder.n"] == found["remainder.masked"] == 0


def test_threads_share_the_distribution_tiles() -> None:
    found = features(Tiling((("distribution", (256, 1023, 0)),), ()), threads=2)
    assert found["threads.tiles"] == pytest.approx(log2(3 / 2))
    assert found["threads.imbalance"] == pytest.approx(log2(4 / 3))


def test_traffic_is_least_where_all_fits() -> None:
    found = features(TILED)
    # All three matrices together are 3.8 MB.
    assert found["traffic.llc"] == 0
    assert found["traffic.registers"] >= found["traffic.l1"] > found["traffic.l2"] > found["traffic.llc"]


def test_traffic_into_registers_falls_with_larger_register_tiles() -> None:
    small = Tiling((("vector_common_parallel", (1, 16, 0)), ("vector_reduction", (0, 0, 1))), ())
    large = Tiling((("vector_common_parallel", (8, 32, 0)), ("vector_reduction", (0, 0, 1))), ())
    assert features(small)["traffic.registers"] > features(large)["traffic.registers"] + 1


def test_an_operand_that_no_cut_loop_moves_through_is_loaded_once() -> None:
    # Only k is cut: the output stays, so that what moves is what there is.
    tiling = Tiling((("vector_reduction", (0, 0, 1)),), ())
    assert features(tiling)["traffic.registers"] == pytest.approx(0)


def test_options_of_words_get_a_column_per_value_and_numbers_one() -> None:
    options = (("peel", "false"), ("peel", "true"), ("unroll", 2), ("unroll", 4))
    extractor = FeatureExtractor(MATMUL, HARDWARE, options=options)
    row = dict(
        zip(
            extractor.names,
            extractor.matrix([replace(FLAT, options=(("peel", "true"), ("unroll", 4)))])[0],
            strict=True,
        )
    )
    assert {name: value for name, value in row.items() if name.startswith("option.")} == {
        "option.peel=false": 0,
        "option.peel=true": 1,
        "option.unroll": 4,
    }


def test_options_in_collects_each_pair_once() -> None:
    tilings = [replace(FLAT, options=(("peel", value), ("unroll", 4))) for value in ("true", "false", "true")]
    assert options_in(tilings) == (("peel", "false"), ("peel", "true"), ("unroll", 4))


def test_a_reduction_uses_the_same_columns_as_a_contraction() -> None:
    row_sum = Workload(
        key="1" * 16,
        op_kind="reduction",
        loops=(Loop(1024, "parallel", "p"), Loop(512, "reduction", "r")),
        operands=(Operand((0, 1), "f32", False), Operand((0,), "f32", True)),
        fused=(),
        flops=1024 * 512,
        bytes=4 * (1024 * 512 + 1024),
    )
    tiling = Tiling((("vector_common_parallel", (4, 0)), ("vector_reduction", (0, 32))), ())
    found = features(tiling, workload=row_sum)
    assert found.keys() == features(FLAT).keys()
    assert found["vector_reduction.tile.n"] == 2
    assert found["vector_reduction.tile.k"] == 5
    assert found["vector_reduction.bytes.in1"] == 0


def test_a_full_reduction_to_a_scalar_has_finite_features() -> None:
    total = Workload(
        key="2" * 16,
        op_kind="reduction",
        loops=(Loop(512, "reduction", "r"),),
        operands=(Operand((0,), "bf16", False), Operand((), "f32", True)),
        fused=(),
        flops=512,
        bytes=1028,
    )
    found = features(Tiling((("vector_reduction", (32,)),), ()), workload=total)
    assert np.isfinite(list(found.values())).all()


def test_matrix_is_the_rows_of_each_tiling() -> None:
    extractor = FeatureExtractor(MATMUL, HARDWARE, options=OPTIONS)
    tilings = [tiling for c in draw(np.random.default_rng(0), 30) if (tiling := describe(c)) is not None]
    matrix = extractor.matrix(tilings)
    assert matrix.shape == (30, len(extractor.names))
    assert np.isfinite(matrix).all()
    assert np.array_equal(matrix[11], extractor.matrix([tilings[11]])[0])
    assert extractor.matrix([]).shape == (0, len(extractor.names))


def test_column_names_are_unique_and_do_not_depend_on_the_workload() -> None:
    extractor = FeatureExtractor(MATMUL, HARDWARE)
    assert len(set(extractor.names)) == len(extractor.names)
    other = replace(MATMUL, loops=(Loop(8, "parallel", "b"), *MATMUL.loops), operands=(Operand((0, 1), "f32", True),))
    assert FeatureExtractor(other, HARDWARE).names == extractor.names


def test_every_column_is_in_the_documented_table() -> None:
    documented = FeatureExtractor.__doc__ or ""
    for name in FeatureExtractor(MATMUL, HARDWARE).names:
        group, _, rest = name.partition(".")
        stem = rest.split(".")[0] if group in CPU_LEVELS else rest
        prefix = "LEVEL" if group in CPU_LEVELS else group
        known = [line for line in documented.splitlines() if f"`{prefix}." in line and stem.split(".")[0] in line]
        assert known, f"{name} is not documented"


def test_refuses_an_unknown_level_and_a_wrong_number_of_sizes() -> None:
    with pytest.raises(KnobError, match="'subgroup' is not one of"):
        features(Tiling((("subgroup", (1, 1, 1)),), ()))
    with pytest.raises(KnobError, match="for 3 loops"):
        features(Tiling((("distribution", (1, 1)),), ()))


def test_a_thousand_tilings_take_milliseconds() -> None:
    extractor = FeatureExtractor(MATMUL, HARDWARE, options=OPTIONS)
    tilings = [tiling for c in draw(np.random.default_rng(0), 1000) if (tiling := describe(c)) is not None]
    costs = []
    for _ in range(3):
        begin = time.process_time()
        extractor.matrix(tilings)
        costs.append(time.process_time() - begin)
    assert min(costs) < 0.1

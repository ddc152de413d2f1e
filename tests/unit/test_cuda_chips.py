"""The table of chips, and what IREE and the command line make of it."""

from __future__ import annotations

import pytest
from iree.compiler import ir as mlir

from mlsearch.cuda.chips import ARCHITECTURES, PRODUCTS, device_attribute, find_chip
from mlsearch.cuda.device import chip_called
from mlsearch.errors import TargetError, TargetMismatchError
from mlsearch.target import measured_by, resolve


@pytest.mark.parametrize(
    "name", ["sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_120"]
)
def test_every_promised_architecture_is_a_target(name: str) -> None:
    target = resolve(f"cuda:{name}", 1)
    assert target.chip is not None and target.chip.architecture.name == name
    assert target.device_uri == "cuda"


@pytest.mark.parametrize(
    ("product", "architecture"), [("a100", "sm_80"), ("H100", "sm_90"), ("h200", "sm_90"), ("rtx4090", "sm_89")]
)
def test_products_go_by_the_names_that_people_use(product: str, architecture: str) -> None:
    assert find_chip(product).architecture.name == architecture


def test_an_unknown_architecture_gets_the_known_ones() -> None:
    with pytest.raises(TargetError, match=r"'sm_42'; known architectures: sm_60, .*sm_120; known products: .*h100"):
        resolve("cuda:sm_42", 1)


def test_iree_accepts_the_description_of_every_chip() -> None:
    for name in ARCHITECTURES:
        attribute = mlir.Attribute.parse(device_attribute(find_chip(name)), mlir.Context())
        assert f'arch = "{name}"' in str(attribute)


def test_a_chip_has_the_matrix_instructions_that_its_mma_sync_has() -> None:
    def has(name: str, part: str) -> bool:
        return any(part in kind for kind in ARCHITECTURES[name].mma)

    # PTX ISA: m16n8k16 of f16 and bf16 from sm_80 on, m16n8k32 of f8 from sm_89 on, wmma from sm_70 on.
    assert not ARCHITECTURES["sm_61"].mma
    assert has("sm_75", "WMMA") and not has("sm_75", "MMA_SYNC")
    assert has("sm_80", "16x8x16_BF16") and not has("sm_86", "F8E4M3FN")
    assert all(has(name, "F8E4M3FN") for name in ("sm_89", "sm_90", "sm_100", "sm_120"))


def test_limits_are_nvidias() -> None:
    assert ARCHITECTURES["sm_86"].shared_per_block == 99 * 1024
    assert ARCHITECTURES["sm_80"].shared_per_block == 163 * 1024
    assert ARCHITECTURES["sm_90"].shared_per_block == 227 * 1024
    assert {each.registers_per_thread for each in ARCHITECTURES.values()} == {255}
    for each in ARCHITECTURES.values():
        assert each.shared_per_block + each.shared_reserved <= each.shared_per_sm


def test_a_bare_architecture_is_as_large_as_its_typical_product() -> None:
    assert find_chip("sm_90").multiprocessors == PRODUCTS["h100"].multiprocessors
    assert resolve("cuda:sm_90", 1).fingerprint != resolve("cuda:sm_90a", 1).fingerprint


def test_a_product_of_another_size_has_a_name_of_its_own() -> None:
    board = find_chip("h100-114")
    assert (board.name, board.multiprocessors, board.l2_bytes) == ("h100-114", 114, PRODUCTS["h100"].l2_bytes)
    assert find_chip("h100-132") == find_chip("h100")
    assert find_chip("h200-sm_90a").architecture.name == "sm_90a"
    with pytest.raises(TargetError, match="'²' is neither a number"):
        find_chip("h100-²")
    with pytest.raises(TargetError, match="'sm_80' is neither a number of multiprocessors nor a variant of sm_90"):
        find_chip("h100-sm_80")


@pytest.mark.parametrize(
    ("product", "architecture", "multiprocessors", "name"),
    [
        ("NVIDIA H200", "sm_90", 132, "h200"),
        ("NVIDIA H100 PCIe", "sm_90", 114, "h100-114"),
        ("NVIDIA GeForce RTX 4090", "sm_89", 128, "rtx4090"),
        # Not in the table: no other chip, and no bare architecture either, although it has as many multiprocessors.
        ("NVIDIA GH200 480GB", "sm_90", 132, "sm_90-132"),
    ],
)
def test_what_the_driver_names_is_found_by_its_name_on_any_machine(
    product: str, architecture: str, multiprocessors: int, name: str
) -> None:
    chip = chip_called(product, architecture, multiprocessors)
    assert chip.name == name and chip.is_product
    assert find_chip(chip.name) == chip


@pytest.mark.parametrize("built_for", ["cuda:sm_90", "cuda:h100", "cuda:h200"])
def test_times_belong_to_the_product_that_measures(built_for: str) -> None:
    here = find_chip("h200")
    assert measured_by(resolve(built_for, 1), here) == resolve("cuda:h200", 1)


def test_another_variant_of_an_architecture_stays_what_was_compiled_for() -> None:
    assert measured_by(resolve("cuda:sm_90a", 1), find_chip("h200")) == resolve("cuda:h200-sm_90a", 1)


def test_another_architecture_measures_nothing() -> None:
    with pytest.raises(TargetMismatchError, match=r"the GPU is h200 \(sm_90\), not sm_80"):
        measured_by(resolve("cuda:a100", 1), find_chip("h200"))

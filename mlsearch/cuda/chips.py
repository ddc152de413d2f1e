"""NVIDIA architectures and products with their limits.

Sources:
- Threads, warps, blocks, registers and shared memory: CUDA C++ Programming Guide, "Compute Capabilities", table
  "Technical Specifications per Compute Capability"; the same numbers are in libcu++'s `cuda/__device/arch_traits.h`.
- Matrix instructions: PTX ISA, "mma" and "wmma", "Target ISA Notes". `mma.m16n8k16` of f16 and bf16 needs sm_80,
  `mma.m16n8k32` of f8 needs sm_89, `wmma.m16n16k16` of f16 needs sm_70,
  `dp4a` sm_61. IREE 3.13's own table gives `m16n8k16` to
  sm_70 and sm_75 as well, and 163 KiB of shared memory to sm_86: neither is so, hence this one for all of them.
- PTX version: PTX ISA, "Release Notes": the first one that knows the architecture.
- Multiprocessors and L2 caches: NVIDIA's architecture whitepapers and data sheets (GP100, GV100, TU102, GA100, GA102,
  AD102, GH100, GB202).
- Tensor and CUDA core throughput: CUDA C++ Programming Guide, "Arithmetic Instructions"; NVIDIA's whitepapers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mlsearch.errors import TargetError

WARP = 32
REGISTER_BYTES = 4
_SHAPE = re.compile(r"_(\d+)x(\d+)x(\d+)_")

_WMMA = ("NV_WMMA_F32_16x16x16_F16", "NV_WMMA_F16_16x16x16_F16")
_AMPERE = ("NV_MMA_SYNC_F32_16x8x16_F16", "NV_MMA_SYNC_F16_16x8x16_F16", "NV_MMA_SYNC_F32_16x8x16_BF16", *_WMMA)
_ADA = (*_AMPERE[:3], "NV_MMA_SYNC_F32_16x8x32_F8E4M3FN", "NV_MMA_SYNC_F32_16x8x32_F8E5M2", *_WMMA)


@dataclass(frozen=True)
class Architecture:
    """What all chips of a compute capability have in common."""

    name: str
    """`sm_90`, as ptxas and IREE call it."""
    family: str
    ptx: int
    """PTX version that IREE writes: 80 is 8.0."""
    mma: tuple[str, ...]
    """Matrix instructions, by IREE's names."""
    warps_per_sm: int
    blocks_per_sm: int
    shared_per_sm: int
    """Bytes, the driver's share included."""
    shared_per_block: int
    """Bytes that a block can opt in to."""
    shared_reserved: int
    """Bytes that the driver takes of each block's."""
    mma_flops_per_cycle: int
    """Of one multiprocessor with `mma.sync` of f16 into f32; 0 without tensor cores."""
    fma_per_cycle: int
    """f32 multiply-adds of one multiprocessor."""
    has_dp4a: bool
    threads_per_block: int = 1024
    registers_per_sm: int = 64 * 1024
    registers_per_block: int = 64 * 1024
    registers_per_thread: int = 255

    @property
    def has_async_copy(self) -> bool:
        """`cp.async`, from sm_80 on."""
        return self.shared_reserved > 0


def _architecture(
    name: str,
    family: str,
    ptx: int,
    mma: tuple[str, ...],
    warps_blocks: tuple[int, int],
    shared_kib: tuple[int, int],
    throughput: tuple[int, int],
    has_dp4a: bool = True,
    registers_per_block: int = 64 * 1024,
) -> Architecture:
    """`shared_kib`: per multiprocessor and per block. `throughput`: f16 tensor FLOPs and f32 FMAs per cycle."""
    return Architecture(
        name=name,
        family=family,
        ptx=ptx,
        mma=mma,
        warps_per_sm=warps_blocks[0],
        blocks_per_sm=warps_blocks[1],
        shared_per_sm=shared_kib[0] * 1024,
        shared_per_block=shared_kib[1] * 1024,
        shared_reserved=1024 if int(name[3:].rstrip("a")) >= 80 else 0,
        mma_flops_per_cycle=throughput[0],
        fma_per_cycle=throughput[1],
        has_dp4a=has_dp4a,
        registers_per_block=registers_per_block,
    )


ARCHITECTURES = {
    each.name: each
    for each in (
        _architecture("sm_60", "Pascal", 76, (), (64, 32), (64, 48), (0, 64), has_dp4a=False),
        _architecture("sm_61", "Pascal", 76, (), (64, 32), (96, 48), (0, 128)),
        _architecture("sm_62", "Pascal", 76, (), (64, 32), (64, 48), (0, 128), registers_per_block=32 * 1024),
        _architecture("sm_70", "Volta", 76, _WMMA, (64, 32), (96, 96), (1024, 64)),
        _architecture("sm_72", "Volta", 76, _WMMA, (64, 32), (96, 96), (1024, 64)),
        _architecture("sm_75", "Turing", 76, _WMMA, (32, 16), (64, 64), (1024, 64)),
        _architecture("sm_80", "Ampere", 76, _AMPERE, (64, 32), (164, 163), (2048, 64)),
        _architecture("sm_86", "Ampere", 76, _AMPERE, (48, 16), (100, 99), (1024, 128)),
        _architecture("sm_87", "Ampere", 76, _AMPERE, (48, 16), (164, 163), (1024, 128)),
        _architecture("sm_89", "Ada", 84, _ADA, (48, 24), (100, 99), (1024, 128)),
        # Hopper's full tensor rate needs wgmma, which IREE does not emit; mma.sync reaches about half of it.
        _architecture("sm_90", "Hopper", 80, _ADA, (64, 32), (228, 227), (2048, 128)),
        _architecture("sm_90a", "Hopper", 80, _ADA, (64, 32), (228, 227), (2048, 128)),
        _architecture("sm_100", "Blackwell", 86, _ADA, (64, 32), (228, 227), (2048, 128)),
        _architecture("sm_120", "Blackwell", 87, _ADA, (48, 24), (100, 99), (1024, 128)),
    )
}


@dataclass(frozen=True)
class Chip:
    """An architecture, and of a product also how much of it there is."""

    name: str
    """What `find_chip` finds an equal chip by, on any machine: `h100`, `sm_90`, `h100-114`."""
    architecture: Architecture
    multiprocessors: int
    """Of the product; for a bare architecture those of its largest common product."""
    l2_bytes: int
    bytes_per_cycle: int
    """Memory bandwidth over the boost clock: round numbers, for estimates only."""

    @property
    def is_product(self) -> bool:
        """Something that exists and can be measured, not all of an architecture's products at once."""
        return self.name not in ARCHITECTURES


_MIB = 1024 * 1024


def _chip(name: str, architecture: str, multiprocessors: int, l2_mib: int, bytes_per_cycle: int) -> Chip:
    return Chip(name, ARCHITECTURES[architecture], multiprocessors, l2_mib * _MIB, bytes_per_cycle)


PRODUCTS = {
    each.name: each
    for each in (
        _chip("p100", "sm_60", 56, 4, 550),
        _chip("gtx1080ti", "sm_61", 28, 3, 300),
        _chip("v100", "sm_70", 80, 6, 590),
        _chip("t4", "sm_75", 40, 4, 200),
        _chip("rtx2080ti", "sm_75", 68, 6, 400),
        _chip("a100", "sm_80", 108, 40, 1100),
        _chip("a10", "sm_86", 72, 6, 350),
        _chip("a40", "sm_86", 84, 6, 400),
        _chip("rtx3090", "sm_86", 82, 6, 550),
        _chip("l4", "sm_89", 58, 48, 150),
        _chip("l40s", "sm_89", 142, 96, 340),
        _chip("rtx4090", "sm_89", 128, 72, 400),
        _chip("h100", "sm_90", 132, 50, 1700),
        _chip("h200", "sm_90", 132, 50, 2450),
        _chip("b200", "sm_100", 148, 126, 4100),
        _chip("rtx5090", "sm_120", 170, 96, 740),
    )
}

_TYPICAL = {
    "sm_60": "p100",
    "sm_61": "gtx1080ti",
    "sm_70": "v100",
    "sm_75": "rtx2080ti",
    "sm_80": "a100",
    "sm_86": "rtx3090",
    "sm_89": "rtx4090",
    "sm_90": "h100",
    "sm_90a": "h100",
    "sm_100": "b200",
    "sm_120": "rtx5090",
}
_EMBEDDED = {"sm_62": (2, 1, 40), "sm_72": (8, 1, 100), "sm_87": (16, 4, 160)}
"""Boards: multiprocessors, MiB of L2, bytes per cycle."""


def find_chip(name: str) -> Chip:
    """A chip by architecture (`sm_90`) or product (`h100`, in any case), with another number of multiprocessors behind
    a dash where it has one: `h100-114` is the PCIe board. `h100-sm_90a` is the product with code for that architecture.

    Raises TargetError listing what is known.
    """
    plain, *parts = name.lower().split("-")
    found = _plainly_named(plain, name)
    for part in parts:
        if part.isascii() and part.isdigit() and 0 < int(part) < 1000:
            found = of_size(found, int(part))
        elif part in ARCHITECTURES and part.rstrip("a") == found.architecture.name.rstrip("a"):
            found = for_architecture(found, ARCHITECTURES[part])
        else:
            raise TargetError(
                f"CUDA target '{name}': '{part}' is neither a number of multiprocessors nor a variant of"
                f" {found.architecture.name}"
            )
    return found


def of_size(chip: Chip, multiprocessors: int) -> Chip:
    """The chip with so many multiprocessors: a smaller board, or a part of one. As itself if it has as many, unless it
    is a bare architecture."""
    if chip.is_product and multiprocessors == chip.multiprocessors:
        return chip
    return replace(chip, name=f"{chip.name}-{multiprocessors}", multiprocessors=multiprocessors)


def for_architecture(chip: Chip, architecture: Architecture) -> Chip:
    """The chip with code for another variant of its architecture, `sm_90a` beside `sm_90`."""
    if architecture == chip.architecture:
        return chip
    return replace(chip, name=f"{chip.name}-{architecture.name}", architecture=architecture)


def _plainly_named(plain: str, name: str) -> Chip:
    if plain in PRODUCTS:
        return PRODUCTS[plain]
    if plain not in ARCHITECTURES:
        raise TargetError(
            f"unknown CUDA target '{name}'; known architectures: {', '.join(ARCHITECTURES)}; "
            f"known products: {', '.join(PRODUCTS)}"
        )
    if plain in _EMBEDDED:
        return _chip(plain, plain, *_EMBEDDED[plain])
    product = PRODUCTS[_TYPICAL[plain]]
    return Chip(plain, ARCHITECTURES[plain], product.multiprocessors, product.l2_bytes, product.bytes_per_cycle)


def device_attribute(chip: Chip) -> str:
    """The `#hal.device.target` that tells IREE of this chip, for its flag `--iree-hal-target-device`.

    IREE's own `--iree-cuda-target` ends at sm_89, and its descriptions differ from NVIDIA's documents in places.
    """
    own = chip.architecture
    mma = f"mma = [{', '.join(f'<{name}>' for name in own.mma)}], " if own.mma else ""
    dot = "dot = dp4xi8toi32, " if own.has_dp4a else ""
    return (
        '#hal.device.target<"cuda", [#hal.executable.target<"cuda", "cuda-nvptx-fb", '
        f'{{iree_codegen.target_info = #iree_gpu.target<arch = "{own.name}", features = "+ptx{own.ptx}", wgp = <'
        "compute = fp64|fp32|fp16|int64|int32|int16|int8, storage = b64|b32|b16|b8, subgroup = shuffle|arithmetic, "
        f"{dot}{mma}subgroup_size_choices = [{WARP}], max_workgroup_sizes = [1024, 1024, 64], "
        f"max_thread_count_per_workgroup = {own.threads_per_block}, "
        f"max_workgroup_memory_bytes = {own.shared_per_block}, "
        "max_workgroup_counts = [2147483647, 65535, 65535]>>}>]>"
    )


def matrix_instruction(text: str) -> tuple[int, int, int] | None:
    """(m, n, k) of a matrix instruction by its name; None for one of unknown shape, and for other text."""
    match = _SHAPE.search(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None

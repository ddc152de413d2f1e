"""The GPU of this machine, asked through NVIDIA's driver library: the one that IREE's CUDA runtime loads as well."""

from __future__ import annotations

import ctypes
from dataclasses import replace

from mlsearch.cuda.chips import ARCHITECTURES, PRODUCTS, Chip, find_chip
from mlsearch.errors import TargetError

_LIBRARY = "libcuda.so.1"
# CUdevice_attribute
_MULTIPROCESSORS = 16
_L2_BYTES = 38
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


def this_machines_chip() -> Chip:
    """The first CUDA device. Raises TargetError where there is none, or one of an unknown architecture."""
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise _none(f"{_LIBRARY} is not installed") from None
    if code := driver.cuInit(0):
        raise _none(f"NVIDIA's driver says error {code}")
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise _none("NVIDIA's driver knows of no device")
    device = ctypes.c_int()
    driver.cuDeviceGet(ctypes.byref(device), 0)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), device)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, device)
        return value.value

    architecture = f"sm_{attribute(_CAPABILITY_MAJOR)}{attribute(_CAPABILITY_MINOR)}"
    product = name.value.decode(errors="replace")
    if architecture not in ARCHITECTURES:
        raise TargetError(f"{product} is of the unknown architecture {architecture}; known: {', '.join(ARCHITECTURES)}")
    return replace(
        _named(product, architecture), multiprocessors=attribute(_MULTIPROCESSORS), l2_bytes=attribute(_L2_BYTES)
    )


def _named(product: str, architecture: str) -> Chip:
    """The product as this package calls it, else the bare architecture."""
    words = (
        product.lower().replace("geforce ", "").replace("-", " ").replace(" ti", "ti").replace("rtx ", "rtx").split()
    )
    for word in words:
        if word in PRODUCTS and PRODUCTS[word].architecture.name == architecture:
            return PRODUCTS[word]
    return find_chip(architecture)


def _none(reason: str) -> TargetError:
    return TargetError(
        f"no CUDA device on this machine ({reason}); to build for one that is elsewhere, name it and measure nothing"
        " here: --target cuda:sm_90 --no-device"
    )

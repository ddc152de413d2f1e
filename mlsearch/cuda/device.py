"""The GPU of this machine, asked through NVIDIA's driver library: the one that IREE's CUDA runtime loads as well."""

from __future__ import annotations

import ctypes

from mlsearch.cuda.chips import ARCHITECTURES, PRODUCTS, Chip, find_chip, of_size
from mlsearch.errors import NoDeviceError, TargetError

_LIBRARY = "libcuda.so.1"
# CUdevice_attribute
_MULTIPROCESSORS = 16
_CAPABILITY_MAJOR = 75
_CAPABILITY_MINOR = 76


def this_machines_chip(device: str = "cuda") -> Chip:
    """The CUDA device that an IREE URI names, e.g. `cuda://1`; the first one for `cuda`. Its name finds an equal chip
    on any machine.

    Raises NoDeviceError where there is none, TargetError for one of an unknown architecture.
    """
    try:
        driver = ctypes.CDLL(_LIBRARY)
    except OSError:
        raise _none(f"{_LIBRARY} is not installed") from None
    if code := driver.cuInit(0):
        raise _none(f"NVIDIA's driver says error {code}")
    count = ctypes.c_int()
    if driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        raise _none("NVIDIA's driver knows of no device")
    handle = _handle(driver, device.partition("://")[2], count.value)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, len(name), handle)

    def attribute(number: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        return value.value

    architecture = f"sm_{attribute(_CAPABILITY_MAJOR)}{attribute(_CAPABILITY_MINOR)}"
    return chip_called(name.value.decode(errors="replace"), architecture, attribute(_MULTIPROCESSORS))


def chip_called(product: str, architecture: str, multiprocessors: int) -> Chip:
    """The chip that the driver describes like this; a product that this package does not know is its architecture with
    so many multiprocessors. Raises TargetError for an unknown architecture."""
    if architecture not in ARCHITECTURES:
        raise TargetError(f"{product} is of the unknown architecture {architecture}; known: {', '.join(ARCHITECTURES)}")
    words = (
        product.lower().replace("geforce ", "").replace("-", " ").replace(" ti", "ti").replace("rtx ", "rtx").split()
    )
    for word in words:
        if word in PRODUCTS and PRODUCTS[word].architecture.name == architecture:
            return of_size(PRODUCTS[word], multiprocessors)
    return of_size(find_chip(architecture), multiprocessors)


def _handle(driver: ctypes.CDLL, path: str, count: int) -> ctypes.c_int:
    """By number, or by UUID as IREE writes it."""
    device = ctypes.c_int()
    if path.isdigit() and int(path) < count:
        driver.cuDeviceGet(ctypes.byref(device), int(path))
        return device
    for number in range(count):
        driver.cuDeviceGet(ctypes.byref(device), number)
        uuid = ctypes.create_string_buffer(16)
        driver.cuDeviceGetUuid(uuid, device)
        if path.upper().removeprefix("GPU-").replace("-", "") == uuid.raw.hex().upper():
            return device
    driver.cuDeviceGet(ctypes.byref(device), 0)
    return device


def _none(reason: str) -> NoDeviceError:
    return NoDeviceError(f"no CUDA device on this machine ({reason})")

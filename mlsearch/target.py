"""Where code runs: backend, hardware facts, compiler flags, runtime device; with a fingerprint."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import version
from pathlib import Path

from mlsearch.candidate import digest
from mlsearch.cuda.chips import Chip, device_attribute, find_chip, for_architecture
from mlsearch.cuda.device import this_machines_chip
from mlsearch.errors import NoDeviceError, TargetError, TargetMismatchError

_CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class Hardware:
    """Facts that knob domains, constraints and features are derived from."""

    name: str
    vector_bytes: int
    """Width of a vector register."""
    vector_registers: int
    l1_bytes: int
    """First-level data cache of one core."""
    l2_bytes: int
    """Second-level cache of one core."""
    llc_bytes: int
    """Last-level cache; the runner flushes this much for a cold measurement."""
    cores: int
    """Of a GPU: multiprocessors."""


@dataclass(frozen=True)
class Target:
    backend: str
    """`llvm-cpu` or `cuda`."""
    hardware: Hardware
    compile_flags: tuple[str, ...]
    """What `iree-compile` needs to build for it."""
    threads: int
    chip: Chip | None = None
    """Of an NVIDIA GPU."""

    @property
    def device_uri(self) -> str:
        """IREE runtime device. On a CPU one thread runs in the caller, more run in a pool."""
        if self.chip is not None:
            return "cuda"
        return "local-sync" if self.threads == 1 else "local-task"

    @property
    def fingerprint(self) -> str:
        """Equal fingerprints: times are comparable, and a tuned spec carries over."""
        return digest([self.backend, asdict(self.hardware), self.compile_flags, self.threads, compiler_version()])


def compiler_version() -> str:
    return version("iree-base-compiler")


def runtime_version() -> str:
    return version("iree-base-runtime")


def resolve(name: str, threads: int) -> Target:
    """The target called `name`: `llvm-cpu`, the host's CPU; `llvm-cpu:l2_bytes=1048576,...`, the same with other facts
    than the operating system tells; `cuda`, the host's GPU; `cuda:sm_90` or `cuda:h100`, a GPU anywhere.

    Raises TargetError for another name, for a GPU that is not there, for a fact that is none, or for a thread count
    that the host does not have.
    """
    backend, _, detail = name.partition(":")
    if backend == "cuda":
        return cuda_target(find_chip(detail) if detail else _own_chip())
    if backend != "llvm-cpu":
        raise TargetError(
            f"unknown target '{name}'; known: llvm-cpu (this machine's CPU), cuda (this machine's GPU), cuda:NAME "
            "for a GPU by architecture or product, e.g. cuda:sm_90 or cuda:h100"
        )
    hardware = _with_facts(host_hardware(), name, detail)
    if not 1 <= threads <= hardware.cores:
        raise TargetError(f"--threads {threads}: this machine has {hardware.cores} core(s)")
    flags = (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
    )
    return Target("llvm-cpu", hardware, flags, threads)


def _with_facts(hardware: Hardware, name: str, detail: str) -> Hardware:
    """`detail`: `FACT=NUMBER` separated by commas, in the terms of `Hardware`."""
    known = [each.name for each in fields(Hardware) if each.name != "name"]
    facts: dict[str, int] = {}
    for part in detail.split(",") if detail else ():
        fact, _, value = part.partition("=")
        if fact not in known or not value.isascii() or not value.isdigit() or int(value) == 0:
            raise TargetError(f"--target {name}: '{part}' is no fact; write FACT=NUMBER with one of {', '.join(known)}")
        facts[fact] = int(value)
    return replace(hardware, **facts)  # type: ignore[arg-type]


def cuda_target(chip: Chip) -> Target:
    """A GPU as a target. The host's threads have no part in it."""
    own = chip.architecture
    hardware = Hardware(
        name=f"NVIDIA {chip.name} ({own.name}, {own.family})"
        if chip.name != own.name
        else f"NVIDIA {own.name} ({own.family})",
        vector_bytes=16,  # the widest load of a thread
        vector_registers=own.registers_per_thread,
        l1_bytes=own.shared_per_block,
        l2_bytes=chip.l2_bytes,
        llc_bytes=chip.l2_bytes,
        cores=chip.multiprocessors,
    )
    return Target("cuda", hardware, (f"--iree-hal-target-device={device_attribute(chip)}",), 1, chip)


def require_device(target: Target) -> Target:
    """The target as it is measured here. Raises TargetError unless it is this machine, or its GPU."""
    if target.chip is None:
        return target
    try:
        return measured_by(target, this_machines_chip())
    except NoDeviceError as error:
        raise NoDeviceError(
            f"{error}, so nothing can be measured for {target.chip.name} here; `mlsearch tune --no-device` and"
            " `mlsearch bundle export` build for it, `mlsearch compile` tells whether a spec is applied"
        ) from None
    except TargetMismatchError as error:
        raise TargetError(f"{error}; give --target cuda, or --no-device") from None


def _own_chip() -> Chip:
    """This machine's GPU. Raises TargetError, saying how to go on without one."""
    try:
        return this_machines_chip()
    except NoDeviceError as error:
        raise NoDeviceError(
            f"{error}; for one that is elsewhere, name it and measure nothing here: --target cuda:sm_90, with"
            " `mlsearch tune` also --no-device"
        ) from None


def measured_by(target: Target, here: Chip) -> Target:
    """The GPU target that times belong to where `here` measures code for `target`: always a product. What was built for
    a bare architecture, or for another product of the same one, is the same code, but takes its own time.

    Raises TargetMismatchError for a GPU of another architecture.
    """
    assert target.chip is not None
    wanted = target.chip
    if wanted.architecture.name.rstrip("a") != here.architecture.name.rstrip("a"):
        raise TargetMismatchError(f"the GPU is {here.name} ({here.architecture.name}), not {wanted.architecture.name}")
    return cuda_target(for_architecture(here, wanted.architecture))


def host_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def host_hardware() -> Hardware:
    """Read from the operating system; conservative guesses where it does not say."""
    cpu_name, features = _cpu_info()
    vector_bytes = 64 if "avx512f" in features else 32 if "avx2" in features else 16
    few_registers = platform.machine() in ("x86_64", "AMD64") and vector_bytes < 64
    caches = _cache_sizes()
    return Hardware(
        name=cpu_name,
        vector_bytes=vector_bytes,
        vector_registers=16 if few_registers else 32,
        l1_bytes=caches.get(1, 32 * 1024),
        l2_bytes=caches.get(2, 512 * 1024),
        llc_bytes=max(caches.values(), default=8 * 1024 * 1024),
        cores=host_cores(),
    )


def _cpu_info() -> tuple[str, frozenset[str]]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown", frozenset()
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields.setdefault(name.strip(), value.strip())
    flags = fields.get("flags") or fields.get("Features") or ""
    return fields.get("model name", "unknown"), frozenset(flags.split())


def _cache_sizes() -> dict[int, int]:
    """Bytes of each data or unified cache that core 0 sees, by level."""
    sizes: dict[int, int] = {}
    for folder in sorted(_CACHE_FOLDER.glob("index*")):
        try:
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            level = int((folder / "level").read_text())
            text = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 1)
        digits = text.rstrip("KMG")
        if digits.isdigit():
            sizes[level] = int(digits) * unit
    return sizes

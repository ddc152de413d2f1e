"""The machine that measures: what it is, how it is doing, and whether it is free. Read cheaply, None where unknown."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mlsearch import __version__
from mlsearch.candidate import TimingMethod
from mlsearch.cuda.chips import Chip
from mlsearch.cuda.device import this_machines_chip
from mlsearch.errors import NoDeviceError, RunnerError, TargetError
from mlsearch.target import Hardware, host_hardware

BUSY_SHARE = 0.15
"""Of all cores together: with more of them at work for others, times say little."""
_LOOK_S = 0.5


@dataclass(frozen=True)
class Site:
    """Where measurements were taken. Only those of sites with equal identity go into one file."""

    host: str
    system: str
    hardware: Hardware
    """Of the CPU and its caches, also where the device is another."""
    device: str
    """IREE's URI."""
    device_name: str
    method: TimingMethod
    runtime: str
    """Version of iree-base-runtime."""
    python: str
    mlsearch: str
    chip: Chip | None = None
    """Of an NVIDIA GPU, as its driver tells."""

    @property
    def identity(self) -> tuple[object, ...]:
        """What decides whether times are comparable. A container's name changes whenever it starts."""
        return (self.hardware, self.device, self.device_name, self.method, self.runtime, self.chip)

    @property
    def text(self) -> str:
        """For people, one line."""
        return f"{self.device} ({self.device_name}) of {self.host}, {self.method} timing, Python {self.python}"


@dataclass(frozen=True)
class Conditions:
    """How the machine was doing right after a measurement."""

    load: float | None
    """Processes that want to run, on average over the last minute; this one is among them."""
    cpu_mhz: float | None
    """Of the fastest core."""
    governor: str | None
    gpu_mhz: float | None
    gpu_temperature_c: float | None


def this_site(device: str, method: TimingMethod) -> Site:
    """Raises RunnerError where IREE's runtime is not installed, or the device is not there."""
    try:
        runtime = version("iree-base-runtime")
    except PackageNotFoundError:
        raise RunnerError(
            f"{sys.executable} has no IREE runtime; run: {sys.executable} -m pip install iree-base-runtime"
        ) from None
    hardware = host_hardware()
    return Site(
        host=platform.node() or "unknown",
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        hardware=hardware,
        device=device,
        device_name=hardware.name if is_cpu(device) else _device_name(device),
        method=method,
        runtime=runtime,
        python=platform.python_version(),
        mlsearch=__version__,
        chip=_chip(device),
    )


def _chip(device: str) -> Chip | None:
    if not device.startswith("cuda"):
        return None
    try:
        return this_machines_chip(device)
    except NoDeviceError as error:
        raise RunnerError(str(error)) from None
    except TargetError:
        return None  # what is wrong shows again, and better, when a program is run


def is_cpu(device: str) -> bool:
    return device.startswith("local-")


def conditions(device: str) -> Conditions:
    clock, temperature = (None, None) if is_cpu(device) else _gpu_state(device)
    return Conditions(
        load=os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        cpu_mhz=_cpu_mhz(),
        governor=_first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") or None,
        gpu_mhz=clock,
        gpu_temperature_c=temperature,
    )


def busy_reason(device: str, busy_share: Callable[[], float | None] | None = None) -> str | None:
    """Why nothing should be timed here now, or None. Looks at the machine for half a second."""
    share = (busy_share or _busy_share)()
    if share is not None and share > BUSY_SHARE:
        return f"{100 * share:.0f} % of its CPU time goes to other processes"
    return None if is_cpu(device) else _gpu_busy_reason(device)


def utc_now() -> str:
    """ISO 8601, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


# --------------------------------------------------------------------------------------------- CPU


def _busy_share() -> float | None:
    """Of all cores together, right now. The load average would still count what ended a minute ago."""
    before = _cpu_ticks()
    if before is None:
        if not hasattr(os, "getloadavg"):
            return None
        return os.getloadavg()[0] / (os.cpu_count() or 1)
    time.sleep(_LOOK_S)
    after = _cpu_ticks()
    if after is None or after[1] == before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


def _cpu_ticks() -> tuple[int, int] | None:
    """Ticks at work and all ticks, since the machine started (Linux)."""
    fields = _first_line("/proc/stat").split()
    if len(fields) < 6 or fields[0] != "cpu":
        return None
    ticks = [int(field) for field in fields[1:9]]
    idle = ticks[3] + ticks[4]  # waiting for a disk is idle as well
    return sum(ticks) - idle, sum(ticks)


def _cpu_mhz() -> float | None:
    try:
        text = Path("/proc/cpuinfo").read_text()
        return max(float(line.partition(":")[2]) for line in text.splitlines() if line.startswith("cpu MHz"))
    except (OSError, ValueError):
        return None


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0].strip()
    except OSError:
        return ""


# --------------------------------------------------------------------------------------------- GPU


def _device_name(device: str) -> str:
    """As IREE's driver calls it."""
    from mlsearch.runner.device import available_devices

    path = device.partition("://")[2]
    found = available_devices(device)
    by_path = {each.get("path"): str(each["name"]) for each in found}
    if path in by_path:
        return by_path[path]
    position = int(path) if path.isdigit() and int(path) < len(found) else 0
    return str(found[position]["name"]) if found else "unknown"


def _gpu_state(device: str) -> tuple[float | None, float | None]:
    """Clock of the multiprocessors in MHz, and temperature in degrees Celsius."""

    def clock(nvml: Any, handle: Any) -> float:
        return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))

    def temperature(nvml: Any, handle: Any) -> float:
        return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))

    return _with_nvml(device, clock), _with_nvml(device, temperature)


def _gpu_busy_reason(device: str) -> str | None:
    def percent_at_work(nvml: Any, handle: Any) -> int:
        return int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)

    def others(nvml: Any, handle: Any) -> list[int]:
        return [each.pid for each in nvml.nvmlDeviceGetComputeRunningProcesses(handle) if each.pid != os.getpid()]

    percent = _with_nvml(device, percent_at_work)
    if percent is not None and percent > 100 * BUSY_SHARE:
        return f"its GPU is at work {percent} % of the time"
    pids = _with_nvml(device, others)
    return f"other processes use its GPU: {', '.join(map(str, pids))}" if pids else None


def _with_nvml(device: str, read: Callable[[Any, Any], Any]) -> Any:
    """What `read` gives for the device; None without nvidia-ml-py, or where the driver doesn't tell.

    To be asked for one fact at a time: a GPU that is cut into instances (MIG) does not tell how much it is at work.
    """
    if not device.startswith("cuda"):
        return None
    try:
        import pynvml
    except ImportError:
        return None
    path = device.partition("://")[2]
    try:
        pynvml.nvmlInit()
        if path.startswith("GPU-"):
            handle = pynvml.nvmlDeviceGetHandleByUUID(path)
        else:
            handle = pynvml.nvmlDeviceGetHandleByIndex(int(path) if path.isdigit() else 0)
        return read(pynvml, handle)
    except pynvml.NVMLError:
        return None

"""Facts of a machine, whether it is free, and the lock of a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import NoReturn

import pytest

from mlsearch.bundle.site import busy_reason, conditions, this_site
from mlsearch.cuda.chips import find_chip
from mlsearch.errors import NoDeviceError, RunnerError, TargetError
from mlsearch.runner.exclusive import exclusive
from mlsearch.runner.timing import timing_method
from mlsearch.target import host_hardware


class FakeNvml(ModuleType):
    """As much of nvidia-ml-py as is asked for."""

    NVMLError = RuntimeError
    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, share: int | None = 0, pids: tuple[int, ...] = ()) -> None:
        """`share` is None where the driver does not tell it."""
        super().__init__("pynvml")
        self.share, self.pids = share, pids
        self.asked: list[object] = []

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        self.asked.append(index)
        if index > 1:
            raise RuntimeError("no such device")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802
        self.asked.append(uuid)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: object) -> SimpleNamespace:  # noqa: N802
        if self.share is None:
            raise RuntimeError("not supported")
        return SimpleNamespace(gpu=self.share)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: object) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=pid) for pid in self.pids]

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802
        return 1980

    def nvmlDeviceGetTemperature(self, handle: object, kind: int) -> int:  # noqa: N802
        return 41


def test_the_site_names_this_machine_and_its_runtime() -> None:
    site = this_site("local-sync", "wall")
    assert site.hardware == host_hardware()
    assert site.runtime == "3.13.0"
    assert "local-sync" in site.text and "wall timing" in site.text


@pytest.mark.parametrize(("uri", "name"), [("cuda", "A"), ("cuda://1", "B"), ("cuda://GPU-2", "B"), ("cuda://9", "A")])
def test_a_device_is_named_as_its_driver_does(monkeypatch: pytest.MonkeyPatch, uri: str, name: str) -> None:
    found = [{"name": "A", "path": "GPU-1"}, {"name": "B", "path": "GPU-2"}]
    monkeypatch.setattr("mlsearch.runner.device.available_devices", lambda uri: found)
    monkeypatch.setattr("mlsearch.bundle.site.this_machines_chip", lambda uri: find_chip("h100"))
    assert this_site(uri, "slope").device_name == name


def test_a_gpu_that_is_not_there_is_an_error_before_anything_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(uri: str) -> NoReturn:
        raise NoDeviceError("no CUDA device on this machine (its driver sleeps)")

    monkeypatch.setattr("mlsearch.bundle.site.this_machines_chip", nothing)
    with pytest.raises(RunnerError, match="its driver sleeps"):
        this_site("cuda://0", "slope")


def test_a_gpu_of_an_unknown_architecture_may_still_run_something(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(uri: str) -> NoReturn:
        raise TargetError("of the unknown architecture sm_999")

    monkeypatch.setattr("mlsearch.bundle.site.this_machines_chip", unknown)
    assert this_site("cuda://0", "slope").chip is None


def test_a_machine_at_work_is_busy_and_an_idle_one_is_not() -> None:
    assert "40 % of its CPU time" in (busy_reason("local-sync", lambda: 0.4) or "")
    assert busy_reason("local-sync", lambda: 0.01) is None
    assert busy_reason("local-sync", lambda: None) is None


def test_the_share_of_busy_cores_is_that_of_right_now() -> None:
    reason = busy_reason("local-sync")
    assert reason is None or "% of its CPU time" in reason


@pytest.mark.parametrize(
    ("nvml", "reason"),
    [
        (FakeNvml(share=90), "its GPU is at work 90 % of the time"),
        (FakeNvml(pids=(4242, os.getpid())), "other processes use its GPU: 4242"),
        (FakeNvml(pids=(os.getpid(),)), None),
        (FakeNvml(share=None, pids=(4242,)), "other processes use its GPU: 4242"),
        (FakeNvml(share=None), None),
    ],
)
def test_a_gpu_is_free_when_nobody_else_uses_it(
    monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, reason: str | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert busy_reason("cuda://0", lambda: 0.0) == reason


def test_clock_and_temperature_are_those_of_the_device_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert (conditions("cuda://1").gpu_mhz, conditions("cuda://GPU-77").gpu_temperature_c) == (1980.0, 41.0)
    assert set(nvml.asked) == {1, "GPU-77"}
    assert conditions("cuda://5").gpu_mhz is None
    assert conditions("local-sync").gpu_mhz is None


def test_without_nvidia_ml_py_a_gpu_is_taken_as_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert busy_reason("cuda", lambda: 0.0) is None
    assert conditions("cuda").gpu_mhz is None


def test_only_devices_that_are_launched_and_waited_for_are_timed_by_slope() -> None:
    methods = [timing_method(uri) for uri in ("local-sync", "local-task", "cuda", "cuda://0", "hip")]
    assert methods == ["wall", "wall", "slope", "slope", "slope"]


HOLD = """
import sys
from pathlib import Path
from mlsearch.runner.exclusive import exclusive
with exclusive(sys.argv[1], print, Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_measurement_waits_and_says_for_whom(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, "local-task", str(tmp_path)]
    said: list[str] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None and holder.stdout is not None
        assert holder.stdout.readline() == "held\n"

        def say(line: str) -> None:
            said.append(line)
            holder.kill()  # however a holder ends, its lock goes with it

        with exclusive("local-sync", say, tmp_path):
            pass
    assert said == [f"waiting for local-sync: process {holder.pid} is measuring"]


def test_another_device_does_not_wait(tmp_path: Path) -> None:
    said: list[str] = []
    with exclusive("local-sync", said.append, tmp_path), exclusive("cuda://0", said.append, tmp_path):
        pass
    assert said == []


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mlsearch-cpu.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(RunnerError, match="can't lock the device"), exclusive("local-sync", print, tmp_path):
        pass
    assert not (tmp_path / "victim").exists()

"""User attributes that one process writes on an Optuna trial for another to read, and who that process is.

Search writes them when it asks; the record store reads them when it meets a trial that nobody finished.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

CANDIDATE = "mlsearch:candidate"
"""Key of the trial's candidate."""
OWNER = "mlsearch:owner"
"""The `Owner` that asked for the trial, as a mapping."""
ABANDONED = "mlsearch:abandoned"
"""True on a failed trial that was never evaluated: its candidate may be asked for again."""


@dataclass(frozen=True)
class Owner:
    """A process, told apart from every other one that had or will have its pid."""

    host: str
    boot: str
    """Id of the machine's current boot, empty where the system has none."""
    namespace: str
    """Pid namespace: a pid means nothing outside of it."""
    pid: int
    started: str
    """Start time in the kernel's own ticks, empty where the system does not say."""

    @staticmethod
    def this_process() -> Owner:
        pid = os.getpid()
        return Owner(_host(), _boot(), _namespace(), pid, _start_of(pid) or "")

    @staticmethod
    def of(attribute: object) -> Owner | None:
        """The owner that `to_attribute` wrote, or None where something else stands."""
        if not isinstance(attribute, dict):
            return None
        try:
            return Owner(**attribute)
        except TypeError:
            return None

    def to_attribute(self) -> dict[str, Any]:
        return asdict(self)

    def is_gone(self) -> bool:
        """Whether it has surely ended. False for a process that can't be seen from here."""
        if self.host != _host():
            return False
        if self.boot != _boot():
            return True
        if self.namespace != _namespace():
            return False
        if Path("/proc/self/stat").exists():
            return _start_of(self.pid) != self.started
        return not _exists(self.pid)


def _host() -> str:
    # Names such as "localhost" are shared by many machines that may use one database.
    return f"{socket.gethostname()}/{_first_line('/etc/machine-id')[:12]}"


def _boot() -> str:
    return _first_line("/proc/sys/kernel/random/boot_id")


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _start_of(pid: int) -> str | None:
    """Field 22 of /proc/PID/stat; None if the process is not there or only waits to be reaped."""
    # The command name, field 2, may hold spaces and parentheses.
    fields = _first_line(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) < 20 or fields[0] in ("Z", "X"):
        return None
    return fields[19]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""

"""Memory of a CPU device: what was given back serves the next request. In a process of its own, because the device
pins threads."""

from __future__ import annotations

import subprocess
import sys

KEEPS_MEMORY = """
import numpy as np
from mlsearch.runner.device import Device

device = Device("local-sync", 1, llc_bytes=0)
size = 64 << 20  # more than malloc ever keeps
buffer = device.allocate(size)
device.fill(buffer, 7)
del buffer
assert bytes(np.asarray(device.allocate(size).map())[:4]) == bytes([7] * 4)
"""


def test_memory_that_was_given_back_serves_the_next_request() -> None:
    done = subprocess.run([sys.executable, "-c", KEEPS_MEMORY], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Runs one tool and goes with whoever asked for it: `python -I -S leash.py PARENT STATUS TOOL [ARGUMENT...]`.

A process that is killed outright can't end the tools that it started. The kernel tells this one of its parent's end
(Linux only), and it then ends its process group, which it must lead: the tool, and what the tool started. Otherwise it
exits as the tool does. If the tool can't be started, it writes the error's number to the descriptor STATUS.

Run as a file of its own, without this package, so that it costs a few hundredths of a second.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from types import FrameType

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, status = int(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTERM, _end_group)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit("whoever asked for the tool ended before it was started")
    os.set_inheritable(status, False)
    try:
        # Python ignores these two, and a new process would go on to.
        tool = os.posix_spawnp(sys.argv[3], sys.argv[3:], os.environ, setsigdef=[signal.SIGPIPE, signal.SIGXFSZ])
    except OSError as error:
        os.write(status, str(error.errno).encode())
        raise SystemExit(127) from None
    os.close(status)
    code = os.waitstatus_to_exitcode(os.waitpid(tool, 0)[1])
    if code < 0:
        _end_by(-code)  # real-time signals have numbers and no names
    raise SystemExit(code)


def _end_group(number: int, frame: FrameType | None) -> None:
    os.killpg(0, signal.SIGKILL)


def _end_by(cause: int) -> None:
    """As the tool ended, so that whoever waits sees the same."""
    if cause != signal.SIGKILL:
        signal.signal(cause, signal.SIG_DFL)
    os.kill(os.getpid(), cause)


if __name__ == "__main__":
    main()

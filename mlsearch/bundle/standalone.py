"""The runner of bundles on its own, for a machine that has IREE's runtime and NumPy but not mlsearch:

    python runner.pyz run BUNDLE -o MEASURED

`mlsearch bundle runner -o runner.pyz` writes that file.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from mlsearch import __version__
from mlsearch.bundle.measure import MeasureOptions, Progress, measure_bundle
from mlsearch.durations import parse_duration
from mlsearch.errors import MlsearchError
from mlsearch.printable import one_line
from mlsearch.runner.local import WORKER

INTERRUPTED = 130
"""Exit code: 128 + SIGINT, as a shell reports it."""


def main(worker: str | Sequence[str] = WORKER) -> int:
    """Exit code of the command in `sys.argv`. `worker` is what starts this program as `runner.pyz worker`."""
    if sys.argv[1:2] == ["worker"]:
        del sys.argv[1]
        from mlsearch.runner.worker import main as serve

        serve()
        return 0
    options = _read_options(sys.argv[1:], worker)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    try:
        progress = measure_bundle(options, _say)
    except (MlsearchError, OSError) as error:
        _say(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        _say(f"interrupted; what was measured is in {options.output}, the same command goes on")
        return INTERRUPTED
    _say(closing_line(progress, options.output))
    return 0


def closing_line(progress: Progress, output: Path) -> str:
    """How far a run came, and how to go on."""
    if progress.is_complete:
        return f"all {progress.of} artifacts are measured: {output}"
    done = f"{progress.measured} of {progress.of} artifacts are measured in {output}"
    if progress.measured == progress.of:
        done += f", but the fastest of {progress.compared} of {progress.tasks} tasks only are compared in pairs"
    return f"{done}; the same command goes on"


def _read_options(arguments: Sequence[str], worker: str | Sequence[str]) -> MeasureOptions:
    parser = argparse.ArgumentParser(description="Measures what a bundle of mlsearch holds.")
    parser.add_argument("--version", action="version", version=f"mlsearch {__version__}")
    run = parser.add_subparsers(dest="command", required=True).add_parser("run", help="measure, or go on measuring")
    run.add_argument("bundle", metavar="BUNDLE", type=Path)
    run.add_argument("-o", "--output", metavar="MEASURED", type=Path, required=True, help="file to append to")
    run.add_argument("--max-time", metavar="TIME", type=_duration, help="stop after this long: 90s, 10m, 1h30m")
    run.add_argument("--device", metavar="URI", help="IREE's device, e.g. cuda://0 (default: that of the target)")
    run.add_argument("--even-if-busy", action="store_true", help="measure although others use the machine")
    parsed = parser.parse_args(arguments)
    return MeasureOptions(
        parsed.bundle, parsed.output, parsed.max_time, parsed.device, parsed.even_if_busy, worker=worker
    )


def _duration(text: str) -> float:
    seconds = parse_duration(text)
    if seconds is None or not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time such as 90s, 10m, 1h30m or 600")
    return seconds


def _leave(number: int, frame: object) -> NoReturn:
    """Unwind, so that what was unpacked is removed: a batch system ends its jobs like this."""
    # A second one, e.g. the SIGTERM that follows a SIGHUP, must not stop the removing half-way.
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _say(line: str) -> None:
    sys.stderr.write(f"mlsearch: {one_line(line)}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())

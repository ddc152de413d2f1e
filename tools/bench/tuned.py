"""From a payload to a tuned artifact, as a user gets it: `mlsearch tune`, then `mlsearch compile` with the spec."""

from __future__ import annotations

import ctypes
import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class TuningFailed(Exception):
    """A command of mlsearch failed; the message is its own last line."""


@dataclass(frozen=True)
class Budget:
    """As `mlsearch tune` takes it."""

    name: str
    trials: int | None = None
    max_time: str | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        trials = () if self.trials is None else ("--trials", str(self.trials))
        time = () if self.max_time is None else ("--max-time", self.max_time)
        return (*trials, *time) or ("--budget", self.name)


def tune_argv(payload: Path, folder: Path, budget: Budget, threads: int) -> list[str]:
    """What leaves `tuned.spec.mlir` and `tuned.json` in `folder`, and goes on from the store that is there."""
    return [
        *(sys.executable, "-m", "mlsearch.cli.main", "tune", str(payload)),
        *(*budget.arguments, "--threads", str(threads), "--quiet"),
        *("--store", str(folder / "store.journal"), "-o", str(folder / "tuned.spec.mlir")),
        *("--json", str(folder / "tuned.json")),
    ]


def compile_argv(payload: Path, spec: Path, artifact: Path) -> list[str]:
    """Plain iree-compile with what the spec asks for, and a proof that each of its entries is applied."""
    return [
        *(sys.executable, "-m", "mlsearch.cli.main", "compile", str(payload)),
        *("--spec", str(spec), "-o", str(artifact)),
    ]


def tune(payload: Path, folder: Path, budget: Budget, threads: int) -> Path:
    """The spec, from an earlier run if that was finished. Raises TuningFailed."""
    spec, summary = folder / "tuned.spec.mlir", folder / "tuned.json"
    folder.mkdir(parents=True, exist_ok=True)
    if not (spec.is_file() and summary.is_file() and not _read(summary)["interrupted"]):
        _run(tune_argv(payload, folder, budget, threads))
    if _read(summary)["interrupted"]:
        raise KeyboardInterrupt
    return spec


def build_tuned(payload: Path, spec: Path, artifact: Path) -> None:
    """The one way from payload and spec to what is measured as tuned. Raises TuningFailed."""
    _run(compile_argv(payload, spec, artifact))


def tuning_facts(folder: Path) -> dict[str, str]:
    """What a finished `tune` says of itself: seconds, the payload's variant, trials, entries."""
    summary = _read(folder / "tuned.json")
    tasks = summary["tasks"]
    return {
        "tuning_s": f"{summary['time']['wall_s']:.0f}",
        "variant": summary["variant"],
        "trials": str(sum(task["trials"] for task in tasks)),
        "entries": str(sum(task["applied"] is True for task in tasks)),
        "templates": ", ".join(dict.fromkeys(task["template"] for task in tasks if task["template"])),
    }


def _read(summary: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(summary.read_text())
    return value


def _run(argv: list[str]) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=subprocess.PIPE,
        check=False,
        preexec_fn=_die_with_parent,
    )
    text = done.stderr.decode(errors="replace").strip()
    if done.returncode == 130:
        raise KeyboardInterrupt
    if done.returncode:
        raise TuningFailed(f"mlsearch {argv[3]}: {text.splitlines()[-1] if text else f'exit code {done.returncode}'}")


def _die_with_parent() -> None:
    """A search must not outlive a run that was killed: the next one would measure beside it (Linux)."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGTERM)

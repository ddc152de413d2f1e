"""The installed command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MLSEARCH = [sys.executable, "-m", "mlsearch.cli.main"]
# On a machine that is busy with other work a run gives no verdict, see `test_finals`. Where a payload is sped up many
# times whatever else runs, tests do without that refusal.
MLSEARCH_ON_A_BUSY_MACHINE = [
    sys.executable,
    "-c",
    "from mlsearch.tune import finals; assert finals.TOO_BUSY > 1; finals.TOO_BUSY = float('inf');"
    "from mlsearch.cli.main import main; main()",
]


def mlsearch(folder: Path, *arguments: str, command: Sequence[str] = MLSEARCH) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def printed(*arguments: object, command: Sequence[str] = MLSEARCH) -> str:
    """What a command that ends well prints on stdout."""
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on stdout, which holds nothing else."""
    assert done.returncode == 0, done.stderr

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(done.stdout, parse_constant=refuse)

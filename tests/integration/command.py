"""The installed command in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

MLSEARCH = [sys.executable, "-m", "mlsearch.cli.main"]


def mlsearch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*MLSEARCH, *arguments], capture_output=True, text=True, timeout=300, check=False, cwd=folder)


def told(done: subprocess.CompletedProcess[str]) -> Any:
    """The JSON on stdout, which holds nothing else."""
    assert done.returncode == 0, done.stderr

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(done.stdout, parse_constant=refuse)

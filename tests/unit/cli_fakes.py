"""Stand-ins for the library behind the commands, so that the command line is tested alone and fast."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


@dataclass(frozen=True)
class FakeTuneOptions:
    payload: Path
    target: str
    trials: int | None
    max_time_s: float | None
    budget: str
    seed: int
    function: str | None
    store: str
    study: str | None
    output: Path
    threads: int
    jobs: int | None
    templates: Path | None
    workdir: Path | None
    sampler: str
    surrogate: bool
    cache: str
    variants: str


def install(monkeypatch: pytest.MonkeyPatch, module: str, **contents: Any) -> None:
    """Have `from module import name` find `contents`, whether or not the module exists."""
    fake = ModuleType(module)
    vars(fake).update(contents)
    monkeypatch.setitem(sys.modules, module, fake)


def install_tune(monkeypatch: pytest.MonkeyPatch, tune: Callable[[FakeTuneOptions, Any], Any]) -> None:
    install(monkeypatch, "mlsearch.tune", TuneOptions=FakeTuneOptions, tune=tune)

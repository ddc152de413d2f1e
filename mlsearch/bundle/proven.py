"""A spec out of what was measured elsewhere: entries that are proven there to be faster, and here to be applied."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsearch import spec as specs
from mlsearch.bundle.decision import Decided
from mlsearch.files import write_atomically
from mlsearch.space.space import Space
from mlsearch.spec import SpecEntry
from mlsearch.target import Target
from mlsearch.task import Task
from mlsearch.workbench import utc_now


@dataclass(frozen=True)
class ProvenSpec:
    path: Path
    entries: tuple[SpecEntry, ...]
    left_out: tuple[tuple[str, str], ...]
    """(task, why it has no entry)."""


def write_spec(
    path: Path,
    payload: Path,
    target: Target,
    decided: Sequence[tuple[Task, Space, Decided | str]],
    measured_on: str,
    workdir: Path,
) -> ProvenSpec:
    """Write the spec of all tasks that have a proven winner; without one it is empty, and says so.

    Plain compiling of the payload from its beginning, which needs no device, shows which entries fire; the others are
    left out. `decided` has for each task the outcome of its paired rounds, or why there is none. Raises SpecError.
    """
    entries: list[SpecEntry] = []
    left_out: list[tuple[str, str]] = []
    for task, space, winner in decided:
        if isinstance(winner, str):
            left_out.append((task.id, winner))
        elif winner.objection:
            left_out.append((task.id, winner.objection))
        else:
            text = space.entry(task.entry_name, winner.candidate)
            entries.append(
                SpecEntry(task.id, task.label, task.functions, task.sites, winner.candidate, winner.speedup, text)
            )

    def text_of(chosen: Sequence[SpecEntry]) -> str:
        whole = f"not timed: its tasks were measured one by one on {measured_on}"
        return specs.spec_text(chosen, payload, target, utc_now(), whole)

    proof = specs.application(text_of(entries), "the spec", payload, None, target, workdir)
    for entry in [entry for entry in entries if entry.name in proof.unused]:
        left_out.append((entry.task, specs.NEVER_FIRES))
        entries.remove(entry)
    write_atomically(path, text_of(entries))
    return ProvenSpec(path, tuple(entries), tuple(left_out))

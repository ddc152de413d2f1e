"""Measure programs that compute the same, each in its own process, in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mlsearch.candidate import Numerics, Signature, TimingPlan
from mlsearch.child import Child
from mlsearch.runner import numerics
from mlsearch.runner.elements import element
from mlsearch.runner.messages import encode_signature
from mlsearch.runner.timing import batch_size
from mlsearch.runner.worker import SELF_WARMING_US

SEED = 0
_START_S, _SAMPLE_S = 300.0, 120.0
NUMPY = "NumPy"

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Variant:
    """One way to compute a sample: an artifact, or NumPy where there is none."""

    name: str
    artifact: Path | None


@dataclass(frozen=True)
class Column:
    """A variant with what was measured."""

    name: str
    samples_us: tuple[float, ...]
    """One per round, in order; empty where it could not be built."""
    numerics: Numerics | None = None
    """Against NumPy, or against the untuned build where NumPy has no such computation."""
    facts: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


class Contender:
    """A variant's process."""

    def __init__(self, variant: Variant, sample: str, signature: Signature, threads: int, folder: Path) -> None:
        """Starts nothing yet."""
        self.variant = variant
        self._signature = signature
        self._outputs = folder / f"{variant.name}.npz"
        engine = "iree" if variant.artifact else "numpy"
        self._child = Child("bench.process", (engine, str(threads)), log=folder / f"{variant.name}.log")
        self._load = {
            "do": "load",
            "sample": sample,
            "artifact": str(variant.artifact),
            "signature": encode_signature(signature),
            "seed": SEED,
            "outputs": str(self._outputs),
        }
        self.call_us = 0.0
        """Shortest of the first calls."""
        self.facts: dict[str, str] = {}

    def start(self) -> None:
        """Load and warm up. Raises RuntimeError, ChildDied, ChildTimeout."""
        answer = self._ask(self._load, _START_S)
        self.call_us, self.facts = answer["call_us"], answer["facts"]

    def sample(self, calls: int) -> float:
        """Mean microseconds of so many calls. Raises as `start` does."""
        # The other programs had the caches in between. A long call fills them itself.
        untimed = 1 if self.call_us < SELF_WARMING_US else 0
        return float(self._ask({"do": "sample", "calls": calls, "untimed": untimed}, _SAMPLE_S)["us"])

    def outputs(self) -> list[Array]:
        """What the first call gave."""
        with np.load(self._outputs) as saved:
            return [
                saved[name].view(element(spec.element_type).dtype)
                for name, spec in zip(saved.files, self._signature.outputs, strict=True)
            ]

    def close(self) -> None:
        self._child.kill()

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        answer = self._child.request(request, timeout_s)
        if "error" in answer:
            raise RuntimeError(f"{self.variant.name}: {answer['error']}")
        return answer


def measure(
    variants: Sequence[Variant], sample: str, signature: Signature, threads: int, rounds: int, folder: Path
) -> list[Column]:
    """One column per variant, in order. The first is what the others' numbers are held against.

    Raises RuntimeError, ChildDied or ChildTimeout if one does not run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        programs = [Contender(variant, sample, signature, threads, folder) for variant in variants]
        for program in programs:
            stack.callback(program.close)
            program.start()
        # The same number of calls for all, so that all are means of equally many.
        calls = batch_size(min(program.call_us for program in programs), TimingPlan(SEED, threads))
        samples = take_turns([program.sample for program in programs], calls, rounds)
        want = programs[0].outputs()
        return [
            Column(program.variant.name, times, worst(program.outputs(), want, signature), program.facts)
            for program, times in zip(programs, samples, strict=True)
        ]


def take_turns(programs: Sequence[Callable[[int], float]], calls: int, rounds: int) -> list[tuple[float, ...]]:
    """`rounds` samples of each, one per round, every round in another order: no program always follows another."""
    samples: list[list[float]] = [[] for _ in programs]
    order = list(range(len(programs)))
    shuffle = random.Random(SEED).shuffle
    for _ in range(rounds):
        shuffle(order)
        for index in order:
            samples[index].append(programs[index](calls))
    return [tuple(times) for times in samples]


def worst(got: Sequence[Array], want: Sequence[Array], signature: Signature) -> Numerics:
    """All outputs as one, held to the same tolerance as every candidate of a search."""
    parts = []
    for one, other, spec in zip(got, want, signature.outputs, strict=True):
        parts.append(numerics.compare(one, other.reshape(one.shape), spec.element_type, signature.reduction_length))
    return numerics.worst(parts)

"""Measure programs that compute the same, each in its own process, in turns."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Literal

import numpy as np

from bench import peak
from mlsearch.candidate import Numerics, Signature
from mlsearch.child import Child, ChildDied, ChildTimeout
from mlsearch.runner import numerics
from mlsearch.runner.elements import element
from mlsearch.runner.messages import encode_signature
from mlsearch.runner.worker import SELF_WARMING_US

SEED = 0
_START_S, _SAMPLE_S = 300.0, 120.0
FEWEST_ROUNDS = 11
MIN_SAMPLE_US = 2000.0
"""What a sample of the fastest program takes at least. Each program waits while the others run, and its first calls
after that are slower, even behind an untimed one: an RMS normalization of 512x2048, tuned, took 185 µs as the mean of
one call, 135 to 147 µs of five, 110 to 112 µs of twenty, where its loop alone takes 81 to 111 µs."""
_ROUNDS_S = 150.0

Array = np.ndarray[Any, Any]
Engine = Literal["iree", "numpy", "torch", "torch-prepacked", "onnx"]


@dataclass(frozen=True)
class Work:
    """A computation and its data, the same for all programs that are compared."""

    computation: str
    signature: Signature
    """As if all operands were arguments."""
    constant: int | None = None
    """Index of the operand that an artifact does not take, since it is a constant there."""

    @property
    def artifact_signature(self) -> Signature:
        inputs = tuple(spec for index, spec in enumerate(self.signature.inputs) if index != self.constant)
        return Signature(self.signature.function, inputs, self.signature.outputs, (), self.signature.reduction_length)


@dataclass(frozen=True)
class Rival:
    """One way to do the work."""

    name: str
    engine: Engine
    artifact: Path | None = None
    """For `iree`."""


@dataclass(frozen=True)
class Column:
    """A rival with what was measured."""

    name: str
    samples_us: tuple[float, ...]
    """One per round, in order; empty where it could not be built or run."""
    numerics: Numerics | None = None
    """Against the first rival."""
    facts: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True)
class Rounds:
    """What was measured of all rivals."""

    columns: tuple[Column, ...]
    peak_us: tuple[float, ...]
    """One call of the kernel of `peak`, on one core, in the same rounds; empty where there is none."""


class RivalProcess:
    """A rival's process."""

    def __init__(self, rival: Rival, work: Work, threads: int, folder: Path) -> None:
        """Starts nothing yet."""
        self.rival = rival
        self._work = work
        self._outputs = folder / f"{rival.name}.npz"
        self._child = Child("bench.process", (rival.engine, str(threads)), log=folder / f"{rival.name}.log")
        self._load = {
            "do": "load",
            "computation": work.computation,
            "artifact": str(rival.artifact),
            "signature": encode_signature(work.signature),
            "artifact_signature": encode_signature(work.artifact_signature),
            "constant": work.constant,
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
                for name, spec in zip(saved.files, self._work.signature.outputs, strict=True)
            ]

    def close(self) -> None:
        self._child.kill()

    def _ask(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        answer = self._child.request(request, timeout_s)
        if "error" in answer:
            raise RuntimeError(f"{self.rival.name}: {answer['error']}")
        return answer


def measure(
    rivals: Sequence[Rival], work: Work, threads: int, rounds: int, folder: Path, peak_artifact: Path | None = None
) -> Rounds:
    """One column per rival, in order. The first is what the others' numbers are held against.

    A rival that can't be loaded or called is a column with the problem. Raises RuntimeError, ChildDied or
    ChildTimeout if the first one is, or if one fails later on.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        programs: list[RivalProcess] = []
        problems: dict[str, str] = {}
        for rival in rivals:
            program = RivalProcess(rival, work, threads, folder)
            stack.callback(program.close)
            try:
                program.start()
            except (RuntimeError, ChildDied, ChildTimeout) as error:
                if not programs:
                    raise
                problems[rival.name] = str(error)
            else:
                programs.append(program)
        # The same number of calls for all, so that all are means of equally many.
        calls = calls_in_a_sample(min(program.call_us for program in programs))
        round_s = calls * sum(program.call_us for program in programs) / 1e6
        turns = [program.sample for program in programs]
        if peak_artifact is not None:
            # Always on one core; several are taken to reach as many times that.
            core = RivalProcess(Rival("peak", "iree", peak_artifact), Work("peak", peak.SIGNATURE), 1, folder)
            stack.callback(core.close)
            core.start()
            turns.append(core.sample)
        samples = take_turns(turns, calls, affordable(rounds, round_s))
        want = programs[0].outputs()
        done = {
            program.rival.name: Column(
                program.rival.name, times, worst(program.outputs(), want, work.signature), program.facts
            )
            for program, times in zip(programs, samples[: len(programs)], strict=True)
        }
    columns = (done.get(each.name) or Column(each.name, (), problem=problems[each.name]) for each in rivals)
    return Rounds(tuple(columns), samples[-1] if peak_artifact is not None else ())


def calls_in_a_sample(fastest_us: float) -> int:
    """How many calls each sample of each program is the mean of."""
    return ceil(MIN_SAMPLE_US / max(fastest_us, 0.1))


def affordable(rounds: int, round_s: float) -> int:
    """So many rounds, or as many as fit into some minutes; never so few that an interval says little."""
    return min(rounds, max(FEWEST_ROUNDS, int(_ROUNDS_S / max(round_s, 1e-6))))


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

"""A small space without IR, for tests of what searches one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np

from mlsearch.candidate import Candidate, KnobValue

TILES: tuple[KnobValue, ...] = (1, 2, 4, 8, 16, 32)


class FakeSpace:
    """`templates` times every (m, n, order) with m * n <= `footprint`; 26 valid ones of 36 by default.

    The knob `order` is in the template `b` only. `time_us` is a time to search for: least at m = 8, n = 4.
    """

    def __init__(
        self,
        templates: Sequence[str] = ("a",),
        footprint: int = 64,
        priors: Sequence[Candidate] = (),
        tiles: tuple[KnobValue, ...] = TILES,
    ) -> None:
        self._templates = tuple(templates)
        self._footprint = footprint
        self._priors = list(priors)
        self._tiles = tiles
        self._all = list(self._enumerate())

    @property
    def size(self) -> int:
        return len(self._all)

    @property
    def distributions(self) -> Mapping[str, tuple[KnobValue, ...]]:
        choices: dict[str, tuple[KnobValue, ...]] = {}
        if len(self._templates) > 1:
            choices["template"] = self._templates
        choices |= {"m": self._tiles, "n": self._tiles}
        if "b" in self._templates:
            choices["order"] = ("mn", "nm")
        return choices

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        picked = rng.choice(len(self._all), size=min(count, len(self._all)), replace=False)
        return [self._all[int(i)] for i in picked]

    def neighbours(self, candidate: Candidate, rng: np.random.Generator, count: int) -> list[Candidate]:
        near = [other for other in self._all if self._distance(candidate, other) in (1, 2)]
        picked = rng.permutation(len(near))[:count]
        return [near[int(i)] for i in picked]

    def repair(self, params: Mapping[str, KnobValue]) -> Candidate | None:
        template = str(params.get("template", self._templates[0]))
        knobs = ("m", "n", "order") if template == "b" else ("m", "n")
        if template not in self._templates or not params.keys() >= set(knobs):
            return None
        candidate = self.candidate(template, **{knob: params[knob] for knob in knobs})
        return candidate if self.is_valid(candidate) else None

    def priors(self) -> list[Candidate]:
        return list(self._priors)

    def params(self, candidate: Candidate) -> dict[str, KnobValue]:
        chosen: dict[str, KnobValue] = {"template": candidate.template} if len(self._templates) > 1 else {}
        return chosen | candidate.knobs

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all)

    def is_valid(self, candidate: Candidate) -> bool:
        knobs = candidate.knobs
        return candidate.template in self._templates and int(knobs["m"]) * int(knobs["n"]) <= self._footprint

    @staticmethod
    def candidate(template: str, **knobs: KnobValue) -> Candidate:
        return Candidate.of(template, f"digest-{template}", knobs)

    @staticmethod
    def time_us(candidate: Candidate) -> float:
        knobs = candidate.knobs
        distance = abs(np.log2(int(knobs["m"])) - 3) + abs(np.log2(int(knobs["n"])) - 2)
        return float(100 * (1 + distance) * (2 if candidate.template == "b" else 1))

    def _enumerate(self) -> Iterator[Candidate]:
        for template in self._templates:
            for m, n in product(self._tiles, self._tiles):
                for order in ("mn", "nm") if template == "b" else (None,):
                    knobs = {"m": m, "n": n} | ({"order": order} if order else {})
                    candidate = self.candidate(template, **knobs)
                    if self.is_valid(candidate):
                        yield candidate

    @staticmethod
    def _distance(one: Candidate, other: Candidate) -> int:
        if one.template != other.template:
            return 9
        return sum(value != other.knobs[knob] for knob, value in one.assignment)

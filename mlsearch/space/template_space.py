"""All valid assignments of one template on one workload.

The domains are joined knob by knob, and each constraint is applied as soon as all its knobs are there, so that the
product of all domains is never built. What is kept is a table of value numbers, a row for each assignment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from mlsearch.candidate import Candidate, KnobValue
from mlsearch.errors import TemplateError
from mlsearch.space.constraints import evaluate, knobs_of, message
from mlsearch.space.knobs import Knob, nearest
from mlsearch.space.template import Template

MOST_ROWS = 2_000_000
"""Larger tables are thinned at random: the search then draws from a uniform sample of the space."""
_MOST_JOINED = 8 * MOST_ROWS
"""Rows at any moment, before constraints have filtered them: a few hundred MB."""
_MOST_SWITCHED_OFF = 2
"""Knobs of a suggestion that are set to 0, or to their default, where it is not valid as it stands."""
_ROLE = re.compile(r"[a-z]\d*")
"""`m` is the innermost loop of its role, `m1` the one around it; see `workload.Loop`."""


class TemplateSpace:
    def __init__(self, template: Template, dims: Mapping[str, int]) -> None:
        """`dims`: value of each dim that the template names (loop sizes by role, facts of the target). A role that
        the workload lacks is a loop of size 1; raises TemplateError for a name that is neither."""
        unknown = [name for name in template.declarations.dims if name not in dims and not _ROLE.fullmatch(name)]
        if unknown:
            raise TemplateError(
                f"template {template.path}: mlsearch.dims names '{unknown[0]}', which is neither a loop's role nor a"
                f" fact; facts here: {', '.join(name for name in dims if not _ROLE.fullmatch(name))}"
            )
        self.template = template
        self.dims = {name: dims.get(name, 1) for name in template.declarations.dims}
        self._whole = template.knobs_on(self.dims)
        self.knobs = tuple(self._narrowed(knob) for knob in self._whole)
        self._names = [knob.name for knob in self.knobs]

    def _narrowed(self, knob: Knob) -> Knob:
        """The knob with the values that constraints on it alone allow on this workload."""
        allowed = self._allowed(knob.name, knob.numbers)
        values = tuple(value for value, ok in zip(knob.values, allowed, strict=True) if ok)
        default = knob.default
        if values and default not in values:
            default = values[0] if knob.is_choice else nearest([int(value) for value in values], int(default))
        return Knob(knob.name, values, default, knob.is_choice)

    def _allowed(self, name: str, numbers: Sequence[int]) -> NDArray[np.bool_]:
        """Which of these numbers the constraints on this knob alone allow."""
        tried = np.array(numbers)
        allowed = np.ones(len(tried), dtype=bool)
        for assertion in self.template.declarations.assertions:
            if knobs_of(assertion.condition) == {name}:
                allowed &= np.broadcast_to(
                    np.asarray(evaluate(assertion.condition, {name: tried}, self.dims)), allowed.shape
                )
        return allowed

    @cached_property
    def _table(self) -> tuple[NDArray[np.int16], float]:
        """(rows of indices into the knobs' values, how many assignments a row stands for)."""
        pending = [
            (knobs_of(assertion.condition), assertion.condition) for assertion in self.template.declarations.assertions
        ]
        whole = {knob.name: knob for knob in self._whole}
        full = {knob.name: np.array([whole[knob.name].number(value) for value in knob.values]) for knob in self.knobs}
        # Constraints on the workload alone decide whether there is any assignment.
        applies = all(bool(evaluate(condition, {}, self.dims)) for names, condition in pending if not names)
        rows = np.zeros((int(applies), 0), dtype=np.int16)
        weight = 1.0
        rng = np.random.default_rng(0)  # the sample of a huge space is part of the space: always the same
        for position, knob in enumerate(self.knobs):
            count = len(knob.values)
            rows, thinned = _thin(rows, _MOST_JOINED // max(1, count), rng)
            weight *= thinned
            rows = np.hstack(
                [
                    np.repeat(rows, count, axis=0),
                    np.tile(np.arange(count, dtype=np.int16), len(rows))[:, None],
                ]
            )
            bound = set(self._names[: position + 1])
            ready = [condition for names, condition in pending if names <= bound]
            needed = frozenset().union(*(names for names, _ in pending if names <= bound))
            pending = [(names, condition) for names, condition in pending if not names <= bound]
            values = {name: full[name][rows[:, i]] for i, name in enumerate(self._names) if name in needed}
            keep = np.ones(len(rows), dtype=bool)
            for condition in ready:
                keep &= np.broadcast_to(np.asarray(evaluate(condition, values, self.dims)), keep.shape)
            rows = rows[keep]
            rows, thinned = _thin(rows, MOST_ROWS, rng)
            weight *= thinned
        return rows, weight

    @property
    def size(self) -> int:
        """Number of valid assignments; an estimate if the table was thinned."""
        rows, weight = self._table
        return round(len(rows) * weight)

    def values_used(self) -> dict[str, tuple[KnobValue, ...]]:
        """For each knob the values that occur in a valid assignment, in the order of its domain."""
        rows = self._table[0]
        return {
            knob.name: tuple(knob.values[int(i)] for i in np.unique(rows[:, position]))
            for position, knob in enumerate(self.knobs)
        }

    def columns(self) -> dict[str, NDArray[np.int64]]:
        """For each knob what constraints see of its value, in every row of the table."""
        rows = self._table[0]
        whole = {knob.name: knob for knob in self._whole}
        return {
            knob.name: np.array([whole[knob.name].number(value) for value in knob.values], dtype=np.int64)[rows[:, i]]
            for i, knob in enumerate(self.knobs)
        }

    @property
    def total(self) -> int:
        """Number of assignments, valid or not, in the template's whole domains on this workload."""
        return prod(len(knob.values) for knob in self._whole)

    def row(self, index: int) -> Candidate:
        numbers = self._table[0][index]
        return self.template.candidate(
            {knob.name: knob.values[int(i)] for knob, i in zip(self.knobs, numbers, strict=True)}
        )

    def __len__(self) -> int:
        """Rows in the table."""
        return len(self._table[0])

    def __iter__(self) -> Iterator[Candidate]:
        for index in range(len(self)):
            yield self.row(index)

    def valid(self, assignments: Sequence[Mapping[str, KnobValue]]) -> list[bool]:
        """Whether each assignment, of values within the domains, satisfies all constraints; all at once, since one by
        one costs more than everything else in a proposal."""
        numbers = {
            knob.name: np.array([knob.number(assignment[knob.name]) for assignment in assignments])
            for knob in self._whole
        }
        keep = np.ones(len(assignments), dtype=bool)
        for assertion in self.template.declarations.assertions:
            keep &= np.broadcast_to(np.asarray(evaluate(assertion.condition, numbers, self.dims)), keep.shape)
        return [bool(each) for each in keep]

    def violations(self, knobs: Mapping[str, KnobValue]) -> tuple[str, ...]:
        """The constraints that an assignment breaks, in their own words. Raises KnobError for values outside of
        the domains."""
        numbers = {knob.name: knob.number(knobs[knob.name]) for knob in self._whole}
        return tuple(
            message(assertion, numbers, self.dims)
            for assertion in self.template.declarations.assertions
            if not bool(np.all(evaluate(assertion.condition, numbers, self.dims)))
        )

    def priors(self) -> list[Candidate]:
        """The template's own first suggestions, as far as they are valid here or become so, then its default."""
        found = []
        for prior in (*self.template.priors(self.dims), {}):
            suggested = {knob.name: knob.default for knob in self._whole} | prior
            knobs = suggested | self._fitted(suggested)
            if not all(knobs[knob.name] in knob.values for knob in self.knobs):
                continue
            # What was cut down to a small loop is another tile than the one that was suggested: it is good as it
            # stands, or not at all.
            is_cut_down = any(
                knobs[knob.name] != 0 and not self._fits(knob.name, int(suggested[knob.name]))
                for knob in self.knobs
                if not knob.is_choice
            )
            valid = self._made_valid(knobs, 0 if is_cut_down else _MOST_SWITCHED_OFF)
            if valid is not None and (candidate := self.template.candidate(valid)) not in found:
                found.append(candidate)
        return found

    def _fits(self, name: str, size: int) -> bool:
        return bool(self._allowed(name, [size])[0])

    def _fitted(self, suggested: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
        """What suggested sizes that their knobs do not have here stand for. One that lies between two of the domain,
        or beyond the loop, is the largest that fits. But where 0 leaves the loop uncut, so does a size beyond it."""
        fitted: dict[str, KnobValue] = {}
        for knob in self.knobs:
            if not knob.values or knob.is_choice or suggested[knob.name] in knob.values:
                continue
            size = int(suggested[knob.name])
            uncut = 0 in knob.values and not self._fits(knob.name, size)
            fitted[knob.name] = 0 if uncut else nearest(knob.numbers, size)
        return fitted

    def _made_valid(self, knobs: Mapping[str, KnobValue], most: int) -> dict[str, KnobValue] | None:
        """A suggestion that satisfies all constraints, with as few knobs as possible switched off, `most` at most:
        where loops are small there is nothing to distribute or to peel, and its tiles are as good without."""
        off: dict[str, KnobValue] = {knob.name: knob.default if knob.is_choice else 0 for knob in self.knobs}
        on = [knob.name for knob in self.knobs if off[knob.name] != knobs[knob.name] and off[knob.name] in knob.values]
        for count in range(most + 1):
            for names in combinations(on, count):
                changed = {**knobs, **{name: off[name] for name in names}}
                if not self.violations(changed):
                    return changed
        return None


def _thin(rows: NDArray[np.int16], most: int, rng: np.random.Generator) -> tuple[NDArray[np.int16], float]:
    """At most so many of the rows, uniformly drawn and in order, and how many rows each of them stands for."""
    most = max(1, most)
    if len(rows) <= most:
        return rows, 1.0
    return rows[np.sort(rng.choice(len(rows), most, replace=False))], len(rows) / most

"""Knobs: named choices with an ordered domain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsearch.candidate import KnobValue
from mlsearch.errors import KnobError


@dataclass(frozen=True)
class Knob:
    name: str
    values: tuple[KnobValue, ...]
    """The domain, in the order in which values are near each other."""
    default: KnobValue
    is_choice: bool
    """A choice among attributes: its values have no order, and constraints see their index."""

    def number(self, value: KnobValue) -> int:
        """What a constraint sees of a value. Raises KnobError for one outside of the domain."""
        if value not in self.values:
            raise KnobError(f"knob '{self.name}'={value!r} is outside of {list(self.values)}")
        return self.values.index(value) if self.is_choice else int(value)

    @property
    def numbers(self) -> tuple[int, ...]:
        return tuple(self.number(value) for value in self.values)

    def near(self, value: KnobValue) -> tuple[KnobValue, ...]:
        """Values one step away; for a choice, all others."""
        position = self.values.index(value)
        if self.is_choice:
            return tuple(other for other in self.values if other != value)
        return self.values[max(0, position - 1) : position] + self.values[position + 1 : position + 2]


def nearest(domain: Sequence[int], value: int) -> int:
    """The largest value of a domain up to `value`, else its smallest."""
    return max((each for each in domain if each <= value), default=min(domain))

"""Finite domains for knobs that have none: what lies between the bounds that the constraints imply.

Intervals are narrowed until nothing changes: comparisons and equations push their bounds down into sums and products,
and a divisor is at most what it divides. Only sound steps are taken, so no valid value is lost; values in between that
are not valid are left to the constraints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod

from mlsearch.errors import TemplateError
from mlsearch.ir.template import Assertion, Expression

_ROUNDS = 50
_WIDEST = 1 << 14
"""Values in a domain that are still worth walking through."""


@dataclass(frozen=True)
class Interval:
    low: float
    high: float

    def meet(self, other: Interval) -> Interval:
        return Interval(max(self.low, other.low), min(self.high, other.high))


_ALL = Interval(-inf, inf)


class _NothingLeftError(Exception):
    """A knob has no value that satisfies all constraints; arithmetic with its bounds would mean nothing."""


def bounded_domains(
    knobs: Sequence[str],
    known: Mapping[str, Sequence[int]],
    assertions: Sequence[Assertion],
    dims: Mapping[str, int],
) -> dict[str, tuple[int, ...]]:
    """For each of `knobs` all integers that it may have, none where the constraints contradict each other; `known` are
    the domains of the others.

    Raises TemplateError for a knob that the constraints do not bound, or to more than 16384 values.
    """
    bounds = dict.fromkeys(knobs, _ALL)
    bounds |= {name: Interval(min(values), max(values)) for name, values in known.items()}
    try:
        for _ in range(_ROUNDS):
            before = dict(bounds)
            for assertion in assertions:
                _require(assertion.condition, bounds, dims)
            if bounds == before:
                break
    except _NothingLeftError:
        return dict.fromkeys(knobs, ())
    domains = {}
    for knob in knobs:
        interval = bounds[knob]
        if not interval.high - interval.low < _WIDEST:
            raise TemplateError(f"the constraints leave knob '{knob}' between {interval.low} and {interval.high}")
        domains[knob] = tuple(range(int(interval.low), int(interval.high) + 1))
    return domains


def _require(condition: Expression, bounds: dict[str, Interval], dims: Mapping[str, int]) -> None:
    """Narrow `bounds` to what a true condition allows."""
    if condition.op == "and":
        for argument in condition.arguments:
            _require(argument, bounds, dims)
        return
    if condition.op not in ("eq", "int.cmp") or len(condition.arguments) != 2:
        return
    left, right = condition.arguments
    left_range, right_range = _range(left, bounds, dims), _range(right, bounds, dims)
    if condition.op == "eq":
        _push(left, right_range, bounds, dims)
        _push(right, left_range, bounds, dims)
        for one, other in ((left_range, right), (right_range, left)):
            if one == Interval(0, 0) and other.op == "int.mod":
                _push_divisor(other, bounds, dims)
        return
    slack = 1 if condition.value in ("lt", "gt") else 0
    if condition.value in ("lt", "le"):
        _push(left, Interval(-inf, right_range.high - slack), bounds, dims)
        _push(right, Interval(left_range.low + slack, inf), bounds, dims)
    else:
        _push(left, Interval(right_range.low + slack, inf), bounds, dims)
        _push(right, Interval(-inf, left_range.high - slack), bounds, dims)


def _push_divisor(remainder: Expression, bounds: dict[str, Interval], dims: Mapping[str, int]) -> None:
    """A positive multiple is at least its positive divisor."""
    multiple, divisor = remainder.arguments
    multiple_range, divisor_range = _range(multiple, bounds, dims), _range(divisor, bounds, dims)
    if multiple_range.low >= 1 and divisor_range.low >= 1:
        _push(divisor, Interval(-inf, multiple_range.high), bounds, dims)
        _push(multiple, Interval(divisor_range.low, inf), bounds, dims)


def _push(term: Expression, allowed: Interval, bounds: dict[str, Interval], dims: Mapping[str, int]) -> None:
    """Narrow `bounds` to what keeps `term` within `allowed`."""
    if term.op == "knob":
        name = str(term.value)
        bounds[name] = bounds[name].meet(allowed)
        if bounds[name].low > bounds[name].high:
            raise _NothingLeftError
        return
    if term.op == "int.mul":
        ranges = [_range(argument, bounds, dims) for argument in term.arguments]
        for index, argument in enumerate(term.arguments):
            others = ranges[:index] + ranges[index + 1 :]
            if ranges[index].low < 0 or any(other.low < 1 for other in others):
                continue
            least, most = prod(other.low for other in others), prod(other.high for other in others)
            high = allowed.high // least if allowed.high < inf else inf
            low = -(-allowed.low // most) if 0 < allowed.low < inf and most < inf else -inf
            _push(argument, Interval(low, high), bounds, dims)
        return
    if term.op in ("int.add", "int.sub"):
        ranges = [_range(argument, bounds, dims) for argument in term.arguments]
        signs = [1] + [1 if term.op == "int.add" else -1] * (len(ranges) - 1)
        for index, argument in enumerate(term.arguments):
            rest = [
                each if sign > 0 else Interval(-each.high, -each.low)
                for position, (each, sign) in enumerate(zip(ranges, signs, strict=True))
                if position != index
            ]
            low = allowed.low - sum(each.high for each in rest)
            high = allowed.high - sum(each.low for each in rest)
            own = Interval(low, high) if signs[index] > 0 else Interval(-high, -low)
            if own.low == own.low and own.high == own.high:  # inf - inf says nothing
                _push(argument, own, bounds, dims)


def _range(term: Expression, bounds: Mapping[str, Interval], dims: Mapping[str, int]) -> Interval:
    """Where the values of a term lie."""
    if term.op == "knob":
        return bounds[str(term.value)]
    if term.op in ("constant", "dim"):
        value = dims[str(term.value)] if term.op == "dim" else int(term.value)  # type: ignore[arg-type]
        return Interval(value, value)
    if term.op == "lookup":
        values = [value for _, value in term.table]
        return Interval(min(values), max(values))
    ranges = [_range(argument, bounds, dims) for argument in term.arguments]
    if term.op == "int.add":
        return Interval(sum(each.low for each in ranges), sum(each.high for each in ranges))
    if term.op == "int.sub":
        return Interval(
            ranges[0].low - sum(each.high for each in ranges[1:]), ranges[0].high - sum(each.low for each in ranges[1:])
        )
    if term.op == "int.mul" and all(each.low >= 0 for each in ranges):
        return Interval(prod(each.low for each in ranges), _product_of_highs(ranges))
    if term.op == "int.div" and ranges[0].low >= 0 and ranges[1].low >= 1:
        high = ranges[0].high // ranges[1].low if ranges[0].high < inf else inf
        low = ranges[0].low // ranges[1].high if ranges[1].high < inf else 0
        return Interval(low, high)
    if term.op == "int.mod" and ranges[1].low >= 1:
        return Interval(0, ranges[1].high - 1)
    if term.op == "ite":
        return Interval(min(ranges[1].low, ranges[2].low), max(ranges[1].high, ranges[2].high))
    return _ALL


def _product_of_highs(ranges: Sequence[Interval]) -> float:
    return 0 if any(each.high == 0 for each in ranges) else prod(each.high for each in ranges)

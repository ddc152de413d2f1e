"""Evaluate SMT constraints on whole arrays of assignments at once.

An SMT solver finds one model at a time; a search wants all of them, or a uniform sample, in milliseconds. The domains
are finite and small, so the terms are evaluated with NumPy. `tests/unit/test_constraints_agree_with_z3.py` holds that
both give the same set.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np

from mlsearch.errors import TemplateError
from mlsearch.ir.template import Assertion, Expression

Values = Any
"""A number, or an array of them: both go through the same operators."""

_COMPARE: dict[object, Callable[[Any, Any], Values]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def evaluate(term: Expression, knobs: Mapping[str, Values], dims: Mapping[str, int]) -> Values:
    """Value of a term; arrays in `knobs` must have one shape, and the result has it.

    Raises TemplateError for an SMT op that is not known here.
    """
    if term.op == "constant":
        return int(term.value)  # type: ignore[arg-type]
    if term.op == "knob":
        return knobs[str(term.value)]
    if term.op == "dim":
        return dims[str(term.value)]
    if term.op == "unknown":
        raise TemplateError("constraints with 'smt.declare_fun' are not supported here: only knobs have values")
    arguments: list[Any] = [evaluate(argument, knobs, dims) for argument in term.arguments]
    if term.op == "lookup":
        table = dict(term.value)  # type: ignore[arg-type]
        last = [*table.values()][-1]  # what IREE's own SMT-LIB gives for a key that is not there
        return np.vectorize(lambda key: table.get(int(key), last), otypes=[np.int64])(arguments[0])
    if term.op == "int.cmp":
        return _COMPARE[term.value](*arguments)
    if term.op not in _OPERATIONS:
        raise TemplateError(f"constraints with 'smt.{term.op}' are not supported")
    return _OPERATIONS[term.op](*arguments)


def knobs_of(term: Expression) -> frozenset[str]:
    """Names of the knobs in a term."""
    if term.op == "knob":
        return frozenset([str(term.value)])
    return frozenset().union(*(knobs_of(argument) for argument in term.arguments))


def dims_of(term: Expression) -> frozenset[str]:
    """Names of the dims in a term."""
    if term.op == "dim":
        return frozenset([str(term.value)])
    return frozenset().union(*(dims_of(argument) for argument in term.arguments))


def message(assertion: Assertion, knobs: Mapping[str, Values], dims: Mapping[str, int]) -> str:
    """The constraint's own words with the values filled in."""
    text = assertion.message
    for shown in assertion.shown:
        text = text.replace("{}", str(evaluate(shown, knobs, dims)), 1)
    return text


def _divide(left: Any, right: Any) -> Any:
    """SMT-LIB's integer division: the remainder is never negative; by zero it is anything, here 0."""
    if isinstance(left, int) and isinstance(right, int):  # stay exact, where NumPy's would wrap around
        return (left // right if right > 0 else -(left // -right)) if right else 0
    safe = np.where(np.equal(right, 0), 1, right)
    quotient = np.where(np.greater(safe, 0), np.floor_divide(left, safe), -np.floor_divide(left, -safe))
    return np.where(np.equal(right, 0), 0, quotient)


def _modulo(left: Any, right: Any) -> Any:
    return left - _divide(left, right) * right


def _all_equal(*values: Any) -> Any:
    return reduce(np.logical_and, [np.equal(values[0], value) for value in values[1:]])


def _all_distinct(*values: Any) -> Any:
    pairs = [np.not_equal(a, b) for i, a in enumerate(values) for b in values[i + 1 :]]
    return reduce(np.logical_and, pairs)


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "int.add": lambda *values: reduce(operator.add, values),
    "int.mul": lambda *values: reduce(operator.mul, values),
    "int.sub": operator.sub,
    "int.div": _divide,
    "int.mod": _modulo,
    "int.abs": operator.abs,
    "eq": _all_equal,
    "distinct": _all_distinct,
    "and": lambda *values: reduce(np.logical_and, values),
    "or": lambda *values: reduce(np.logical_or, values),
    "xor": lambda *values: reduce(np.logical_xor, values),
    "not": np.logical_not,
    "implies": lambda left, right: np.logical_or(np.logical_not(left), right),
    "ite": np.where,
}

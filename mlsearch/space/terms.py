"""Rewrite SMT terms: replace knobs and unknowns by what the constraints say they are equal to.

What is left are the knobs that a search really chooses. A compiler's constraints name more: the workgroup's size
follows from the number of subgroups, and helper values only exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mlsearch.errors import TemplateError
from mlsearch.ir.template import Assertion, Expression
from mlsearch.space.constraints import evaluate, knobs_of

_SIGNS: dict[object, str] = {
    "int.add": "+",
    "int.sub": "-",
    "int.mul": "*",
    "int.div": "/",
    "int.mod": "%",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "=",
    "distinct": "!=",
    "implies": "->",
}
_LONGEST_TERM = 60
"""Characters. Beyond that a term tells less than the words around it."""

Term = tuple[str, str]
"""(`knob` or `unknown`, name)."""


@dataclass(frozen=True)
class Reduced:
    assertions: tuple[Assertion, ...]
    """On the knobs that are left."""
    derived: dict[str, Expression]
    """Each knob that follows from the others, in terms of those that are left."""


def reduced(assertions: Sequence[Assertion]) -> Reduced:
    """Eliminate all unknowns, and the knobs that stand alone on one side of an equation.

    Raises TemplateError for an unknown that no equation determines.
    """
    left = list(assertions)
    solutions: dict[Term, Expression] = {}
    while (found := _next_solution(left)) is not None:
        index, term, value = found
        equation = left[index]
        if term[0] == "knob":
            del left[index]  # it holds by construction
        else:
            # The division that solves it may leave a remainder, so the equation stays as a constraint.
            left[index] = equation
        left = [_substituted(assertion, {term: value}) for assertion in left]
        solutions = {name: substitute(solution, {term: value}) for name, solution in solutions.items()}
        solutions[term] = value
    unknown = sorted({name for assertion in left for kind, name in terms_of(assertion.condition) if kind == "unknown"})
    if unknown:
        raise TemplateError(f"no constraint determines {', '.join(unknown)}")
    return Reduced(tuple(left), {name: value for (kind, name), value in solutions.items() if kind == "knob"})


def substitute(term: Expression, values: Mapping[Term, Expression]) -> Expression:
    if term.op in ("knob", "unknown"):
        return values.get((term.op, str(term.value)), term)
    if not term.arguments:
        return term
    return replace(term, arguments=tuple(substitute(argument, values) for argument in term.arguments))


def terms_of(term: Expression) -> frozenset[Term]:
    """Knobs and unknowns in a term."""
    if term.op in ("knob", "unknown"):
        return frozenset([(term.op, str(term.value))])
    return frozenset().union(*(terms_of(argument) for argument in term.arguments))


def text_of(term: Expression) -> str:
    """For people: `sg_m_cnt * sg_n_cnt * 32`."""
    if term.op == "dim" or term.op in ("knob", "unknown", "constant"):
        return str(term.value)
    if term.op == "lookup":
        values = ", ".join(str(value) for _, value in term.table)
        return f"[{values}][{text_of(term.arguments[0])}]"
    arguments = [text_of(argument) for argument in term.arguments]
    if term.op == "ite":
        return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
    if term.op == "not":
        return f"not {arguments[0]}"
    if term.op == "int.abs":
        return f"|{arguments[0]}|"
    if term.op == "int.mul":
        arguments = [text for text in arguments if text != "1"] or ["1"]
    if len(arguments) == 1:
        return arguments[0]
    sign = term.value if term.op == "int.cmp" else term.op
    return f"({f' {_SIGNS.get(sign, sign)} '.join(arguments)})"


def described(assertion: Assertion, dims: Mapping[str, int]) -> str:
    """A constraint's own words for all assignments at once: `{}` gives way to the number where it is the same for all,
    else to the knobs that it is made of. What is too long for a line of prose is `…`.

    `tile_m ({}) <= m ({})` becomes `tile_m <= m (731)`.
    """
    text = assertion.message
    for shown in assertion.shown:
        word = text_of(shown) if knobs_of(shown) else str(evaluate(shown, {}, dims))
        name = f"{word} ({{}})"
        if name in text and text.index("{}") == text.index(name) + len(word) + 2:
            text = text.replace(name, word, 1)
            continue
        text = text.replace("{}", word if len(word) <= _LONGEST_TERM else "…", 1)
    return text


def _next_solution(assertions: Sequence[Assertion]) -> tuple[int, Term, Expression] | None:
    """Unknowns first: knobs may be equal to terms with unknowns in them."""
    for wanted in ("unknown", "knob"):
        for index, assertion in enumerate(assertions):
            condition = assertion.condition
            if condition.op != "eq" or len(condition.arguments) != 2:
                continue
            left, right = condition.arguments
            for one, other in ((left, right), (right, left)):
                solved = _solve(one, other, wanted)
                if solved is not None:
                    return index, *solved
    return None


def _solve(one: Expression, other: Expression, wanted: str) -> tuple[Term, Expression] | None:
    """`one = other` for a term of the wanted kind in `one`, if it stands alone there or once in a product."""
    if one.op == wanted:
        term = (one.op, str(one.value))
        return None if term in terms_of(other) else (term, other)
    if wanted == "knob" or one.op != "int.mul":
        return None
    factors = _factors(one)
    for index, factor in enumerate(factors):
        term = (factor.op, str(factor.value))
        rest = factors[:index] + factors[index + 1 :]
        if factor.op == wanted and all(term not in terms_of(each) for each in (*rest, other)):
            # Already solved once: the equation still has the quotient in it, and no unknown.
            return term, Expression("int.div", (other, Expression("int.mul", rest)) if rest else (other,))
    return None


def _factors(term: Expression) -> tuple[Expression, ...]:
    if term.op != "int.mul":
        return (term,)
    return tuple(factor for argument in term.arguments for factor in _factors(argument))


def _substituted(assertion: Assertion, values: Mapping[Term, Expression]) -> Assertion:
    return Assertion(
        substitute(assertion.condition, values),
        assertion.message,
        tuple(substitute(shown, values) for shown in assertion.shown),
    )

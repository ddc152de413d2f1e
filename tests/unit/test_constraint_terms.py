"""Each SMT op on whole arrays, by SMT-LIB's own rules."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import z3
from small_templates import load, template_text
from test_constraints_agree_with_z3 import by_arrays, by_solver

from mlsearch.errors import TemplateError
from mlsearch.ir.template import Assertion, Expression
from mlsearch.space.constraints import evaluate, knobs_of, message
from mlsearch.space.terms import described

A, B = Expression("knob", value="a"), Expression("knob", value="b")
NUMBERS = np.array([-7, -6, -1, 0, 1, 2, 6, 7, 50])
PAIRS = {"a": np.repeat(NUMBERS, len(NUMBERS)), "b": np.tile(NUMBERS, len(NUMBERS))}


def term(op: str, *arguments: Expression, value: Any = 0) -> Expression:
    return Expression(op, arguments, value)


def constant(value: int) -> Expression:
    return Expression("constant", value=value)


def z3_value(make: Any, a: int, b: int) -> int | bool:
    value = z3.simplify(make(z3.IntVal(a), z3.IntVal(b)))
    return value.as_long() if z3.is_int_value(value) else z3.is_true(value)


POSITIVE_A, POSITIVE_B = term("int.cmp", A, constant(0), value="gt"), term("int.cmp", B, constant(0), value="gt")
OPS = {
    "add": (term("int.add", A, B, A), lambda a, b: a + b + a),
    "sub": (term("int.sub", A, B), lambda a, b: a - b),
    "mul": (term("int.mul", A, B, B), lambda a, b: a * b * b),
    "div": (term("int.div", A, B), lambda a, b: a / b),
    "mod": (term("int.mod", A, B), lambda a, b: a % b),
    "abs": (term("int.abs", A), lambda a, b: z3.If(a < 0, -a, a)),
    "lt": (term("int.cmp", A, B, value="lt"), lambda a, b: a < b),
    "le": (term("int.cmp", A, B, value="le"), lambda a, b: a <= b),
    "gt": (term("int.cmp", A, B, value="gt"), lambda a, b: a > b),
    "ge": (term("int.cmp", A, B, value="ge"), lambda a, b: a >= b),
    "eq": (term("eq", A, B), lambda a, b: a == b),
    "eq of three": (term("eq", A, B, constant(1)), lambda a, b: z3.And(a == b, b == 1)),
    "distinct": (term("distinct", A, B, constant(1)), lambda a, b: z3.Distinct(a, b, z3.IntVal(1))),
    "and": (term("and", POSITIVE_A, POSITIVE_B), lambda a, b: z3.And(a > 0, b > 0)),
    "or": (term("or", POSITIVE_A, POSITIVE_B), lambda a, b: z3.Or(a > 0, b > 0)),
    "xor": (term("xor", POSITIVE_A, POSITIVE_B), lambda a, b: z3.Xor(a > 0, b > 0)),
    "not": (term("not", POSITIVE_A), lambda a, b: z3.Not(a > 0)),
    "implies": (term("implies", POSITIVE_A, POSITIVE_B), lambda a, b: z3.Implies(a > 0, b > 0)),
    "ite": (term("ite", POSITIVE_A, A, B), lambda a, b: z3.If(a > 0, a, b)),
}


@pytest.mark.parametrize("name", OPS)
def test_an_op_has_the_value_that_z3_gives_it(name: str) -> None:
    expression, make = OPS[name]
    values = np.broadcast_to(evaluate(expression, PAIRS, {}), PAIRS["a"].shape)
    for a, b, value in zip(PAIRS["a"], PAIRS["b"], values, strict=True):
        if name in ("div", "mod") and b == 0:
            continue  # SMT-LIB leaves it open
        assert value == z3_value(make, int(a), int(b)), (a, b)


@pytest.mark.parametrize("name", OPS)
def test_numbers_and_arrays_go_through_the_same_operators(name: str) -> None:
    expression, _ = OPS[name]
    arrays = np.broadcast_to(evaluate(expression, PAIRS, {}), PAIRS["a"].shape)
    singles = [
        evaluate(expression, {"a": int(a), "b": int(b)}, {}) for a, b in zip(PAIRS["a"], PAIRS["b"], strict=True)
    ]
    assert [int(value) for value in singles] == [int(value) for value in arrays]


def test_division_by_zero_is_a_number_and_no_warning() -> None:
    assert int(evaluate(term("int.div", constant(5), constant(0)), {}, {})) == 0
    assert int(evaluate(term("int.mod", constant(5), constant(0)), {}, {})) == 5


def test_a_lookup_reads_its_table() -> None:
    table = term("lookup", A, value=((0, 8), (1, 16)))
    assert evaluate(table, {"a": np.array([1, 0, 1])}, {}).tolist() == [16, 8, 16]
    assert evaluate(table, {"a": np.array([9])}, {}).tolist() == [16]


def test_dims_are_the_workloads() -> None:
    assert evaluate(term("int.mul", A, Expression("dim", value="m")), {"a": 3}, {"m": 5}) == 15


def test_an_unknown_op_is_told_by_name() -> None:
    with pytest.raises(TemplateError, match=r"smt\.forall"):
        evaluate(term("forall", A), PAIRS, {})


def test_a_term_knows_its_knobs() -> None:
    assert knobs_of(term("ite", POSITIVE_A, B, constant(1))) == {"a", "b"}
    assert knobs_of(constant(1)) == frozenset()


def test_a_violation_fills_in_its_values_in_order() -> None:
    assertion = Assertion(POSITIVE_A, "{} of {} is {}", (A, Expression("dim", value="m"), term("int.add", A, B)))
    assert message(assertion, {"a": 1, "b": 2}, {"m": 9}) == "1 of 9 is 3"


def test_every_op_reads_from_a_templates_text_as_it_is_meant(tmp_path: Path) -> None:
    body = """
      %tile = iree_codegen.smt.knob "tile" : !smt.int
      %count = iree_codegen.smt.knob "count" : !smt.int
      %two = smt.int.constant 2
      %minus = smt.int.constant -3
      %sum = smt.int.add %tile, %count, %two
      %difference = smt.int.sub %sum, %m
      %quotient = smt.int.div %difference, %minus
      %rest = smt.int.mod %difference, %minus
      %negative = smt.int.sub %minus, %rest
      %positive = smt.int.mul %negative, %negative
      %from_table = iree_codegen.smt.lookup %count [0, 1] -> [10, 20] : !smt.int
      %small = smt.int.cmp lt %from_table, %k
      %above = smt.int.add %rest, %two
      %equal = smt.eq %positive, %above : !smt.int
      %different = smt.distinct %quotient, %tile : !smt.int
      %not = smt.not %small
      %or = smt.or %not, %equal
      %and = smt.and %or, %different
      %xor = smt.xor %and, %small
      %implied = smt.implies %xor, %and
      %chosen = smt.ite %implied, %tile, %two : !smt.int
      %true = smt.constant true
      %ok = smt.int.cmp ge %chosen, %two
      %all = smt.and %ok, %true
      iree_codegen.smt.assert %all, "chosen {}", %chosen : !smt.bool, !smt.int
    """
    template = load(tmp_path, template_text(asserts=body))
    dims = {"m": 8, "n": 8, "k": 15}
    grid = {knob.name: list(knob.numbers) for knob in template.knobs}
    accepted = by_solver(template, grid, dims)
    assert by_arrays(template, grid, dims) == accepted
    assert 0 < len(accepted) < len(list(product(*grid.values())))


def test_a_constraint_is_described_by_its_knobs_and_by_what_is_known_of_the_dims() -> None:
    long = term("int.mul", *[A, B] * 20)
    shown = (A, Expression("dim", value="m"), term("int.sub", Expression("dim", value="m"), constant(1)))
    assert described(Assertion(A, "a ({}) <= m ({}), {} at best", shown), {"m": 731}) == "a <= m (731), 730 at best"
    choice = term("ite", term("int.cmp", A, B, value="le"), A, B)
    assert described(Assertion(A, "{} of {}", (choice, long)), {}) == "((a <= b) ? a : b) of …"
    assert described(Assertion(A, "b ({}) and a ({})", (A, A)), {}) == "b (a) and a"

"""Arithmetic as a template writes it in its priors, e.g. `(registers - 4) / 2`, as a term like those of constraints.

Whole numbers, names of dims, `+ - * /` and parentheses. A division is rounded down.
"""

from __future__ import annotations

import ast

from mlsearch.errors import TemplateError
from mlsearch.ir.template import Expression

_LONGEST = 200
_OPERATIONS: dict[type[ast.operator], str] = {
    ast.Add: "int.add",
    ast.Sub: "int.sub",
    ast.Mult: "int.mul",
    ast.Div: "int.div",
}


def arithmetic(text: str) -> Expression:
    """Raises TemplateError for a text that is anything else."""
    try:
        if len(text) > _LONGEST:
            raise ValueError
        return _term(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError):
        raise TemplateError(f"'{text[:_LONGEST]}' is no arithmetic of numbers and dims") from None


def _term(node: ast.expr) -> Expression:
    if isinstance(node, ast.Name):
        return Expression("dim", value=node.id)
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return Expression("constant", value=node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return Expression(_OPERATIONS[type(node.op)], (_term(node.left), _term(node.right)))
    raise ValueError

"""The templates' constraints by an SMT solver and by arrays: the same set of assignments.

The solver gets what IREE itself makes of the constraints op, so the reading of the file is under test as well.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
import pytest
import z3
from iree.compiler import ir as mlir
from iree.compiler.dialects import iree_codegen

from mlsearch.ir.module import new_context, parse
from mlsearch.space.template import PREPROCESSING, Template, built_in_folder
from mlsearch.space.template_space import TemplateSpace

FILES = sorted(path for path in built_in_folder().rglob("*.mlir") if PREPROCESSING not in path.parts)
FACTS = {"lanes", "registers", "element_bytes", "input_bytes", "l1_bytes", "l2_bytes", "threads"}
LOOPS = {"the example's": None, "odd": (731, 1023, 137), "small": (5, 7, 3), "unit": (1, 4096, 4096)}
GRID = 1500


def template_of(path: Path) -> Template:
    return Template.load(path, built_in_folder())


def workload_dims(template: Template, sizes: tuple[int, ...] | None) -> dict[str, int]:
    dims = dict(template.declarations.dims)
    if sizes is not None:
        loops = [name for name in dims if name not in FACTS]
        dims |= {name: sizes[i % len(sizes)] for i, name in enumerate(loops)}
    return dims


def solver_of(template: Template, dims: dict[str, int]) -> z3.Solver:
    module = parse(template.text, new_context())
    [op] = [each for each in module.body.operations if each.operation.name == "iree_codegen.smt.constraints"]
    solver = z3.Solver()
    solver.from_string(iree_codegen.convert_constraints_op_to_smtlib(op))
    names = [mlir.StringAttr(name).value for name in op.operation.attributes["mlsearch.dims"]]
    for index, name in enumerate(names):
        solver.add(z3.Int(f"problem_dim_{index}") == dims[name])
    return solver


def sub_grid(template: Template, seed: int) -> dict[str, list[int]]:
    """Some of the numbers of each knob: as many as make a grid that can be gone through."""
    rng = np.random.default_rng(seed)
    grid = {knob.name: [knob.number(knob.default)] for knob in template.knobs}
    while True:
        grown = dict(grid)
        for knob in template.knobs:
            others = [number for number in knob.numbers if number not in grown[knob.name]]
            if others:
                grown[knob.name] = [*grown[knob.name], int(rng.choice(others))]
            if prod(len(values) for values in grown.values()) > GRID:
                return grid
            grid = dict(grown)
        if all(len(grid[knob.name]) == len(knob.values) for knob in template.knobs):
            return grid


def by_solver(template: Template, grid: dict[str, list[int]], dims: dict[str, int]) -> set[tuple[int, ...]]:
    """Decided by z3 point by point."""
    solver = solver_of(template, dims)
    terms = z3.And(*solver.assertions())
    names_of_dims = enumerate(template.declarations.dims)
    fixed = [(z3.Int(f"problem_dim_{i}"), z3.IntVal(dims[name])) for i, name in names_of_dims]
    terms = z3.simplify(z3.substitute(terms, *fixed))
    names = [z3.Int(name) for name in grid]
    found = set()
    for point in product(*grid.values()):
        value = z3.simplify(z3.substitute(terms, *zip(names, map(z3.IntVal, point), strict=True)))
        assert z3.is_true(value) or z3.is_false(value)
        if z3.is_true(value):
            found.add(point)
    return found


def by_arrays(template: Template, grid: dict[str, list[int]], dims: dict[str, int]) -> set[tuple[int, ...]]:
    numbers = {knob.name: knob.number for knob in template.knobs}
    rows = (tuple(numbers[name](candidate.knobs[name]) for name in grid) for candidate in TemplateSpace(template, dims))
    inside = {name: set(values) for name, values in grid.items()}
    return {row for row in rows if all(value in inside[name] for name, value in zip(grid, row, strict=True))}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
@pytest.mark.parametrize("loops", LOOPS)
def test_both_accept_the_same_assignments(path: Path, loops: str) -> None:
    template = template_of(path)
    dims = workload_dims(template, LOOPS[loops])
    grid = sub_grid(template, seed=len(loops))
    narrowed = narrowed_to(template, grid)
    assert by_arrays(narrowed, grid, dims) == by_solver(template, grid, dims)


def narrowed_to(template: Template, grid: dict[str, list[int]]) -> Template:
    """The template with the grid for its domains: the whole space may hold millions."""
    domains = {name: tuple(sorted(grid[name])) for name in template.declarations.domains}
    return replace(template, declarations=replace(template.declarations, domains=domains))


def test_the_grids_hold_both_valid_and_invalid_assignments() -> None:
    for path in FILES:
        template = template_of(path)
        counts = []
        for loops in LOOPS:
            dims = workload_dims(template, LOOPS[loops])
            grid = sub_grid(template, seed=len(loops))
            counts.append((len(by_arrays(narrowed_to(template, grid), grid, dims)), prod(map(len, grid.values()))))
        assert any(valid > 0 for valid, _ in counts), path
        assert any(valid < total for valid, total in counts), path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_solver_finds_no_assignment_that_arrays_miss(path: Path) -> None:
    """z3 enumerates by itself, model by model, on a few values per knob."""
    template = template_of(path)
    dims = workload_dims(template, (96, 80, 48))
    grid = {name: values[:2] for name, values in sub_grid(template, seed=1).items()}
    for name in list(grid)[7:]:
        grid[name] = grid[name][:1]
    solver = solver_of(template, dims)
    names = [z3.Int(name) for name in grid]
    for name, values in zip(names, grid.values(), strict=True):
        solver.add(z3.Or(*(name == value for value in values)))
    found = set()
    while solver.check() == z3.sat:
        model = solver.model()
        point = tuple(model.eval(name, model_completion=True).as_long() for name in names)
        found.add(point)
        solver.add(z3.Or(*(name != value for name, value in zip(names, point, strict=True))))
    assert found == by_arrays(narrowed_to(template, grid), grid, dims)

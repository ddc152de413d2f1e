"""Domains of integer knobs as a template writes them, worked out for a workload on a target.

An entry is a number, arithmetic (`mlsearch.space.arithmetic`), or two of these with `..` between them: the first one
and its doubles up to the second. `[0, "64 .. l1_bytes / vector_bytes"]` is 0, 64, 128, 256, 512 where the first-level
cache has 48 KiB and a vector 64 bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mlsearch.errors import TemplateError
from mlsearch.ir.template import Expression
from mlsearch.space.arithmetic import arithmetic
from mlsearch.space.constraints import dims_of, evaluate

Entry = int | str

_DOUBLES = ".."
_LARGEST = 2**63 - 1
"""As configs of IREE hold it."""


def domain(entries: Sequence[Entry], dims: Mapping[str, int]) -> tuple[int, ...]:
    """The values of a domain: as they stand where all are numbers, else without repetitions and ascending.

    Raises TemplateError for what is no arithmetic, names an unknown dim, comes to less than 1 or to more than 64
    bits hold, for a negative number, and for a domain without values.
    """
    found: list[int] = []
    for entry in entries:
        found += _values(entry, dims)
    if not found:
        raise TemplateError("the domain has no values")
    return tuple(found) if all(isinstance(entry, int) for entry in entries) else tuple(sorted(set(found)))


def _values(entry: Entry, dims: Mapping[str, int]) -> list[int]:
    if isinstance(entry, int):
        if entry < 0:
            raise TemplateError(f"{entry} is negative")
        return [entry]
    first, *last = (_amount(part, entry, dims) for part in entry.split(_DOUBLES, 1))
    if first < 1:
        raise TemplateError(f"'{entry}' comes to {first}; it has to be 1 or more")
    return _doubles(first, last[0]) if last else [first]


def _amount(text: str, entry: str, dims: Mapping[str, int]) -> int:
    term: Expression = arithmetic(text.strip())
    missing = sorted(dims_of(term) - dims.keys())
    if missing:
        raise TemplateError(f"'{entry}' names '{missing[0]}', which is not in mlsearch.dims: {', '.join(dims)}")
    amount = int(evaluate(term, {}, dims))
    if amount > _LARGEST:
        raise TemplateError(f"'{entry}' comes to more than 64 bits hold")
    return amount


def _doubles(value: int, most: int) -> list[int]:
    found = []
    while value <= most:
        found.append(value)
        value *= 2
    return found

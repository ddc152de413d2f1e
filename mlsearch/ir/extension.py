"""IREE's own ops that have loops, but no indexing maps: scans, scatters, sorts, and the like.

Which loops an op has follows from its kind, as IREE's tiling has it: one for each dim of one of its operands, its
*domain*. What moves along with a loop is told only where it is sure, because a wrong answer cuts another op wrongly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iree.compiler import ir as mlir

from mlsearch.ir.module import Operation
from mlsearch.workload import LoopKind

_PREFIX = "iree_linalg_ext."
Dims = tuple[int | None, ...]
"""For each dim of a tensor the loop that moves along it, None for one that none moves along alone."""

RELAYOUTS = (f"{_PREFIX}map_load", f"{_PREFIX}map_store")
"""They only say where each element goes, so IREE lets any other op of the dispatch decide the loops."""


@dataclass(frozen=True)
class ExtensionLoops:
    """The loops of an op, and how they move through its operands."""

    domain: int
    """The operand whose dims are the loops."""
    first_dim: int
    """The first of its dims that is a loop."""
    kinds: tuple[LoopKind, ...]
    maps: tuple[Dims, ...]
    """One for each operand."""
    unit: tuple[int, ...]
    """For each loop: what a tile along it is a multiple of."""
    single: frozenset[int] = frozenset()
    """Loops whose innermost tiles are of one iteration, as IREE's code for the op needs it."""


def is_extension(name: str) -> bool:
    """Whether an op of this name is one whose loops are read here."""
    return name.removeprefix(_PREFIX) in _READERS and name.startswith(_PREFIX)


def extension_loops(op: Operation) -> ExtensionLoops | None:
    """None for any other op, or where the number of its tensors isn't one that is known."""
    if not is_extension(op.name):
        return None
    return _READERS[op.name.removeprefix(_PREFIX)](op)


def _rank(value: mlir.Value) -> int:
    return mlir.ShapedType(value.type).rank if isinstance(value.type, mlir.ShapedType) else 0


def _shape(value: mlir.Value) -> list[int]:
    return list(mlir.ShapedType(value.type).shape) if isinstance(value.type, mlir.ShapedType) else []


def _parallel(count: int) -> tuple[LoopKind, ...]:
    kind: LoopKind = "parallel"
    return (kind,) * count


def _along_one_dim(op: Operation) -> ExtensionLoops:
    """An op that goes along one dim of its first operand, which its other operands have whole, shorter, or not."""
    along = int(mlir.IntegerAttr(op.attributes["dimension"]).value)
    shape = _shape(op.operands[0])
    kinds: tuple[LoopKind, ...] = tuple("reduction" if axis == along else "parallel" for axis in range(len(shape)))
    maps = []
    for value in op.operands:
        if _rank(value) == len(shape):
            whole = _shape(value)[along] == shape[along]
            maps.append(tuple(None if axis == along and not whole else axis for axis in range(len(shape))))
        elif _rank(value) == len(shape) - 1:
            maps.append(tuple(axis for axis in range(len(shape)) if axis != along))
        else:
            maps.append((None,) * _rank(value))
    return ExtensionLoops(0, 0, kinds, tuple(maps), (1,) * len(shape))


def _indexed(
    op: Operation, domain: int, batch: int, around: LoopKind, single: frozenset[int] = frozenset()
) -> ExtensionLoops:
    """A gather or a scatter: the loops around a slice go through the indices, the others along the slice."""
    rank = _rank(op.operands[domain])
    maps: list[Dims] = [(None,) * _rank(value) for value in op.operands]
    maps[domain] = tuple(range(rank))
    indices = _rank(op.operands[1])
    maps[1] = tuple(axis if axis < batch else None for axis in range(indices))
    kinds: tuple[LoopKind, ...] = tuple(around if axis < batch else "parallel" for axis in range(rank))
    return ExtensionLoops(domain, 0, kinds, tuple(maps), (1,) * rank, single)


def _batch(op: Operation, domain: int, target: int) -> int:
    """Loops around a slice: the dims of the domain that are not those that a slice of `target` has."""
    indexed = len(mlir.DenseI64ArrayAttr(op.attributes["dimension_map"]))
    return _rank(op.operands[domain]) - (_rank(op.operands[target]) - indexed)


def _scatter(op: Operation) -> ExtensionLoops | None:
    unique = "unique_indices" in op.attributes and bool(mlir.BoolAttr(op.attributes["unique_indices"]).value)
    # A masked scatter has an operand more, which is not looked into.
    if len(op.operands) != 3:
        return None
    return _indexed(op, 0, _batch(op, 0, 2), "parallel" if unique else "reduction")


def _gather(op: Operation) -> ExtensionLoops | None:
    if len(op.operands) != 3:
        return None
    batch = _batch(op, 2, 0)
    # IREE 3.13 vectorizes several rows at a time, without an error, into code that reads one of them for all.
    return _indexed(op, 2, batch, "parallel", frozenset(range(batch)))


def _over(domain: int, *, first_dim: int = 0) -> Callable[[Operation], ExtensionLoops]:
    """Reads an op whose loops are parallel ones along the dims of an operand, the first ones left out: each iteration
    of a Winograd transform is a matrix, and IREE's decomposition of it takes one at a time."""

    def read(op: Operation) -> ExtensionLoops:
        count = _rank(op.operands[domain]) - first_dim
        maps: list[Dims] = [(None,) * _rank(value) for value in op.operands]
        maps[domain] = (*[None] * first_dim, *range(count))
        single = frozenset(range(count)) if first_dim else frozenset()
        return ExtensionLoops(domain, first_dim, _parallel(count), tuple(maps), (1,) * count, single)

    return read


def _fft(op: Operation) -> ExtensionLoops | None:
    """One stage of a Fourier transform: a row is taken in groups, whose size the stage gives."""
    stage = op.operands[0].owner
    if not isinstance(stage, mlir.Operation | mlir.OpView) or "value" not in stage.attributes:
        return None
    group = 1 << int(mlir.IntegerAttr(stage.attributes["value"]).value)
    outputs = len(op.operands) - len(op.results)
    rank = _rank(op.operands[outputs])
    maps: tuple[Dims, ...] = tuple(
        tuple(range(rank)) if number >= outputs else (None,) * _rank(value) for number, value in enumerate(op.operands)
    )
    return ExtensionLoops(outputs, 0, _parallel(rank), maps, (*[1] * (rank - 1), group))


_READERS: dict[str, Callable[[Operation], ExtensionLoops | None]] = {
    "scan": _along_one_dim,
    "sort": _along_one_dim,
    "topk": _along_one_dim,
    "topk_v2": _along_one_dim,
    "arg_compare": _along_one_dim,
    "scatter": _scatter,
    "gather": _gather,
    "map_load": _over(1),
    "map_store": _over(0),
    "fft": _fft,
    "winograd.input_transform": _over(1, first_dim=2),
    "winograd.filter_transform": _over(1, first_dim=2),
    "winograd.output_transform": _over(0, first_dim=2),
}

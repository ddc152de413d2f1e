"""The loops of a dispatch's ops: their sizes and kinds, how they move through operands, and which of them, of several
ops, have to be cut alike."""

from __future__ import annotations

from dataclasses import dataclass

from iree.compiler import ir as mlir
from iree.compiler.dialects import linalg

from mlsearch.ir.attention import attention_maps, attention_roles, is_attention
from mlsearch.ir.extension import ExtensionLoops, extension_loops
from mlsearch.ir.module import Operation, identity
from mlsearch.ir.op_names import REPACKING
from mlsearch.workload import LoopKind


@dataclass(frozen=True)
class LoopNest:
    """The loops of one compute op."""

    position: int
    op: Operation
    operands: tuple[mlir.Value, ...]
    """Inputs first, then what the results start from."""
    maps: tuple[tuple[int | None, ...], ...]
    """For each operand, per dim: the loop that alone moves through it, or None for an expression of several."""
    touched: tuple[frozenset[int], ...]
    """For each operand: all loops that move through it."""
    sizes: tuple[int | None, ...]
    kinds: tuple[LoopKind, ...]
    strides: tuple[int, ...]

    @staticmethod
    def of(position: int, op: Operation) -> LoopNest | None:
        """`position`: among the operations of the function's body. None for an op whose loops can't be read."""
        if op.name in REPACKING:
            return _repacking_nest(position, op)
        extension = extension_loops(op)
        if extension is not None:
            return _extension_nest(position, op, extension)
        maps = _indexing_maps(op)
        if not maps:
            return None
        count = maps[0].n_dims
        alone, touched = [], []
        sizes: list[int | None] = [None] * count
        for map_, value in zip(maps, op.operands, strict=True):
            dims = [_single_dim(expression) for expression in map_.results]
            alone.append(tuple(dims))
            touched.append(frozenset(i for i in range(count) if _uses(map_, i)))
            if not isinstance(value.type, mlir.ShapedType):
                continue
            shape = mlir.ShapedType(value.type)
            for axis, dim in enumerate(dims):
                if dim is not None and not shape.is_dynamic_dim(axis):
                    sizes[dim] = shape.get_dim_size(axis)
        output_loops = frozenset().union(*touched[len(touched) - outputs(op) :])
        kinds: tuple[LoopKind, ...] = tuple("parallel" if i in output_loops else "reduction" for i in range(count))
        ones = (1,) * count
        return LoopNest(position, op, tuple(op.operands), tuple(alone), tuple(touched), tuple(sizes), kinds, ones)

    @property
    def inputs(self) -> int:
        return len(self.maps) - outputs(self.op)

    @property
    def has_reduction(self) -> bool:
        return "reduction" in self.kinds

    @property
    def attention_roles(self) -> dict[str, list[int]]:
        """Of an attention op: the loops of each role."""
        query, key, value = self.touched[:3]
        return attention_roles(query, key, value, self.touched[self.inputs])


def outputs(op: Operation) -> int:
    """How many of the operands an op writes to, the last ones. On buffers it has no results."""
    if len(op.results) == 0 and "operandSegmentSizes" in op.attributes:
        return int(list(mlir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))[-1])
    return len(op.results)


def writes_buffers(op: Operation) -> bool:
    return len(op.results) == 0 and op.name.startswith("linalg.")


def _repacking_nest(position: int, op: Operation) -> LoopNest | None:
    """A pack runs over the tiles of its result, an unpack over the elements of its result; None for tile sizes that
    are not known."""
    source, dest = op.operands[0], op.operands[1]
    tiles, tiled = integers(op, "static_inner_tiles"), integers(op, "inner_dims_pos")
    rank = mlir.ShapedType((source if op.name == "linalg.pack" else dest).type).rank
    order = integers(op, "outer_dims_perm") or list(range(rank))
    if any(size < 1 for size in tiles):
        return None
    tile_of = dict(zip(tiled, tiles, strict=True))
    inside: list[int | None] = [None] * len(tiles)
    if op.name == "linalg.pack":
        loops_of_plain: list[int | None] = [order.index(axis) for axis in range(rank)]
        maps = (tuple(loops_of_plain), (*range(rank), *inside))
        strides = tuple(tile_of.get(axis, 1) for axis in order)
    else:
        # A tile of the source is no single element of the result, so its loops are nobody else's.
        maps = ((*([None] * rank), *inside), tuple(range(rank)))
        strides = (1,) * rank
    shape = mlir.ShapedType(dest.type)
    sizes = tuple(None if shape.is_dynamic_dim(axis) else shape.get_dim_size(axis) for axis in range(rank))
    every = frozenset(range(rank))
    kinds: tuple[LoopKind, ...] = ("parallel",) * rank
    return LoopNest(position, op, (source, dest), maps, (every, every), sizes, kinds, strides)


def _extension_nest(position: int, op: Operation, loops: ExtensionLoops) -> LoopNest:
    count = len(loops.kinds)
    shape = mlir.ShapedType(op.operands[loops.domain].type)
    axes = range(loops.first_dim, loops.first_dim + count)
    sizes = tuple(None if shape.is_dynamic_dim(axis) else shape.get_dim_size(axis) for axis in axes)
    # Where no loop moves along a dim alone, any of them may move through it.
    every = frozenset(range(count))
    touched = tuple(
        every if None in dims else frozenset(loop for loop in dims if loop is not None) for dims in loops.maps
    )
    ones = (1,) * count
    return LoopNest(position, op, tuple(op.operands), loops.maps, touched, sizes, loops.kinds, ones)


def integers(op: Operation, name: str) -> list[int]:
    """Of an array attribute; empty if there is none."""
    return [int(each) for each in mlir.DenseI64ArrayAttr(op.attributes[name])] if name in op.attributes else []


def _indexing_maps(op: Operation) -> list[mlir.AffineMap]:
    if is_attention(op):
        return attention_maps(op)
    try:
        maps = linalg.get_indexing_maps(op)
    except (mlir.MLIRError, ValueError, TypeError, RuntimeError):
        return []
    return [attribute.value for attribute in maps] if maps is not None else []


def _single_dim(expression: mlir.AffineExpr) -> int | None:
    if isinstance(expression, mlir.AffineDimExpr):
        return int(expression.position)
    return None


def _uses(map_: mlir.AffineMap, dim: int) -> bool:
    return any(dim in _dims_of(expression) for expression in map_.results)


def _dims_of(expression: mlir.AffineExpr) -> set[int]:
    if isinstance(expression, mlir.AffineDimExpr):
        return {int(expression.position)}
    if isinstance(expression, mlir.AffineBinaryExpr):
        return _dims_of(expression.lhs) | _dims_of(expression.rhs)
    return set()


def share_loops(nests: list[LoopNest], root: int) -> list[list[int | None]]:
    """For each op and loop, the root op's loop that it must be cut alike with.

    Two loops belong together if they move through the same dim of the same value: one op's result and another's
    operand, or an operand that both read. Loops of one op are never merged with each other.
    """
    seen: dict[tuple[object, int], list[tuple[int, int]]] = {}
    for i, nest in enumerate(nests):
        values = [*nest.operands, *nest.op.results]
        maps = [*nest.maps, *nest.maps[len(nest.maps) - len(nest.op.results) :]]
        for value, dims in zip(values, maps, strict=True):
            for axis, loop in enumerate(dims):
                if loop is not None:
                    seen.setdefault((identity(value), axis), []).append((i, loop))
    neighbours: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for members in seen.values():
        for member in members:
            neighbours.setdefault(member, set()).update(members)
    shared: list[list[int | None]] = [[None] * len(nest.sizes) for nest in nests]
    for loop in range(len(nests[root].sizes)):
        taken = {root}
        frontier = [(root, loop)]
        shared[root][loop] = loop
        while frontier:
            for i, other in sorted(neighbours.get(frontier.pop(), ())):
                if i not in taken and shared[i][other] is None:
                    shared[i][other] = loop
                    taken.add(i)
                    frontier.append((i, other))
    return shared

"""A dispatch as a transform library sees it: its function just before IREE chooses a lowering.

Reads the compute ops, picks the root op, names its loops, and follows the loops through the other ops, so that one
choice of tile sizes can be laid out on all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from iree.compiler import ir as mlir
from iree.compiler.dialects import linalg

from mlsearch.candidate import digest
from mlsearch.ir.attention import attention_flops, attention_maps, attention_roles, is_attention
from mlsearch.ir.extension import RELAYOUTS, ExtensionLoops, extension_loops, is_extension
from mlsearch.ir.module import Module, Operation, new_context, parse, print_local, walk
from mlsearch.workload import ATTENTION, Loop, LoopKind, Operand, Workload, element_bytes

_COMPUTE_PREFIXES = ("linalg.", "iree_linalg_ext.", "iree_codegen.inner_tiled")
_LOADS = ("iree_tensor_ext.dispatch.tensor.load", "iree_codegen.load_from_buffer")
STORES = ("iree_tensor_ext.dispatch.tensor.store", "iree_codegen.store_to_buffer")
"""What writes a result of a dispatch; the value is the first operand."""
_CONTRACTION_NAMES: dict[tuple[bool, ...], str] = {
    # batch, m, n, k present
    (False, True, True, True): "matmul",
    (True, True, True, True): "batch_matmul",
    (False, True, False, True): "matvec",
    (False, False, True, True): "vecmat",
    (True, True, False, True): "batch_matvec",
    (True, False, True, True): "batch_vecmat",
    (False, False, False, True): "dot",
}
CONTRACTIONS = frozenset({*_CONTRACTION_NAMES.values(), "contraction"})
"""Kinds of root ops that multiply and add."""


REPACKING = ("linalg.pack", "linalg.unpack")


@dataclass(frozen=True)
class ComputeOp:
    """A structured op of a dispatch."""

    position: int
    """Index among the operations of the function's body."""
    name: str
    """E.g. `linalg.generic`."""
    kinds: tuple[LoopKind, ...]
    """One per loop."""
    root_loops: tuple[int | None, ...]
    """For each loop the loop of the root op that it moves together with, if any."""
    strides: tuple[int, ...]
    """For each loop how many elements of an unpacked tensor one iteration covers: a packed tile, else 1."""
    functions: frozenset[str] = frozenset()
    """What its body computes beyond arithmetic, e.g. `math.exp`."""
    on_buffers: bool = False
    """It writes into a buffer, and has no result, as IREE's copies of slices."""
    combines: bool = False
    """It reduces, and each result by one operation that results of parts can be put together with."""

    @property
    def is_fill(self) -> bool:
        return self.name == "linalg.fill"

    @property
    def repacks(self) -> bool:
        """It only puts elements into another layout, tile by tile."""
        return self.name in REPACKING

    @property
    def is_extension(self) -> bool:
        """It has loops, but no indexing maps."""
        return is_extension(self.name)


@dataclass(frozen=True)
class DispatchView:
    """What tuning needs to know of a dispatch's function."""

    function: str
    """Text of the function, without its own name; parses on its own."""
    workload: Workload
    compute_ops: tuple[ComputeOp, ...]
    root: int
    """Index into `compute_ops`."""
    store_roots: tuple[int, ...]
    """Positions of the operations whose results the dispatch stores, in the order of the stores."""
    packed_tile: tuple[int, ...] = ()
    """Of a dispatch that packs or unpacks: for each loop of the root op the size of a packed tile along it, in the
    root op's iterations; empty for others."""


class NotReadable(Exception):
    """The dispatch holds nothing that a schedule can be laid out on; the message says why."""


def body_operations(function: Operation) -> list[Operation]:
    return [op.operation for op in function.regions[0].blocks[0].operations]


def read_dispatch(module: Module, root: int | None = None) -> DispatchView:
    """Read the only function of `module`. `root`: index of the root op among the compute ops, if it is known.

    Raises NotReadable."""
    function = module.body.operations[0].operation
    operations = body_operations(function)
    compute = [(i, op) for i, op in enumerate(operations) if op.name.startswith(_COMPUTE_PREFIXES)]
    if not compute:
        raise NotReadable("it only moves data (no compute op)")
    nests = [_LoopNest.of(position, op) for position, op in compute]
    known = [nest for nest in nests if nest is not None]
    if len(known) < len(nests):
        opaque = sorted({op.name for (_, op), nest in zip(compute, nests, strict=True) if nest is None})
        raise NotReadable(f"no loops can be read from {', '.join(opaque)}")
    if any(size is None for nest in known for size in nest.sizes):
        raise NotReadable("it has dynamic dims")
    root = _pick_root(known) if root is None else root
    beside = next((nest.op.name for i, nest in enumerate(known) if i != root and is_extension(nest.op.name)), None)
    if beside is not None:
        raise NotReadable(f"{beside} stands beside an op that decides the loops, and none can be laid out on it")
    shared = _share_loops(known, root)
    ops = tuple(
        ComputeOp(
            nest.position,
            nest.op.name,
            nest.kinds,
            tuple(shared[i]),
            nest.strides,
            _functions(nest.op),
            _writes_buffers(nest.op),
            "reduction" in nest.kinds and _combines(nest.op),
        )
        for i, nest in enumerate(known)
    )
    packed_tile = _packed_tile(known, shared, root)
    stores = [
        index if _writes_buffers(op) else _position(operations, op.operands[0])
        for index, op in enumerate(operations)
        if _writes_buffers(op) or (op.name in STORES and len(op.operands))
    ]
    store_roots = tuple(position for position in stores if position is not None)
    if not store_roots:
        raise NotReadable("it stores nothing that an op of it computes")
    function.attributes["sym_name"] = mlir.StringAttr.get("dispatch", module.context)
    return DispatchView(
        function=print_local(function),
        workload=_workload(known, root, operations),
        compute_ops=ops,
        root=root,
        store_roots=store_roots,
        packed_tile=packed_tile,
    )


def _functions(op: Operation) -> frozenset[str]:
    return frozenset(inner.name for inner in walk(op) if inner.name.startswith("math."))


# Associative, and with a value to start from that changes nothing: what MLIR knows a neutral element of.
_COMBINERS = frozenset(
    f"arith.{name}"
    for name in (
        *("addf", "mulf", "maximumf", "minimumf", "maxnumf", "minnumf", "addi", "muli"),
        *("andi", "ori", "xori", "maxsi", "minsi", "maxui", "minui"),
    )
)


def _combines(op: Operation) -> bool:
    """Whether the body yields, for each result, one of the combiners of the result so far and something else."""
    if not op.regions or not op.regions[0].blocks:
        return False
    block = op.regions[0].blocks[0]
    operations = [view.operation for view in block.operations]
    yielded = list(operations[-1].operands)
    for value, so_far in zip(yielded, list(block.arguments)[-len(yielded) :], strict=True):
        users = [each for each in operations for operand in each.operands if operand == so_far]
        if len(users) != 1 or users[0].name not in _COMBINERS or value != users[0].results[0]:
            return False
    return bool(yielded)


_LEVEL = re.compile(r"(\w+) = \[([-\d, ]*)\]")


def configured_levels(view: DispatchView) -> dict[str, tuple[int, ...]]:
    """Tile sizes by level of the root op's lowering config, in a view taken after IREE's configuration; else empty."""
    module = parse(view.function, new_context())
    root = body_operations(module.body.operations[0].operation)[view.compute_ops[view.root].position]
    if "lowering_config" not in root.attributes:
        return {}
    levels = _LEVEL.findall(str(root.attributes["lowering_config"]))
    return {name: tuple(int(size) for size in sizes.split(",") if size.strip()) for name, sizes in levels}


# ------------------------------------------------------------------------------------------ loops


@dataclass(frozen=True)
class _LoopNest:
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
    def of(position: int, op: Operation) -> _LoopNest | None:
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
        return _LoopNest(position, op, tuple(op.operands), tuple(alone), tuple(touched), tuple(sizes), kinds, ones)

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


def _writes_buffers(op: Operation) -> bool:
    return len(op.results) == 0 and op.name.startswith("linalg.")


def _repacking_nest(position: int, op: Operation) -> _LoopNest | None:
    """A pack runs over the tiles of its result, an unpack over the elements of its result; None for tile sizes that
    are not known."""
    source, dest = op.operands[0], op.operands[1]
    tiles, tiled = _integers(op, "static_inner_tiles"), _integers(op, "inner_dims_pos")
    rank = mlir.ShapedType((source if op.name == "linalg.pack" else dest).type).rank
    order = _integers(op, "outer_dims_perm") or list(range(rank))
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
    return _LoopNest(position, op, (source, dest), maps, (every, every), sizes, kinds, strides)


def _extension_nest(position: int, op: Operation, loops: ExtensionLoops) -> _LoopNest:
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
    return _LoopNest(position, op, tuple(op.operands), loops.maps, touched, sizes, loops.kinds, ones)


def _integers(op: Operation, name: str) -> list[int]:
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


def _pick_root(nests: list[_LoopNest]) -> int:
    """The op that decides the distribution: IREE takes the last one that reduces or has no indexing maps, else the
    last one."""
    order = range(len(nests) - 1, -1, -1)
    relayouts = (*REPACKING, *RELAYOUTS)
    names = [nest.op.name for nest in nests]
    reducing = [i for i in order if nests[i].has_reduction or (is_extension(names[i]) and names[i] not in relayouts)]
    computing = [i for i in order if names[i] not in ("linalg.fill", *relayouts)]
    moving = [i for i in order if names[i] in relayouts]
    return (reducing or computing or moving or list(order))[0]


def _packed_tile(nests: list[_LoopNest], shared: list[list[int | None]], root: int) -> tuple[int, ...]:
    """See `DispatchView.packed_tile`. Raises NotReadable where tiles can't be followed to the root op's loops."""
    moving = [i for i, nest in enumerate(nests) if nest.op.name in REPACKING]
    if not moving:
        return ()
    if moving != [root] and (len(moving) > 1 or nests[root].has_reduction):
        raise NotReadable(f"{nests[moving[0]].op.name} stands beside ops that its tiles can't be laid out on")
    nest = nests[moving[0]]
    loops = shared[moving[0]]
    tile = [1] * len(nests[root].sizes)
    if nest.op.name == "linalg.pack":
        along = nest.strides if moving != [root] else (1,) * len(loops)
    else:
        by_axis = dict(zip(_integers(nest.op, "inner_dims_pos"), _integers(nest.op, "static_inner_tiles"), strict=True))
        along = tuple(by_axis.get(axis, 1) for axis in range(len(loops)))
    for loop, size in zip(loops, along, strict=True):
        if loop is None and size > 1:
            raise NotReadable(f"{nest.op.name} packs along a loop that the root op does not have")
        if loop is not None:
            tile[loop] = size
    return tuple(tile)


def _share_loops(nests: list[_LoopNest], root: int) -> list[list[int | None]]:
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
                    seen.setdefault((_identity(value), axis), []).append((i, loop))
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


def _identity(value: mlir.Value) -> object:
    if isinstance(value, mlir.OpResult):
        return (hash(value.owner), value.result_number)
    return hash(value)


def _position(operations: list[Operation], value: mlir.Value) -> int | None:
    if not isinstance(value, mlir.OpResult):
        return None
    owner = value.owner
    return next((i for i, op in enumerate(operations) if op == owner), None)


# --------------------------------------------------------------------------------------- workload


def _workload(nests: list[_LoopNest], root: int, operations: list[Operation]) -> Workload:
    nest = nests[root]
    op_kind, roles = _kind_and_roles(nest)
    sizes = [size or 0 for size in nest.sizes]
    loops = tuple(Loop(sizes[i], nest.kinds[i], roles[i]) for i in range(len(sizes)))
    operands = []
    for index, (value, dims) in enumerate(zip(nest.operands, nest.maps, strict=True)):
        if not isinstance(value.type, mlir.ShapedType):
            continue
        ordered = [dim for dim in dims if dim is not None]
        ordered += sorted(nest.touched[index] - set(ordered))
        element = str(mlir.ShapedType(value.type).element_type)
        operands.append(Operand(tuple(dict.fromkeys(ordered)), element, index >= nest.inputs))
    fused = tuple(_describe(other) for i, other in enumerate(nests) if i != root)
    return Workload(
        key=_content_key(operations),
        op_kind=op_kind,
        loops=loops,
        operands=tuple(operands),
        fused=fused,
        flops=sum(_flops(other) for other in nests),
        bytes=_traffic(operations),
    )


def _kind_and_roles(nest: _LoopNest) -> tuple[str, list[str]]:
    operation = nest.op
    if is_attention(operation):
        return ATTENTION, _numbered(nest.attention_roles, len(nest.sizes))
    if linalg.isa_contraction_op(operation):
        dims = linalg.infer_contraction_dimensions(operation)
        groups = {"b": list(dims.batch), "m": list(dims.m), "n": list(dims.n), "k": list(dims.k)}
        # A unit loop has nothing to cut, so 1xNxK counts as a vector times a matrix.
        present = tuple(any(nest.sizes[i] != 1 for i in groups[role]) for role in "bmnk")
        kind = _CONTRACTION_NAMES.get(present, "contraction")
        if any(len(group) > 1 for group in groups.values()):
            kind = "contraction"
        return kind, _numbered(groups, len(nest.sizes))
    if linalg.isa_convolution_op(operation):
        dims = linalg.infer_convolution_dimensions(operation)
        groups = {
            "b": list(dims.batch),
            "o": list(dims.output_image),
            "n": list(dims.output_channel),
            "f": list(dims.filter_loop),
            "k": list(dims.input_channel),
            "d": list(dims.depth),
        }
        kind = "conv" if groups["n"] else "depthwise_conv" if groups["d"] else "pooling"
        return kind, _numbered(groups, len(nest.sizes))
    groups = {
        "p": [i for i, kind in enumerate(nest.kinds) if kind == "parallel"],
        "r": [i for i, kind in enumerate(nest.kinds) if kind == "reduction"],
    }
    if _writes_buffers(nest.op):
        kind = "copy"
    elif nest.op.name not in ("linalg.generic", "linalg.map", "linalg.reduce"):
        kind = nest.op.name.partition(".")[2].replace(".", "_")
    else:
        kind = "reduction" if groups["r"] else "elementwise"
    return kind, _numbered(groups, len(nest.sizes))


def _numbered(groups: dict[str, list[int]], count: int) -> list[str]:
    """The innermost loop of a group has the plain name, the one around it gets a 1, and so on."""
    roles = [f"x{i}" for i in range(count)]
    for role, members in groups.items():
        for distance, loop in enumerate(sorted(members, reverse=True)):
            roles[loop] = role if distance == 0 else f"{role}{distance}"
    return roles


def _scalar_ops(operation: Operation) -> list[str]:
    names = [op.name for region in operation.regions for block in region.blocks for op in _flat(block)]
    return [name for name in names if name.startswith(("arith.", "math.")) and name != "arith.constant"]


def _flat(block: mlir.Block) -> list[Operation]:
    return [nested for op in block.operations for nested in walk(op.operation)]


def _flops(nest: _LoopNest) -> int:
    """Scalar arithmetic of all iterations; conversions between types are free."""
    if is_attention(nest.op):
        return attention_flops(nest.attention_roles, [size or 0 for size in nest.sizes])
    free = ("arith.ext", "arith.trunc", "arith.sitofp", "arith.uitofp", "arith.index_cast", "arith.bitcast")
    count = sum(1 for name in _scalar_ops(nest.op) if not name.startswith(free))
    return count * prod(size or 0 for size in nest.sizes)


def _describe(nest: _LoopNest) -> str:
    if nest.op.name in ("linalg.fill", *REPACKING):
        return str(nest.op.name).removeprefix("linalg.")
    kind = "reduction" if nest.has_reduction else "elementwise"
    names = Counter(name.split(".")[-1] for name in _scalar_ops(nest.op))
    return f"{kind}({','.join(sorted(names))})" if names else kind


def _traffic(operations: list[Operation]) -> int:
    """Bytes of all tensors that the dispatch loads and stores, or of the buffers that its ops read and write."""
    moved: list[mlir.Value] = []
    for op in operations:
        if op.name in _LOADS:
            moved.append(op.results[0])
        elif op.name in STORES:
            moved.append(op.operands[0])
        elif _writes_buffers(op):
            moved += list(op.operands)
    total = 0
    for value in moved:
        if isinstance(value.type, mlir.ShapedType):
            shape = mlir.ShapedType(value.type)
            if shape.has_static_shape:
                elements = prod(shape.get_dim_size(axis) for axis in range(shape.rank))
                total += elements * element_bytes(str(shape.element_type))
    return total


def _content_key(operations: list[Operation]) -> str:
    """Equal computations have equal keys, wherever their buffers lie and whatever they are called.

    The values are numbered anew in the order of the computation; loads stand for their types, and the bindings
    and offsets behind them are left out.
    """
    numbers: dict[object, str] = {}
    lines: list[object] = []
    for op in _behind_stores(operations):
        operands = [numbers.get(_identity(value), "") for value in op.operands]
        for result in op.results:
            numbers[_identity(result)] = f"r{len(numbers)}"
        if op.name in _LOADS:
            lines.append(["load", [str(result.type) for result in op.results], _slice_text(op)])
            continue
        if op.name in STORES:
            lines.append(["store", operands[0], _slice_text(op)])
            continue
        attributes = {name: str(value) for name, value in op.attributes.items()}
        regions = [_region_lines(region, numbers) for region in op.regions]
        lines.append([op.name, operands, [str(result.type) for result in op.results], attributes, regions])
    return digest(lines)


def _behind_stores(operations: list[Operation]) -> list[Operation]:
    """The stores and all that the stored values come from, up to the loads, in program order."""
    needed: set[int] = set()
    found = []
    for op in reversed(operations):
        if op.name in STORES:
            sources = [op.operands[0]]
        elif _writes_buffers(op):
            sources = list(op.operands)
        elif hash(op) not in needed:
            continue
        else:
            # What a body captures is needed as well.
            sources = [] if op.name in _LOADS else [value for nested in walk(op) for value in nested.operands]
        found.append(op)
        needed |= {hash(value.owner) for value in sources if isinstance(value, mlir.OpResult)}
    return found[::-1]


def _slice_text(op: Operation) -> list[str]:
    names = ("static_offsets", "static_sizes", "static_strides")
    return [str(op.attributes[name]) for name in names if name in op.attributes]


def _region_lines(region: mlir.Region, outer: Mapping[object, str]) -> list[object]:
    """`outer`: names of the values that the region may capture."""
    lines: list[object] = []
    names = dict(outer)
    for block in region.blocks:
        names |= {_identity(arg): f"a{i}" for i, arg in enumerate(block.arguments)}
        for op in block.operations:
            operation = op.operation
            operands = [names.get(_identity(value), str(value.type)) for value in operation.operands]
            for result in operation.results:
                names[_identity(result)] = f"v{len(names)}"
            attributes = {name: str(value) for name, value in operation.attributes.items()}
            nested = [_region_lines(inner, names) for inner in operation.regions]
            lines.append([operation.name, operands, [str(r.type) for r in operation.results], attributes, nested])
    return lines

"""A dispatch as a transform library sees it: its function just before IREE chooses a lowering.

Reads the compute ops, picks the root op, names its loops, and follows the loops through the other ops, so that one
choice of tile sizes can be laid out on all of them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from iree.compiler import ir as mlir

from mlsearch.ir.extension import RELAYOUTS, is_extension
from mlsearch.ir.loop_nest import LoopNest, integers, share_loops, writes_buffers
from mlsearch.ir.module import Module, Operation, new_context, parse, print_local, walk
from mlsearch.ir.op_names import REPACKING, STORES
from mlsearch.ir.workload import workload_of
from mlsearch.workload import LoopKind, Workload

_COMPUTE_PREFIXES = ("linalg.", "iree_linalg_ext.", "iree_codegen.inner_tiled")


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
    nests = [LoopNest.of(position, op) for position, op in compute]
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
    shared = share_loops(known, root)
    ops = tuple(
        ComputeOp(
            nest.position,
            nest.op.name,
            nest.kinds,
            tuple(shared[i]),
            nest.strides,
            _functions(nest.op),
            writes_buffers(nest.op),
            "reduction" in nest.kinds and _combines(nest.op),
        )
        for i, nest in enumerate(known)
    )
    packed_tile = _packed_tile(known, shared, root)
    stores = [
        index if writes_buffers(op) else _position(operations, op.operands[0])
        for index, op in enumerate(operations)
        if writes_buffers(op) or (op.name in STORES and len(op.operands))
    ]
    store_roots = tuple(position for position in stores if position is not None)
    if not store_roots:
        raise NotReadable("it stores nothing that an op of it computes")
    function.attributes["sym_name"] = mlir.StringAttr.get("dispatch", module.context)
    return DispatchView(
        function=print_local(function),
        workload=workload_of(known, root, operations),
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


def _pick_root(nests: list[LoopNest]) -> int:
    """The op that decides the distribution: IREE takes the last one that reduces or has no indexing maps, else the
    last one."""
    order = range(len(nests) - 1, -1, -1)
    relayouts = (*REPACKING, *RELAYOUTS)
    names = [nest.op.name for nest in nests]
    reducing = [i for i in order if nests[i].has_reduction or (is_extension(names[i]) and names[i] not in relayouts)]
    computing = [i for i in order if names[i] not in ("linalg.fill", *relayouts)]
    moving = [i for i in order if names[i] in relayouts]
    return (reducing or computing or moving or list(order))[0]


def _packed_tile(nests: list[LoopNest], shared: list[list[int | None]], root: int) -> tuple[int, ...]:
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
        by_axis = dict(zip(integers(nest.op, "inner_dims_pos"), integers(nest.op, "static_inner_tiles"), strict=True))
        along = tuple(by_axis.get(axis, 1) for axis in range(len(loops)))
    for loop, size in zip(loops, along, strict=True):
        if loop is None and size > 1:
            raise NotReadable(f"{nest.op.name} packs along a loop that the root op does not have")
        if loop is not None:
            tile[loop] = size
    return tuple(tile)


def _position(operations: list[Operation], value: mlir.Value) -> int | None:
    if not isinstance(value, mlir.OpResult):
        return None
    owner = value.owner
    return next((i for i, op in enumerate(operations) if op == owner), None)


_LEVEL = re.compile(r"(\w+) = \[([-\d, ]*)\]")


def configured_levels(view: DispatchView) -> dict[str, tuple[int, ...]]:
    """Tile sizes by level of the root op's lowering config, in a view taken after IREE's configuration; else empty."""
    module = parse(view.function, new_context())
    root = body_operations(module.body.operations[0].operation)[view.compute_ops[view.root].position]
    if "lowering_config" not in root.attributes:
        return {}
    levels = _LEVEL.findall(str(root.attributes["lowering_config"]))
    return {name: tuple(int(size) for size in sizes.split(",") if size.strip()) for name, sizes in levels}

"""The key of what a dispatch computes: a digest of its computation, wherever its buffers lie."""

from __future__ import annotations

from collections.abc import Mapping

from iree.compiler import ir as mlir

from mlsearch.candidate import digest
from mlsearch.ir.loop_nest import writes_buffers
from mlsearch.ir.module import Operation, identity, walk
from mlsearch.ir.op_names import LOADS, STORES


def content_key(operations: list[Operation]) -> str:
    """Equal computations have equal keys, wherever their buffers lie and whatever they are called.

    The values are numbered anew in the order of the computation; loads stand for their types, and the bindings
    and offsets behind them are left out.
    """
    numbers: dict[object, str] = {}
    lines: list[object] = []
    for op in _behind_stores(operations):
        operands = [numbers.get(identity(value), "") for value in op.operands]
        for result in op.results:
            numbers[identity(result)] = f"r{len(numbers)}"
        if op.name in LOADS:
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
        elif writes_buffers(op):
            sources = list(op.operands)
        elif hash(op) not in needed:
            continue
        else:
            # What a body captures is needed as well.
            sources = [] if op.name in LOADS else [value for nested in walk(op) for value in nested.operands]
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
        names |= {identity(arg): f"a{i}" for i, arg in enumerate(block.arguments)}
        for op in block.operations:
            operation = op.operation
            operands = [names.get(identity(value), str(value.type)) for value in operation.operands]
            for result in operation.results:
                names[identity(result)] = f"v{len(names)}"
            attributes = {name: str(value) for name, value in operation.attributes.items()}
            nested = [_region_lines(inner, names) for inner in operation.regions]
            lines.append([operation.name, operands, [str(r.type) for r in operation.results], attributes, nested])
    return lines

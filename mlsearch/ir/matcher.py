"""The matcher of a library's entry: a sequence that takes one dispatch's computation and no other.

IREE compares a computation op by op, bodies included, as long as no body takes a value from outside. Constants in fused
elementwise ops are such values. Such an op is recognized by name and types; if it is the last one, then the match
starts inside of it, at its yield, so that its body is compared as well. Else, if the last one packs or unpacks, or has
no indexing maps, the match starts at the store of its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from iree.compiler import ir as mlir

from mlsearch.errors import SpecError
from mlsearch.ir.attention import map_checks
from mlsearch.ir.dag_match import DagMatch, fill_in
from mlsearch.ir.dispatch import DispatchView, body_operations
from mlsearch.ir.extension import is_extension
from mlsearch.ir.module import Operation, new_context, parse, print_local, string_literal, symbol_ref, top_level, walk
from mlsearch.ir.op_names import REPACKING, STORES

_ANY = "!transform.any_op"
# What a match takes as given: loads, and an index that only exists inside of its own linalg op.
_BOUNDARY = (
    "hal.interface.",
    "iree_tensor_ext.dispatch.tensor.load",
    "iree_codegen.load_from_buffer",
    # How far a buffer is aligned depends on where it lies, as its binding does.
    "memref.assume_alignment",
    "linalg.index",
)


@lru_cache(maxsize=64)
def matcher_text(name: str, view: DispatchView, wanted: tuple[int, ...]) -> str:
    """The sequence `@match_<name>`, and those that it includes; it yields handles of the compute ops `wanted`, indices
    into `view.compute_ops`, in order.

    Raises SpecError if no value that the dispatch stores depends on all of these.
    """
    context = new_context()
    function = parse(view.function, context)
    operations = body_operations(function.body.operations[0].operation)
    targets = [operations[view.compute_ops[i].position] for i in wanted]
    anchor, producers = _anchor(operations, view.store_roots, targets)
    start = _start(operations, anchor)
    walk_to = _Handles(anchor, producers, start.anchor_handle)
    steps = [*start.steps, *_checks_of_capturing(operations, anchor, walk_to)]
    compared = [*start.compared]
    for head in _heads(operations, anchor):
        handle = walk_to(head)
        steps += walk_to.take_steps()
        compared.append((handle, _backward_slice(operations, head)))
    handles = [walk_to(target) for target in targets]
    steps += walk_to.take_steps()
    types = ", ".join([_ANY] * len(wanted))
    with context, mlir.Location.unknown():
        matches = [DagMatch(name, number, handle, dag) for number, (handle, dag) in enumerate(compared)]
    skeleton = parse(
        "\n".join(
            [
                "module attributes {transform.with_named_sequence} {",
                f"transform.named_sequence {symbol_ref('match_' + name)}(%op: {_ANY} {{transform.readonly}})"
                f" -> ({types}) {{",
                *steps,
                *(step for match in matches for step in match.steps),
                # Last: to ask what becomes of a result crashes the compiler at ops on memrefs, which have none.
                *_end_checks(start.anchor_handle, anchor),
                f"transform.yield {', '.join(handles)} : {types}",
                "}",
                *(line for match in matches for line in match.sequences),
                "}",
            ]
        ),
        context,
    )
    sequences = top_level(skeleton)
    with context, mlir.Location.unknown():
        fill_in(sequences, matches)
    return "\n".join(print_local(sequence) for sequence in sequences)


@dataclass(frozen=True)
class _Start:
    """Where a match begins, and how it gets from there to the anchor."""

    anchor_handle: str
    steps: list[str]
    compared: list[tuple[str, list[Operation]]]
    """Handles within the anchor's body, each with the ops to be found behind it."""


def _start(operations: list[Operation], anchor: Operation) -> _Start:
    """At the anchor; at its body's yield, if that captures; at the store, if nothing can be seen from the anchor."""
    body_results = _computed_results(anchor) if _captures(anchor) else []
    if body_results:
        in_reach = [*operations, *(op for op in walk(anchor) if op != anchor)]
        end = anchor.regions[0].blocks[0].operations[-1].operation
        bodies = [(f"%body{number}", result.owner.operation) for number, result in body_results]
        steps = [
            f"transform.match.operation_name %op [{string_literal(end.name)}] : {_ANY}",
            *(
                f"%body{number} = transform.get_producer_of_operand %op[{number}] : ({_ANY}) -> {_ANY}"
                for number, _ in body_results
            ),
            f"%anchor = transform.get_parent_op %op <{{op_name = {string_literal(anchor.name)}}}> : ({_ANY}) -> {_ANY}",
        ]
        return _Start("%anchor", steps, [(handle, _backward_slice(in_reach, last)) for handle, last in bodies])
    if _is_opaque(anchor):
        # What follows it can't be seen from it: to MLIR's matchers it is no structured op.
        store = next(use.owner for result in anchor.results for use in result.uses if _is_store(use.owner, result))
        steps = [
            f"transform.match.operation_name %op [{string_literal(store.name)}] : {_ANY}",
            f"%anchor = transform.get_producer_of_operand %op[0] : ({_ANY}) -> {_ANY}",
        ]
        return _Start("%anchor", steps, [])
    return _Start("%op", [], [])


def _checks_of_capturing(operations: list[Operation], anchor: Operation, walk_to: _Handles) -> list[str]:
    """Steps that recognize, as far as that goes, each op whose body can't be compared."""
    steps = []
    for op in _all_behind(operations, anchor):
        if _captures(op):
            handle = walk_to(op)
            steps += [*walk_to.take_steps(), *_type_checks(handle, op), *map_checks(handle, op)]
    return steps


def _heads(operations: list[Operation], anchor: Operation) -> list[Operation]:
    """The last ops of what can be compared as a whole: the anchor, or what goes into ops that capture."""
    heads = [] if _captures(anchor) else [anchor]
    for op in _all_behind(operations, anchor):
        if _captures(op):
            heads += [value.owner for value in op.operands if _is_closed_result(value)]
    return list(dict.fromkeys(heads))


def _is_opaque(op: Operation) -> bool:
    return op.name in REPACKING or is_extension(op.name)


def _is_store(op: Operation, value: mlir.Value) -> bool:
    return op.name.startswith(STORES) and bool(op.operands[0] == value)


def _captures(op: Operation) -> bool:
    """Whether the op's body takes values from outside, other than through the op's operands."""
    own = {hash(nested) for nested in walk(op)}
    for nested in walk(op):
        if hash(nested) == hash(op):
            continue
        for value in nested.operands:
            if isinstance(value, mlir.OpResult) and hash(value.owner) not in own:
                return True
    return False


def _computed_results(op: Operation) -> list[tuple[int, mlir.OpResult]]:
    """(number, value) of what the op's body yields and computes itself."""
    if len(op.regions) != 1 or len(op.regions[0].blocks) != 1:
        return []
    body = list(op.regions[0].blocks[0].operations)
    own = {hash(nested.operation) for nested in body}
    return [
        (number, value)
        for number, value in enumerate(body[-1].operation.operands)
        if isinstance(value, mlir.OpResult) and hash(value.owner) in own
    ]


def _all_behind(operations: list[Operation], anchor: Operation) -> list[Operation]:
    """The anchor and all ops that its result depends on, last ones first, up to the loads."""
    needed = {hash(anchor)}
    found = []
    for op in reversed(operations):
        if hash(op) in needed:
            found.append(op)
            needed |= {hash(value.owner) for value in op.operands if _is_computed(value)}
    return found


def _is_computed(value: mlir.Value) -> bool:
    return isinstance(value, mlir.OpResult) and not value.owner.name.startswith(_BOUNDARY)


def _is_closed_result(value: mlir.Value) -> bool:
    return _is_computed(value) and not _captures(value.owner)


def _type_checks(handle: str, op: Operation) -> list[str]:
    """Steps that compare an op's name and the types of its operands."""
    steps = [f"transform.match.operation_name {handle} [{string_literal(op.name)}] : {_ANY}"]
    for number, value in enumerate(op.operands):
        name = f"{handle}_operand{number}"
        steps.append(f"{name} = transform.get_operand {handle}[{number}] : ({_ANY}) -> !transform.any_value")
        steps.append(f"transform.iree.match.cast_compatible_type {name} = {value.type} : !transform.any_value")
    return steps


def _end_checks(handle: str, anchor: Operation) -> list[str]:
    """Steps that compare what becomes of the anchor's results: the same op with something fused behind it is another
    dispatch."""
    if not anchor.name.startswith("linalg.") or _is_opaque(anchor):
        return []
    steps = []
    for number, result in enumerate(anchor.results):
        users = [use.owner for use in result.uses]
        # Of several users the names can't be compared: a handle to match has to be one op.
        if len(users) == 1:
            steps += [
                f"%user{number} = transform.match.structured failures(propagate) {handle} : ({_ANY}) -> {_ANY} {{",
                f"^bb0(%structured: {_ANY}):",
                '  %single = "transform.match.structured.result"(%structured)'
                f" <{{position = {number} : i64, single}}> : ({_ANY}) -> {_ANY}",
                f"  transform.match.structured.yield %single : {_ANY}",
                "}",
                f"transform.match.operation_name %user{number} [{string_literal(users[0].name)}] : {_ANY}",
            ]
    return steps


def _anchor(
    operations: list[Operation], store_roots: Sequence[int], targets: list[Operation]
) -> tuple[Operation, dict[int, tuple[Operation, int]]]:
    """The last stored op from which every target can be reached, and how: for each op behind it, the consumer
    and the operand number that lead to it."""
    for position in reversed(store_roots):
        anchor = operations[position]
        producers: dict[int, tuple[Operation, int]] = {}
        frontier = [anchor]
        while frontier:
            consumer = frontier.pop()
            for number, value in enumerate(consumer.operands):
                if isinstance(value, mlir.OpResult) and hash(value.owner) not in producers:
                    producers[hash(value.owner)] = (consumer, number)
                    frontier.append(value.owner)
        if all(target == anchor or hash(target) in producers for target in targets):
            return anchor, producers
    raise SpecError("no stored value depends on all ops that the schedule has to touch")


class _Handles:
    """Names of handles, and the transform ops that walk there from the anchor."""

    def __init__(self, anchor: Operation, producers: dict[int, tuple[Operation, int]], anchor_handle: str) -> None:
        self._names = {hash(anchor): anchor_handle}
        self._producers = producers
        self._steps: list[str] = []

    def __call__(self, op: Operation) -> str:
        if hash(op) not in self._names:
            consumer, number = self._producers[hash(op)]
            source = self(consumer)
            self._names[hash(op)] = name = f"%producer{len(self._names)}"
            self._steps.append(f"{name} = transform.get_producer_of_operand {source}[{number}] : ({_ANY}) -> {_ANY}")
        return self._names[hash(op)]

    def take_steps(self) -> list[str]:
        """The steps since the last call."""
        taken, self._steps = self._steps, []
        return taken


def _backward_slice(operations: list[Operation], anchor: Operation) -> list[Operation]:
    """The ops behind `anchor`'s results, in program order, up to the loads and to ops that capture."""
    needed = {hash(anchor)}
    for op in reversed(operations):
        if hash(op) in needed:
            needed |= {hash(value.owner) for value in op.operands if _is_computed(value) and not _captures(value.owner)}
    return [op for op in operations if hash(op) in needed]

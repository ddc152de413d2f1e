"""Transform libraries: match one dispatch exactly, hand its ops to a schedule, mark what was touched.

An entry of a library is three named sequences and one pair in `@__kernel_config`:

    @match_<entry>      the dispatch's whole computation, from the op whose result is stored back to the loads
    @schedule_<entry>   a template with its knobs bound; gets the root op
    @apply_<entry>      gets the matched ops: runs the schedule, lays the tile sizes out on the other ops, marks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from iree.compiler import ir as mlir

from mlsearch.errors import SpecError
from mlsearch.ir.attention import map_checks
from mlsearch.ir.dispatch import REPACKING, STORES, DispatchView, body_operations
from mlsearch.ir.extension import is_extension
from mlsearch.ir.module import (
    IrError,
    Module,
    Operation,
    new_context,
    parse,
    print_local,
    string_literal,
    symbol_name,
    symbol_ref,
    top_level,
    walk,
)
from mlsearch.ir.placement import Types, placements

MARKER = "mlsearch.entry"
ENTRY_POINT = "__kernel_config"
_ANY = "!transform.any_op"
_VALUE = "!transform.any_value"
_COUNT = "!transform.param<i64>"
# What a match takes as given: loads, and an index that only exists inside of its own linalg op.
_BOUNDARY = (
    "hal.interface.",
    "iree_tensor_ext.dispatch.tensor.load",
    "iree_codegen.load_from_buffer",
    # How far a buffer is aligned depends on where it lies, as its binding does.
    "memref.assume_alignment",
    "linalg.index",
)


@dataclass(frozen=True)
class EntryText:
    """One entry: its name and the text of its sequences."""

    name: str
    sequences: str
    is_strategy: bool
    """It replaces IREE's lowering, and so works through the library flag only."""


def entry_text(
    name: str, view: DispatchView, schedule: str, companions: dict[int, str], is_strategy: bool
) -> EntryText:
    """`schedule`: text of the sequence `@schedule_<name>`, taking the root op, and those that it needs.

    `companions`: for ops other than the root, by index into `view.compute_ops`, the text of their lowering config.
    """
    matcher = _matcher(name, view, (view.root, *companions))
    apply = _apply(name, list(companions.values()), is_strategy)
    return EntryText(name, "\n".join([matcher, schedule, apply]), is_strategy)


def library_text(entries: Sequence[EntryText]) -> str:
    """A library of these entries, not verified yet. With no entries it changes nothing."""
    if not entries:
        return EMPTY_LIBRARY
    # IREE refuses strategies behind the tuning-spec flag, so a library that holds one does not offer itself there.
    as_tuning_spec = not any(entry.is_strategy for entry in entries)
    module_attributes = ["transform.with_named_sequence"]
    if as_tuning_spec:
        module_attributes.append("iree_codegen.tuning_spec_with_default_entrypoint")
    pairs = ",\n        ".join(
        f"{symbol_ref('match_' + entry.name)} -> {symbol_ref('apply_' + entry.name)}" for entry in entries
    )
    attribute = " attributes {iree_codegen.tuning_spec_entrypoint}" if as_tuning_spec else ""
    return "\n".join(
        [
            f"module attributes {{{', '.join(module_attributes)}}} {{",
            *(entry.sequences for entry in entries),
            f"transform.named_sequence @{ENTRY_POINT}(%function: {_ANY} {{transform.consumed}}) -> {_ANY}{attribute}",
            "{",
            f"  %done = transform.foreach_match in %function\n        {pairs}\n    : ({_ANY}) -> {_ANY}",
            f"  transform.yield %done : {_ANY}",
            "}",
            "}",
            "",
        ]
    )


def readable(text: str) -> str:
    """The library verified and printed anew. Raises IrError."""
    return str(parse(text, new_context()))


EMPTY_LIBRARY = (
    "module attributes {transform.with_named_sequence} {\n"
    f"  transform.named_sequence @{ENTRY_POINT}(%function: {_ANY} {{transform.readonly}}) {{\n"
    "    transform.yield\n"
    "  }\n"
    "}\n"
)


@lru_cache(maxsize=64)
def _matcher(name: str, view: DispatchView, wanted: tuple[int, ...]) -> str:
    """The matcher sequence; it yields handles of the wanted compute ops, in order.

    IREE compares a computation op by op, bodies included, as long as no body takes a value from outside. Constants in
    fused elementwise ops are such values. Such an op is recognized by name and types; if it is the last one, then the
    match starts inside of it, at its yield, so that its body is compared as well. If the last one packs or unpacks, or
    has no indexing maps, the match starts at the store of its result.

    Types of buffers are compared to the letter, and tell where the buffers lie. Each way gets a sequence of its own,
    `@placed_<name>_<number>_<number>`, and the matcher asks whether any of them takes the op.
    """
    context = new_context()
    function = parse(view.function, context)
    operations = body_operations(function.body.operations[0].operation)
    targets = [operations[view.compute_ops[i].position] for i in wanted]
    anchor, producers = _anchor(operations, view.store_roots, targets)
    body_results = _computed_results(anchor) if _captures(anchor) else []
    in_reach = [*operations, *(op for op in walk(anchor) if op != anchor)]
    starts_later = bool(body_results) or _is_opaque(anchor)
    walk_to = _Handles(anchor, producers, "%anchor" if starts_later else "%op")
    dags: list[tuple[str, list[Operation]]] = []
    steps: list[str] = []
    if body_results:
        steps.append(f'transform.match.operation_name %op ["linalg.yield"] : {_ANY}')
        for number, result in body_results:
            steps.append(f"%body{number} = transform.get_producer_of_operand %op[{number}] : ({_ANY}) -> {_ANY}")
            dags.append((f"%body{number}", _backward_slice(in_reach, result.owner.operation)))
        steps.append(
            f"%anchor = transform.get_parent_op %op <{{op_name = {string_literal(anchor.name)}}}> : ({_ANY}) -> {_ANY}"
        )
    if _is_opaque(anchor):
        # What follows it can't be seen from it: to MLIR's matchers it is no structured op.
        store = next(use.owner for result in anchor.results for use in result.uses if _is_store(use.owner, result))
        steps.append(f"transform.match.operation_name %op [{string_literal(store.name)}] : {_ANY}")
        steps.append(f"%anchor = transform.get_producer_of_operand %op[0] : ({_ANY}) -> {_ANY}")
    heads = [] if _captures(anchor) else [anchor]
    for op in _all_behind(operations, anchor):
        if not _captures(op):
            continue
        handle = walk_to(op)
        steps += [*walk_to.take_steps(), *_type_checks(handle, op), *map_checks(handle, op)]
        heads += [value.owner for value in op.operands if _is_closed_result(value, operations)]
    for head in dict.fromkeys(heads):
        handle = walk_to(head)
        steps += walk_to.take_steps()
        dags.append((handle, _backward_slice(operations, head)))
    handles = [walk_to(target) for target in targets]
    steps += walk_to.take_steps()
    types = ", ".join([_ANY] * len(wanted))
    asked: list[str] = []
    placed: list[str] = []
    in_matcher: list[tuple[list[Operation], Types]] = []
    in_placed: list[tuple[list[Operation], Types]] = []
    for number, (handle, dag) in enumerate(dags):
        with context, mlir.Location.unknown():
            ways = placements(dag, _outside(dag))
        if len(ways) == 1:
            asked.append(_place(handle))
            in_matcher.append((dag, ways[0]))
            continue
        names = [symbol_ref(f"placed_{name}_{number}_{way}") for way in range(len(ways))]
        asked += _any_of(names, handle, number)
        placed += [line for each in names for line in _placed_sequence(each)]
        in_placed += [(dag, way) for way in ways]
    skeleton = parse(
        "\n".join(
            [
                "module attributes {transform.with_named_sequence} {",
                f"transform.named_sequence {symbol_ref('match_' + name)}(%op: {_ANY} {{transform.readonly}})"
                f" -> ({types}) {{",
                *steps,
                *asked,
                # Last: to ask what becomes of a result crashes the compiler at ops on memrefs, which have none.
                *_end_checks(walk_to(anchor), anchor),
                f"transform.yield {', '.join(handles)} : {types}",
                "}",
                *placed,
                "}",
            ]
        ),
        context,
    )
    matcher, *others = top_level(skeleton)
    places = [op for op in body_operations(matcher) if _is_place(op)]
    for place, (dag, types_there) in zip(places, in_matcher, strict=True):
        _put_dag_match(place, dag, types_there, context)
    for other, (dag, types_there) in zip(others, in_placed, strict=True):
        place, stand_in, _ = body_operations(other)
        match = _put_dag_match(place, dag, types_there, context)
        stand_in.results[0].replace_all_uses_with(match.results[0])
        stand_in.erase()
    return "\n".join(print_local(sequence) for sequence in (matcher, *others))


_PLACE = "mlsearch.dag"


def _place(handle: str) -> str:
    """Holds a handle's place by name until the real match op stands there."""
    return f"transform.match.operation_name {handle} [{string_literal(_PLACE)}] : {_ANY}"


def _placed_sequence(symbol: str) -> list[str]:
    """Gives the values that the match op takes from outside: none, if it fails and that is suppressed."""
    return [
        f"transform.named_sequence {symbol}(%op: {_ANY} {{transform.readonly}}) -> {_VALUE} {{",
        _place("%op"),
        f"%stand_in = transform.get_operand %op[0] : ({_ANY}) -> {_VALUE}",
        f"transform.yield %stand_in : {_VALUE}",
        "}",
    ]


def _any_of(symbols: Sequence[str], handle: str, number: int) -> list[str]:
    """Steps that fail if all the sequences do; a matcher has no other way to say 'or'."""
    found = [f"%found{number}_{way}" for way in range(len(symbols))]
    return [
        *(
            f"{value} = transform.include {symbol} failures(suppress) ({handle}) : ({_ANY}) -> {_VALUE}"
            for value, symbol in zip(found, symbols, strict=True)
        ),
        f"%found{number} = transform.merge_handles {', '.join(found)} : {_VALUE}",
        f"%count{number} = transform.num_associations %found{number} : ({_VALUE}) -> {_COUNT}",
        f"%none{number} = transform.param.constant 0 : i64 -> {_COUNT}",
        f"transform.match.param.cmpi gt %count{number}, %none{number} : {_COUNT}",
    ]


def _is_place(op: Operation) -> bool:
    return op.name == "transform.match.operation_name" and _PLACE in str(op.attributes["op_names"])


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


def _is_closed_result(value: mlir.Value, operations: list[Operation]) -> bool:
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


def _outside(dag: list[Operation]) -> list[mlir.Value]:
    """What `dag` takes from outside, in the order of use."""
    own = {hash(op) for root in dag for op in walk(root)}
    outside: dict[mlir.Value, None] = {}
    for op in dag:
        for value in op.operands:
            if not isinstance(value, mlir.OpResult) or hash(value.owner) not in own:
                outside[value] = None
    return list(outside)


def _put_dag_match(place: Operation, dag: list[Operation], types_there: Types, context: mlir.Context) -> Operation:
    """Replace `place` with the op that matches `dag`, its values being of these types; what `dag` takes from outside
    is matched by type."""
    outside = _outside(dag)
    with context, mlir.Location.unknown():
        value_type = mlir.Type.parse("!transform.any_value")
        match = mlir.Operation.create(
            "transform.iree.match.cast_compatible_dag_from_root",
            results=[value_type, value_type],
            operands=[place.operands[0]],
            regions=1,
            ip=mlir.InsertionPoint(place),
        )
        types = [types_there[value] for value in outside]
        body = match.regions[0].blocks.append(*types, arg_locs=[mlir.Location.unknown()] * len(types))
        new_values = dict(zip(outside, body.arguments, strict=True))
        for op in dag:
            copy = op.clone(mlir.InsertionPoint(body))
            for number, value in enumerate(copy.operands):
                copy.operands[number] = new_values[value]
            for result, copied in zip(op.results, copy.results, strict=True):
                copied.set_type(types_there[result])
                new_values[result] = copied
        mlir.Operation.create("transform.yield", ip=mlir.InsertionPoint(body))
    place.erase()
    return match


def _apply(name: str, companion_configs: Sequence[str], is_strategy: bool) -> str:
    companions = [f"%companion{i}" for i in range(len(companion_configs))]
    parameters = ", ".join(f"{handle}: {_ANY} {{transform.readonly}}" for handle in ["%root", *companions])
    lines = [f"transform.named_sequence {symbol_ref('apply_' + name)}({parameters}) {{"]
    marked = "%root"
    if is_strategy:
        # IREE may rewrite the root op before a strategy runs; what the strategy hangs on is the function.
        marked = "%function"
        lines.append(f'%function = transform.get_parent_op %root <{{op_name = "func.func"}}> : ({_ANY}) -> {_ANY}')
    lines += _annotation(marked, MARKER, string_literal(name), "%mark")
    for index, (handle, config) in enumerate(zip(companions, companion_configs, strict=True)):
        lines += _annotation(handle, "lowering_config", config, f"%config{index}")
    lines += [
        f"transform.include {symbol_ref('schedule_' + name)} failures(propagate) (%root) : ({_ANY}) -> ()",
        "transform.yield",
        "}",
    ]
    return "\n".join(lines)


def _annotation(handle: str, attribute: str, value: str, parameter: str) -> list[str]:
    return [
        f"{parameter} = transform.param.constant {value} -> !transform.any_param",
        f"transform.annotate {handle} {string_literal(attribute)} = {parameter} : {_ANY}, !transform.any_param",
    ]


# ------------------------------------------------------------------------- which entries have fired

PROOF = "mlsearch.proof"
_OP_TYPES = (_ANY, "!transform.op<")


def instrumented(text: str, where: str, mark: str = PROOF) -> tuple[str, tuple[str, ...]]:
    """A copy of any transform library that marks the op of each match, and the names of its entries.

    An entry is a pair of `foreach_match`; its name is that of the matcher without `match_`. The mark is the attribute
    `mark` and a number, with that name as a string. Raises SpecError for a library that can't be followed like that.
    """
    module = _parse_library(text, where)
    if PROOF in str(module):
        raise SpecError(f"{where} sets '{PROOF}' itself, the mark that proves which entries are applied; remove it")
    sequences = {symbol_name(op): op for op in top_level(module) if op.name == "transform.named_sequence"}
    if ENTRY_POINT not in sequences:
        raise SpecError(f"{where} has no sequence @{ENTRY_POINT}, so iree-compile applies nothing of it")
    matches = [op for op in walk(sequences[ENTRY_POINT]) if op.name == "transform.foreach_match"]
    if not matches:
        if len(list(walk(sequences[ENTRY_POINT]))) == 2:  # itself and its terminator
            return text, ()
        raise SpecError(f"{where}: @{ENTRY_POINT} has no transform.foreach_match, so its effects can't be proven")
    names: list[str] = []
    for match in matches:
        actions = []
        pairs = zip(match.attributes["matchers"], match.attributes["actions"], strict=True)
        for matcher, action in pairs:
            entry = matcher.value.removeprefix("match_")
            if entry in names:
                entry = f"{entry}#{len(names)}"
            names.append(entry)
            actions.append(_marked_copy(sequences, action.value, entry, f"{mark}{len(names)}", where))
        with module.context:
            match.attributes["actions"] = mlir.ArrayAttr.get([mlir.FlatSymbolRefAttr.get(action) for action in actions])
    return str(module), tuple(names)


def proofs(configured: str, mark: str = PROOF) -> dict[str, tuple[str, ...]]:
    """Entry name to the dispatch functions that it was applied to, from IR after IREE's configuration phase.

    A mark on an op counts where it stands: it is gone if IREE rewrote the op and lost its config. The mark on the
    function counts if a strategy is to lower it.
    """
    found: dict[str, dict[str, None]] = {}
    for function in walk(parse(configured, new_context()).operation):
        if function.name != "func.func":
            continue
        translation = str(function.attributes["translation_info"]) if "translation_info" in function.attributes else ""
        marked = function if _STRATEGY in translation else None
        for op in walk(function):
            if op == function and marked is None:
                continue
            for name, value in op.attributes.items():
                if name.startswith(mark):
                    found.setdefault(str(mlir.StringAttr(value).value), {})[symbol_name(function)] = None
    return {entry: tuple(functions) for entry, functions in found.items()}


_STRATEGY = "transform_dialect_codegen"


def _parse_library(text: str, where: str) -> Module:
    try:
        return parse(text, new_context())
    except IrError as error:
        raise SpecError(f"{where} is not a transform library that MLIR accepts: {error}") from None


def _marked_copy(sequences: dict[str, Operation], action: str, entry: str, attribute: str, where: str) -> str:
    """Add a copy of an action that sets `attribute` on its first op, and on the function, before anything else."""
    if action not in sequences:
        raise SpecError(f"{where}: the action @{action} is not defined")
    original = sequences[action]
    block = original.regions[0].blocks[0]
    number_of_op = next((i for i, each in enumerate(block.arguments) if str(each.type).startswith(_OP_TYPES)), None)
    if number_of_op is None:
        raise SpecError(f"{where}: the action @{action} gets no op, so that it was applied can't be proven")
    name = f"{action}__{attribute}"
    context = original.context
    with context, mlir.Location.unknown():
        copy = original.clone(mlir.InsertionPoint(original))
        copy.attributes["sym_name"] = mlir.StringAttr.get(name)
        body = copy.regions[0].blocks[0]
        start = mlir.InsertionPoint.at_block_begin(body)
        mark = mlir.Operation.create(
            "transform.param.constant",
            results=[mlir.Type.parse("!transform.any_param")],
            attributes={"value": mlir.StringAttr.get(entry)},
            ip=start,
        )
        any_op = mlir.Type.parse(_ANY)
        function = mlir.Operation.create(
            "transform.get_parent_op",
            results=[any_op],
            operands=[body.arguments[number_of_op]],
            attributes={"op_name": mlir.StringAttr.get("func.func"), "allow_empty_results": mlir.UnitAttr.get()},
            ip=start,
        )
        for handle in (body.arguments[number_of_op], function.result):
            mlir.Operation.create(
                "transform.annotate",
                operands=[handle, mark.result],
                attributes={"name": mlir.StringAttr.get(attribute)},
                ip=start,
            )
    return name

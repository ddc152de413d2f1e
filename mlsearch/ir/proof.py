"""Which entries of a transform library have fired: a copy of the library that marks what it touches, and its marks read
from the configured IR."""

from __future__ import annotations

from iree.compiler import ir as mlir

from mlsearch.errors import SpecError
from mlsearch.ir.library import ENTRY_POINT
from mlsearch.ir.module import IrError, Module, Operation, new_context, parse, symbol_name, top_level, walk

PROOF = "mlsearch.proof"
_ANY = "!transform.any_op"
_OP_TYPES = (_ANY, "!transform.op<")
_STRATEGY = "transform_dialect_codegen"


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

"""Read a template's declarations, bind its knobs, try it on a dispatch.

A template is a transform library with one `iree_codegen.smt.constraints` op beside its sequences. That op holds
what a search must know, in the compiler's own language:

    knobs       where each knob goes: {level = {role = knob}} for the root op's lowering config, where a list of
                knobs stands for their product, `order` for the loop order of the level, and `options` for entries of
                the translation info
    pipeline    IREE's pipeline, taken over into the translation info
    dims        the template's own example, one constant per name in `mlsearch.dims`; a name is a loop's role or a
                fact of the target
    mlsearch.domains, mlsearch.defaults, mlsearch.priors
                values of each knob in search order; the assignment that the file itself shows; assignments to try
                first. Integers of domains and of assignments to try may be arithmetic of dims
    asserts     named constraints

and these discardable attributes say where a bound value goes:

    {mlsearch.bind = "lowering_config" | "decomposition_config" | "translation_info" | "pipeline" | "done"}
                                            on `transform.param.constant`
    {mlsearch.knob = "name"}                on `transform.param.constant` of an integer, or on
                                            `transform.memref.multibuffer` for its factor
    {mlsearch.sizes = ["", "name"]}         on `transform.structured.tile_using_for` and `tile_reduction_using_for`: the
                                            knob, or the loop's role for its size, behind each tile size, "" for none
    {mlsearch.bind = "zeros"}               on `transform.structured.pad`: its padding values, of the root op's types
    {mlsearch.bind = "every_op"}            on a sequence that gives each op of a function its lowering config
    {mlsearch.bind = "every_reduction"}     on a sequence that cuts each reduction of a function, at its
                                            `vector_reduction` sizes, into partial ones

A template with the module attribute `mlsearch.strategy` replaces IREE's lowering by its sequence `@strategy`, which
runs after IREE has prepared the dispatch; one with `mlsearch.fallback` is used only where no other template applies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from iree.compiler import ir as mlir
from iree.compiler.dialects.transform import interpreter

from mlsearch.candidate import KnobValue
from mlsearch.errors import TemplateError
from mlsearch.ir.dispatch import body_operations
from mlsearch.ir.library import ENTRY_POINT
from mlsearch.ir.module import (
    IrError,
    Operation,
    new_context,
    parse,
    print_local,
    python_value,
    string_literal,
    symbol_name,
    symbol_ref,
    top_level,
    walk,
)
from mlsearch.ir.proof import PROOF, instrumented

BIND = "mlsearch.bind"
KNOB = "mlsearch.knob"
SIZES = "mlsearch.sizes"
OPTIONS = "options"
"""Entry of the `knobs` dictionary that goes to the translation info."""
_EVERY_OP = "every_op"
_EVERY_REDUCTION = "every_reduction"
_ZEROS = "zeros"
_PAD = "transform.structured.pad"
_MULTIBUFFER = "transform.memref.multibuffer"
_TILE_SIZES = {
    "transform.structured.tile_using_for": "static_sizes",
    "transform.structured.tile_reduction_using_for": "tile_sizes",
}
"""Ops that cut loops, with their attribute of so many sizes."""
_CONSTRAINTS = "iree_codegen.smt.constraints"
_SCHEDULE = "schedule"
_INT_KNOB = "#iree_codegen.smt.int_knob<"
_CHOICE_KNOB = "#iree_codegen.smt.one_of_knob<"


@dataclass(frozen=True)
class Expression:
    """A node of an SMT term."""

    op: str
    """`knob`, `dim`, `constant`, `unknown` (a value that the constraints only say to exist), or the name of an SMT op
    without its dialect, e.g. `int.add`, `eq`, `implies`."""
    arguments: tuple[Expression, ...] = ()
    value: int | str | tuple[tuple[int, int], ...] = 0
    """Name of a knob or dim, value of a constant, predicate of a comparison, table of a lookup."""

    @property
    def table(self) -> tuple[tuple[int, int], ...]:
        """(key, value) pairs of a lookup."""
        assert isinstance(self.value, tuple)
        return self.value


@dataclass(frozen=True)
class Assertion:
    condition: Expression
    message: str
    """With `{}` for each of `shown`."""
    shown: tuple[Expression, ...]


@dataclass(frozen=True)
class KnobLeaf:
    """A knob where it stands in the `knobs` dictionary."""

    name: str
    options: tuple[str, ...]
    """Printed attributes of a choice; empty for an integer knob."""
    option_values: tuple[object, ...] = ()
    """The same as plain Python values."""


KnobTree = dict[str, object]
"""The `knobs` dictionary with `KnobLeaf`s, lists, integers and nested dictionaries; what is fixed in `options` is the
attribute's text, a dictionary in there is `#iree_gpu.pipeline_options` entry by entry."""


@dataclass(frozen=True)
class Declarations:
    knob_tree: KnobTree
    domains: Mapping[str, tuple[int | str, ...]]
    """Values of each integer knob; a text is arithmetic of dims, see `mlsearch.space.domains`."""
    defaults: dict[str, object]
    """Plain values: for a choice the option itself, e.g. True or a list of roles."""
    priors: tuple[dict[str, object], ...]
    dims: dict[str, int]
    """Dim names with the values of the template's own example."""
    pipeline: str
    assertions: tuple[Assertion, ...]
    is_fallback: bool
    """Used only where no other template applies."""
    is_strategy: bool


def read_declarations(text: str, where: str) -> Declarations:
    """Raises TemplateError, naming `where`."""
    try:
        module = parse(text, new_context())
    except IrError as error:
        raise TemplateError(f"template {where} does not parse: {error}") from None
    found = [op for op in top_level(module) if op.name == _CONSTRAINTS]
    if len(found) != 1:
        raise TemplateError(f"template {where} has {len(found)} {_CONSTRAINTS} ops; it needs exactly one")
    op = found[0]
    names = {symbol_name(o) for o in top_level(module) if o.name == "transform.named_sequence"}
    missing = {_SCHEDULE, ENTRY_POINT} - names
    if missing:
        raise TemplateError(f"template {where} has no sequence @{', @'.join(sorted(missing))}")
    attributes = op.attributes
    dims = _example_dims(op, where)
    tree = {
        entry.name: _option_tree(entry.attr) if entry.name == OPTIONS else knob_tree(entry.attr)
        for entry in mlir.DictAttr(attributes["knobs"])
    }
    return Declarations(
        knob_tree=tree,
        domains=_domains(attributes, where),
        defaults=_plain(attributes, "mlsearch.defaults", {}),
        priors=tuple(_plain(attributes, "mlsearch.priors", [])),
        dims=dims,
        pipeline=str(attributes["pipeline"]),
        assertions=read_assertions(op, list(dims)),
        is_fallback="mlsearch.fallback" in module.operation.attributes,
        is_strategy="mlsearch.strategy" in module.operation.attributes,
    )


def _domains(attributes: Any, where: str) -> dict[str, tuple[int | str, ...]]:
    domains: dict[str, tuple[int | str, ...]] = {}
    for name, values in _plain(attributes, "mlsearch.domains", {}).items():
        if not (isinstance(values, list) and all(isinstance(value, int | str) for value in values)):
            raise TemplateError(
                f"template {where}: mlsearch.domains, knob '{name}': {values} is no list of numbers and arithmetic"
            )
        domains[name] = tuple(values)
    return domains


def applies_to(text: str, function: str, root_position: int) -> bool:
    """Whether the template, run as it stands on a dispatch's function, matches its root op."""
    context = new_context()
    marked, _ = instrumented(text, "the template")
    library = parse(marked, context)
    payload = parse(function, context)
    entry = next(op for op in top_level(library) if _is_sequence(op, ENTRY_POINT))
    target = payload.body.operations[0].operation
    try:
        interpreter.apply_named_sequence(target, entry, library)
    except (mlir.MLIRError, ValueError, RuntimeError):
        return False
    return any(name.startswith(PROOF) for name in body_operations(target)[root_position].attributes)


def bind_schedule(
    text: str,
    entry: str,
    bound: Mapping[str, str],
    knobs: Mapping[str, KnobValue],
    every_op: Sequence[tuple[str, str]] = (),
    reductions: Mapping[int, Sequence[int]] | None = None,
) -> str:
    """The template's sequences for one entry of a library: `@schedule_<entry>` and what it refers to.

    `bound` has the text of the attributes that replace the ones marked with `mlsearch.bind`; `every_op` the name and
    the lowering config of each structured op of the function, in order, an empty text for none; `reductions` the tile
    sizes of those that reduce, by index into `every_op`. `knobs` also has what `mlsearch.sizes` names beyond knobs.
    """
    module = parse(text, _binding_context())
    helpers = {
        symbol_name(op)
        for op in top_level(module)
        if op.name == "transform.named_sequence" and not symbol_name(op).startswith((ENTRY_POINT, "match"))
    }
    texts = []
    for op in top_level(module):
        if op.name != "transform.named_sequence" or symbol_name(op) not in helpers:
            continue
        for nested in walk(op):
            _bind_parameter(nested, bound, knobs)
            _rename_references(nested, helpers, entry)
        name = f"{symbol_name(op)}_{entry}"
        if BIND in op.attributes:
            if str(mlir.StringAttr(op.attributes[BIND]).value) == _EVERY_OP:
                texts.append(_every_op_sequence(name, every_op))
            else:
                texts.append(_every_reduction_sequence(name, [config for _, config in every_op], reductions or {}))
            continue
        op.attributes["sym_name"] = mlir.StringAttr.get(name, module.context)
        texts.append(print_local(op))
    return "\n".join(texts)


@lru_cache(maxsize=1)
def _binding_context() -> mlir.Context:
    """One for all candidates: making a context takes longer than everything else that binding does."""
    return new_context()


def _every_op_sequence(name: str, ops: Sequence[tuple[str, str]]) -> str:
    """A sequence that gives the function's structured ops, known by their names, these lowering configs."""
    any_op, count = "!transform.any_op", len(ops)
    names = ", ".join(string_literal(op) for op in dict.fromkeys(op for op, _ in ops))
    lines = [
        f"transform.named_sequence {symbol_ref(name)}(%function: {any_op} {{transform.readonly}}) {{",
        f"  %ops = transform.structured.match ops{{[{names}]}} in %function : ({any_op}) -> {any_op}",
        f"  %op:{count} = transform.split_handle %ops : ({any_op}) -> ({', '.join([any_op] * count)})",
    ]
    for index, (_, config) in enumerate(ops):
        if config:
            lines += [
                f"  %config{index} = transform.param.constant {config} -> !transform.any_param",
                f'  transform.annotate %op#{index} "lowering_config" = %config{index} : {any_op}, !transform.any_param',
            ]
    return "\n".join([*lines, "  transform.yield", "}"])


def _every_reduction_sequence(name: str, configs: Sequence[str], reductions: Mapping[int, Sequence[int]]) -> str:
    """A sequence that cuts the function's reductions into loops over partial results.

    By then passes have run, and handles to the ops are gone: an op is found again by its lowering config.
    """
    any_op = "!transform.any_op"
    sizes_by_config = {configs[index]: list(sizes) for index, sizes in sorted(reductions.items()) if configs[index]}
    lines = [f"transform.named_sequence {symbol_ref(name)}(%function: {any_op} {{transform.readonly}}) {{"]
    for index, (config, sizes) in enumerate(sizes_by_config.items()):
        lines += [
            f"  %ops{index} = transform.structured.match attributes {{lowering_config = {config}}} in %function"
            f" : ({any_op}) -> {any_op}",
            f"  transform.foreach %ops{index} : {any_op} {{",
            f"  ^bb0(%op: {any_op}):",
            f"    %parts:4 = transform.structured.tile_reduction_using_for %op by tile_sizes = {sizes}"
            f" : ({any_op}) -> ({', '.join([any_op] * 4)})",
            "  }",
        ]
    return "\n".join([*lines, "  transform.yield", "}"])


def strategy_name(entry: str) -> str:
    """Symbol of the strategy sequence of an entry."""
    return symbol_ref(f"strategy_{entry}")


def zeros(element_types: Sequence[str]) -> str:
    """An array attribute with a zero of each type."""
    values = [f"{0 if element.startswith('i') else 0.0} : {element}" for element in element_types]
    return f"[{', '.join(values)}]"


def _bind_parameter(op: Operation, bound: Mapping[str, str], knobs: Mapping[str, KnobValue]) -> None:
    if op.name == _MULTIBUFFER and KNOB in op.attributes:
        with op.context:
            name = str(mlir.StringAttr(op.attributes[KNOB]).value)
            del op.attributes[KNOB]
            op.attributes["factor"] = mlir.IntegerAttr.get(mlir.IntegerType.get_signless(64), int(knobs[name]))
    if SIZES in op.attributes:
        with op.context:
            named = zip(_size_names(op), _tile_sizes(op), strict=True)
            sizes = [int(knobs[name]) if name else size for name, size in named]
            old = op.attributes[_TILE_SIZES[op.name]]
            if isinstance(old, mlir.DenseI64ArrayAttr):
                op.attributes[_TILE_SIZES[op.name]] = mlir.DenseI64ArrayAttr.get(sizes)
            else:
                op.attributes[_TILE_SIZES[op.name]] = mlir.Attribute.parse(str(sizes))
            del op.attributes[SIZES]
    if op.name == _PAD and BIND in op.attributes:
        with op.context:
            del op.attributes[BIND]
            op.attributes["padding_values"] = mlir.Attribute.parse(bound[_ZEROS])
    if op.name != "transform.param.constant":
        return
    with op.context:
        if BIND in op.attributes:
            place = str(mlir.StringAttr(op.attributes[BIND]).value)
            del op.attributes[BIND]
            op.attributes["value"] = mlir.Attribute.parse(bound[place])
        elif KNOB in op.attributes:
            name = str(mlir.StringAttr(op.attributes[KNOB]).value)
            del op.attributes[KNOB]
            value_type = mlir.IntegerAttr(op.attributes["value"]).type
            op.attributes["value"] = mlir.IntegerAttr.get(value_type, int(knobs[name]))


def _size_names(op: Operation) -> list[str]:
    names = python_value(op.attributes[SIZES])
    return [str(name) for name in names] if isinstance(names, list) else []


def _tile_sizes(op: Operation) -> list[int]:
    """Of an op that cuts loops; of others none."""
    attribute = op.attributes[_TILE_SIZES[op.name]] if op.name in _TILE_SIZES else ()
    items = attribute if isinstance(attribute, mlir.DenseI64ArrayAttr) else map(mlir.IntegerAttr, attribute)
    return [int(item) for item in items]


def size_names(text: str, where: str) -> set[str]:
    """What a template's tile sizes are named after. Raises TemplateError for sizes that can't be."""
    names: set[str] = set()
    for op in walk(parse(text, new_context()).operation):
        if SIZES not in op.attributes:
            continue
        if op.name not in _TILE_SIZES or len(_size_names(op)) != len(_tile_sizes(op)):
            raise TemplateError(
                f"template {where}: {SIZES} goes on {' and '.join(_TILE_SIZES)}, with one name, or an empty one, per"
                f" size; here it is on {op.name}"
            )
        names |= {name for name in _size_names(op) if name}
    return names


def _rename_references(op: Operation, names: set[str], entry: str) -> None:
    for attribute in ("target", "callee", "matcher"):
        if attribute not in op.attributes:
            continue
        reference = op.attributes[attribute]
        if isinstance(reference, mlir.FlatSymbolRefAttr) and reference.value in names:
            op.attributes[attribute] = mlir.FlatSymbolRefAttr.get(f"{reference.value}_{entry}", op.context)


_PLACES = (
    "lowering_config",
    "decomposition_config",
    "translation_info",
    "pipeline",
    "done",
    _ZEROS,
    _EVERY_OP,
    _EVERY_REDUCTION,
)


def check_places(text: str, where: str) -> None:
    """What is marked must be known, and something must take the tile sizes: else all assignments are one schedule.

    Raises TemplateError."""
    module = parse(text, new_context())
    found = [str(mlir.StringAttr(op.attributes[BIND]).value) for op in walk(module.operation) if BIND in op.attributes]
    for place in found:
        if place not in _PLACES:
            raise TemplateError(f"template {where}: mlsearch.bind = '{place}' is not one of {', '.join(_PLACES)}")
    marked_knobs = any(KNOB in op.attributes for op in walk(module.operation))
    if not marked_knobs and not {"lowering_config", _EVERY_OP} & set(found):
        raise TemplateError(
            f"template {where}: nothing takes its knobs; mark an attribute with mlsearch.bind = 'lowering_config' or"
            " 'every_op', or a constant with mlsearch.knob"
        )


def _is_sequence(op: Operation, name: str) -> bool:
    return op.name == "transform.named_sequence" and symbol_name(op) == name


def _plain(attributes: Any, name: str, default: Any) -> Any:
    return python_value(attributes[name]) if name in attributes else default


def _example_dims(op: Operation, where: str) -> dict[str, int]:
    names = _plain(op.attributes, "mlsearch.dims", [])
    values = [int(mlir.IntegerAttr(value.owner.attributes["value"]).value) for value in op.operands]
    if len(names) != len(values):
        raise TemplateError(f"template {where}: mlsearch.dims names {len(names)} dims, dims() has {len(values)}")
    return dict(zip(names, values, strict=True))


def knob_tree(attribute: mlir.Attribute) -> object:
    """A `knobs` dictionary, or a part of one, with its knobs as `KnobLeaf`s."""
    if isinstance(attribute, mlir.DictAttr):
        return {entry.name: knob_tree(entry.attr) for entry in attribute}
    if isinstance(attribute, mlir.ArrayAttr):
        return [knob_tree(item) for item in attribute]
    text = str(attribute)
    if text.startswith(_INT_KNOB):
        return KnobLeaf(_knob_name(text), ())
    if text.startswith(_CHOICE_KNOB):
        # The bindings show a choice's options only through its text.
        options = text[len(_CHOICE_KNOB) : -1].split(",", 1)[1].strip()
        with attribute.context:
            parsed = mlir.ArrayAttr(mlir.Attribute.parse(options))
        return KnobLeaf(
            _knob_name(text),
            tuple(str(item) for item in parsed),
            tuple(python_value(item) for item in parsed),
        )
    return python_value(attribute)


def _option_tree(attribute: mlir.Attribute) -> object:
    if not isinstance(attribute, mlir.DictAttr):
        return str(attribute)
    leaves = {entry.name: knob_tree(entry.attr) for entry in attribute}
    return {
        entry.name: leaf if isinstance(leaf := leaves[entry.name], KnobLeaf) else _option_tree(entry.attr)
        for entry in attribute
    }


def _knob_name(text: str) -> str:
    return text.split('"')[1]


def read_assertions(constraints: Operation, dims: list[str]) -> tuple[Assertion, ...]:
    """The assertions of a constraints op; `dims` names its block arguments."""
    block = constraints.regions[0].blocks[0]
    terms: dict[int, Expression] = {
        hash(argument): Expression("dim", value=name) for argument, name in zip(block.arguments, dims, strict=True)
    }
    assertions = []
    for op in (view.operation for view in block.operations):
        arguments = tuple(terms[hash(value)] for value in op.operands)
        if op.name == "iree_codegen.smt.assert":
            message = str(mlir.StringAttr(op.attributes["msg"]).value)
            assertions.append(Assertion(arguments[0], message, arguments[1:]))
        elif op.results:
            terms[hash(op.results[0])] = _expression(op, arguments)
    return tuple(assertions)


_PREDICATES = {0: "lt", 1: "le", 2: "gt", 3: "ge"}


def _expression(op: Operation, arguments: tuple[Expression, ...]) -> Expression:
    if op.name == "iree_codegen.smt.knob":
        return Expression("knob", value=str(mlir.StringAttr(op.attributes["name"]).value))
    if op.name == "smt.declare_fun":
        named = "namePrefix" in op.attributes
        return Expression("unknown", value=str(mlir.StringAttr(op.attributes["namePrefix"]).value) if named else "?")
    if op.name == "iree_codegen.smt.lookup":
        keys = list(mlir.DenseI64ArrayAttr(op.attributes["keys"]))
        values = list(mlir.DenseI64ArrayAttr(op.attributes["values"]))
        return Expression("lookup", arguments, tuple(zip(keys, values, strict=True)))
    if op.name == "smt.int.constant":
        bits = int(mlir.IntegerAttr(op.attributes["value"]).value)  # the bindings show it without its sign
        return Expression("constant", value=bits - (1 << 64) if bits >= 1 << 63 else bits)
    if op.name == "smt.constant":
        return Expression("constant", value=int(str(op.attributes["value"]) == "true"))
    if op.name == "smt.int.cmp":
        predicate = str(op.attributes["pred"]).split(":")[0].strip()
        name = _PREDICATES[int(predicate)] if predicate.isdigit() else predicate
        return Expression("int.cmp", arguments, name)
    return Expression(op.name.removeprefix("smt."), arguments)

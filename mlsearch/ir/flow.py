"""Modules at IREE's flow phase: find executables, dispatch sites and entry functions; cut out one dispatch."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

from iree.compiler import ir as mlir

from mlsearch.candidate import Signature, TensorSpec, batch_function
from mlsearch.ir.module import (
    Module,
    Operation,
    print_local,
    string_literal,
    symbol_name,
    symbol_ref,
    top_level,
    walk,
)
from mlsearch.workload import element_bits

TASK_FUNCTION = "task"


@dataclass(frozen=True)
class Site:
    """The first of the equal `flow.dispatch` sites of an executable."""

    executable: str
    function: str
    operand_types: tuple[str, ...]
    result_types: tuple[str, ...]
    tied_operands: tuple[int, ...]
    """For each result the operand whose storage it takes over, or -1."""
    workload_operands: int
    """Index values that the workgroup count is computed from; none in a static dispatch."""


@dataclass(frozen=True)
class EntryFunction:
    """A public function of a payload, as the runtime calls it."""

    name: str
    signature: Signature | None
    """None where the inputs are not all tensors of known shape."""
    problem: str
    """Why there is no signature."""


def dispatch_sites(module: Module, function: str | None = None) -> tuple[dict[str, Site], Counter[str]]:
    """The first site of each executable, in program order, and how many sites each has; only those that a call of
    `function` reaches, if it is given."""
    sites: dict[str, Site] = {}
    count: Counter[str] = Counter()
    roots = [module.operation] if function is None else _reached(module, function)
    for op in (nested for root in roots for nested in walk(root)):
        if op.name != "flow.dispatch":
            continue
        for entry_point in op.attributes["entry_points"]:
            path = mlir.SymbolRefAttr(entry_point).value
            executable, function = path[0], path[-1]
            count[executable] += 1
            if executable not in sites:
                sites[executable] = _read_site(op, executable, function)
    return sites, count


def _reached(module: Module, function: str) -> list[Operation]:
    """The function, the asynchronous one that it wraps, and all that they call."""
    functions = {symbol_name(op): op for op in top_level(module) if op.name == "util.func"}
    reached: dict[str, Operation] = {}
    frontier = [function]
    while frontier:
        name = frontier.pop()
        if name in reached or name not in functions:
            continue
        reached[name] = functions[name]
        for op in walk(functions[name]):
            if op.name == "util.call":
                frontier.append(str(mlir.FlatSymbolRefAttr(op.attributes["callee"]).value))
    return list(reached.values())


def _read_site(op: Operation, executable: str, function: str) -> Site:
    segments = list(mlir.DenseI32ArrayAttr(op.attributes["operandSegmentSizes"]))
    workload, arguments = segments[0], segments[1]
    operands = list(op.operands)[workload : workload + arguments]
    results = [str(result.type) for result in op.results]
    tied = [-1] * len(results)
    if "tied_operands" in op.attributes:
        # Indices count the arguments, behind the workload operands.
        tied = [int(mlir.IntegerAttr(entry).value) for entry in op.attributes["tied_operands"]]
    return Site(
        executable,
        function,
        tuple(str(operand.type) for operand in operands),
        tuple(results),
        tuple(tied),
        workload,
    )


# Ops through which an integer of a tensor decides what is read or written, or how often something is done.
_INDEXING = ("index_cast", "tensor.extract ", "iree_linalg_ext.", "flow.tensor.load ")


def may_index(text: str) -> bool:
    """Whether integers in the tensors of a function, or of a whole module, may be indices rather than numbers."""
    return any(each in text for each in _INDEXING)


def entry_functions(module: Module) -> list[EntryFunction]:
    """Functions that a user of the compiled payload can call, in order."""
    functions = [op for op in top_level(module) if op.name == "util.func" and _is_public(op)]
    names = {symbol_name(op) for op in functions}
    entries = []
    for op in functions:
        name = symbol_name(op)
        if name.endswith("$async") and name.removesuffix("$async") in names:
            continue  # the blocking wrapper beside it has the plain name, and is what we call
        entries.append(_read_entry(op, name, module))
    return entries


def _is_public(op: Operation) -> bool:
    if "sym_visibility" not in op.attributes:
        return True
    return bool(mlir.StringAttr(op.attributes["sym_visibility"]).value == "public")


def _read_entry(op: Operation, name: str, module: Module) -> EntryFunction:
    if "iree.reflection" in op.attributes:
        reflection = mlir.DictAttr(op.attributes["iree.reflection"])
        if "iree.abi.declaration" in reflection:
            return _parse_declaration(name, str(mlir.StringAttr(reflection["iree.abi.declaration"]).value))
    # Asynchronous functions have no declaration; the one behind the wrapper shows what it does with its buffers.
    functions = {symbol_name(each): each for each in top_level(module) if each.name == "util.func"}
    return _read_body(functions.get(f"{name}$async", op), name)


def _read_body(function: Operation, name: str) -> EntryFunction:
    """The signature out of the function's own imports and exports of tensors."""
    block = function.regions[0].blocks[0]
    arguments = [argument for argument in block.arguments if str(argument.type) == "!hal.buffer_view"]
    imports: dict[object, str] = {}
    exports: dict[object, str] = {}
    returned: list[mlir.Value] = []
    for op in walk(function):
        if op.name == "hal.tensor.import":
            imports[op.operands[0]] = str(op.results[0].type)
        elif op.name == "hal.tensor.export":
            exports[op.results[0]] = str(op.operands[0].type)
        elif op.name == "util.return":
            returned = list(op.operands)
    types = [imports.get(value, "an unused argument") for value in arguments]
    types += [exports.get(value, "a value") for value in returned]
    tensors = [tensor_spec(text) for text in types]
    if None in tensors:
        return EntryFunction(name, None, f"{types[tensors.index(None)]} is not a tensor of known shape")
    known = [tensor for tensor in tensors if tensor is not None]
    return EntryFunction(
        name, Signature(name, tuple(known[: len(arguments)]), tuple(known[len(arguments) :]), (), 1), ""
    )


def _parse_declaration(name: str, declaration: str) -> EntryFunction:
    """Read `sync func @f(%input0: tensor<2xf32>) -> (%output0: tensor<2xf32>)`, IREE's own description."""
    # The name may contain anything, so start behind it.
    signature = declaration[declaration.find(f"@{name}(") + len(name) + 1 :]
    arguments, _, results = signature.partition(") -> ")
    parsed: list[list[TensorSpec]] = []
    for part in (arguments, results):
        tensors = []
        for value_type in re.findall(r"%\w+: ([^%]+?)(?:\s*\{[^{}]*\})?(?:, (?=%)|\)*$)", part):
            tensor = tensor_spec(value_type.strip())
            if tensor is None:
                return EntryFunction(name, None, f"{value_type.strip()} is not a tensor of known shape")
            tensors.append(tensor)
        if part.count("%") != len(tensors):
            return EntryFunction(name, None, f"its declaration is not understood: {declaration[:200]}")
        parsed.append(tensors)
    return EntryFunction(name, Signature(name, tuple(parsed[0]), tuple(parsed[1]), (), 1), "")


_WHOLE_BYTES = (1, 8, 16, 32, 64)  # i1 takes a byte
_TENSOR = re.compile(r"^tensor<((?:\d+x)*)([a-z]+\d+[a-zA-Z0-9]*)>$")


def tensor_spec(type_text: str) -> TensorSpec | None:
    """`tensor<2x3xf32>` as a value; None for dynamic dims, encodings, elements that share a byte
    (`i4`), and anything that is no tensor."""
    match = _TENSOR.match(type_text)
    if not match or element_bits(match[2]) not in _WHOLE_BYTES:
        return None
    shape = tuple(int(size) for size in match[1].split("x") if size)
    return TensorSpec(shape, match[2])


def slice_task(module: Module, site: Site, batch: int = 0) -> str:
    """A module with this one executable and a public function `task` that runs it once on real tensors.

    The function takes a buffer view for each operand, then a buffer for each result that has storage of its own:
    the dispatch writes into the caller's buffer, so that what it leaves unwritten can be seen.
    With a `batch` there is another function, which takes all of that so many times over and runs as often: many
    dispatches in one command buffer, for a device where a single one is lost in what launching it costs.
    """
    kept = [
        print_local(op)
        for op in top_level(module)
        if _is_device(op) or (op.name == "flow.executable" and symbol_name(op) == site.executable)
    ]
    # A module's own name is a property, which the attribute dictionary can't hold.
    own = [(name, value) for name, value in module.operation.attributes.items() if name != "sym_name"]
    attributes = ", ".join(f"{name} = {value}" for name, value in own)
    functions = [_task_function(site, TASK_FUNCTION, 1)]
    if batch:
        functions.append(_task_function(site, batch_function(TASK_FUNCTION), batch))
    body = "\n".join([*kept, *functions])
    return f"module attributes {{{attributes}}} {{\n{body}\n}}\n"


def _is_device(op: Operation) -> bool:
    """Other globals are weights: a task gets them as arguments."""
    return bool(op.name == "util.global" and str(op.attributes["type"]) == "!hal.device")


def task_signature(site: Site, reduction_length: int, batch: int = 0) -> Signature | None:
    """How the runner calls a sliced task; None if an operand or result is no tensor of known shape."""
    inputs = [tensor_spec(text) for text in site.operand_types]
    outputs = [tensor_spec(text) for text in site.result_types]
    if any(spec is None for spec in (*inputs, *outputs)):
        return None
    own_storage = tuple(index for index, tied in enumerate(site.tied_operands) if tied < 0)
    return Signature(
        TASK_FUNCTION,
        tuple(spec for spec in inputs if spec),
        tuple(spec for spec in outputs if spec),
        own_storage,
        reduction_length,
        batch,
    )


def _task_function(site: Site, name: str, times: int) -> str:
    """A function that dispatches `times`, on arguments of its own each time, so that no run is folded into another.

    All imports, then all dispatches, then all exports: an import in between would end the command buffer.
    """
    runs = [_Run(site, f"_{index}" if times > 1 else "") for index in range(times)]
    views = [view for run in runs for view in run.views]
    lines = [
        f"util.func public @{name}({', '.join(parameter for run in runs for parameter in run.parameters)})"
        f" -> ({', '.join(['!hal.buffer_view'] * len(views))}) attributes {{iree.abi.stub}} {{",
        *(line for run in runs for line in run.imports),
        *(run.dispatch for run in runs),
        *(line for run in runs for line in run.aliases),
        *(line for run in runs for line in run.exports),
        f"  util.return {', '.join(views)} : {', '.join(['!hal.buffer_view'] * len(views))}",
        "}",
    ]
    return "\n".join(lines)


@dataclass(frozen=True)
class _Run:
    """The lines of one dispatch."""

    site: Site
    suffix: str
    """Tells its values from those of other runs in the function."""

    @property
    def parameters(self) -> list[str]:
        operands = [f"%arg{i}{self.suffix}: !hal.buffer_view" for i in range(len(self.site.operand_types))]
        return operands + [f"%out{i}{self.suffix}: !hal.buffer" for i in self._own_storage]

    @property
    def imports(self) -> list[str]:
        return [
            f"  %in{i}{self.suffix} = hal.tensor.import %arg{i}{self.suffix} {string_literal(f'input{i}')}"
            f" : !hal.buffer_view -> {type_text}"
            for i, type_text in enumerate(self.site.operand_types)
        ]

    @property
    def dispatch(self) -> str:
        site, count = self.site, len(self.site.result_types)
        operands = [f"%in{i}{self.suffix}" for i in range(len(site.operand_types))]
        result_types = [
            type_text
            if tied < 0
            else operands[tied]
            if type_text == site.operand_types[tied]
            else f"{operands[tied]} as {type_text}"
            for type_text, tied in zip(site.result_types, site.tied_operands, strict=True)
        ]
        results = ", ".join(result_types)
        return (
            f"  %r{self.suffix}:{count} = flow.dispatch {symbol_ref(site.executable)}::{symbol_ref(site.function)}"
            f"({', '.join(operands)}) : ({', '.join(site.operand_types)}) -> "
            + (f"({results})" if count != 1 else results)
        )

    @property
    def aliases(self) -> list[str]:
        return [
            f"  %stored{i}{self.suffix} = hal.tensor.alias %r{self.suffix}#{i} : {self.site.result_types[i]}"
            f" to %out{i}{self.suffix} : !hal.buffer"
            for i in self._own_storage
        ]

    @property
    def exports(self) -> list[str]:
        stored = {i: f"%stored{i}{self.suffix}" for i in self._own_storage}
        return [
            f"  {view} = hal.tensor.export {stored.get(i, f'%r{self.suffix}#{i}')} {string_literal(f'output{i}')}"
            f" : {type_text} -> !hal.buffer_view"
            for i, (view, type_text) in enumerate(zip(self.views, self.site.result_types, strict=True))
        ]

    @property
    def views(self) -> list[str]:
        return [f"%view{i}{self.suffix}" for i in range(len(self.site.result_types))]

    @property
    def _own_storage(self) -> list[int]:
        return [index for index, tied in enumerate(self.site.tied_operands) if tied < 0]

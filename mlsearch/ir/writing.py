"""Write a template as IR: a transform library with its constraints op, built op by op.

The counterpart of `mlsearch.ir.template`, which reads one: what is written from declarations reads back as the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from iree.compiler import ir as mlir

from mlsearch.ir.library import ENTRY_POINT
from mlsearch.ir.module import new_context, string_literal
from mlsearch.ir.template import BIND, OPTIONS, Assertion, Declarations, Expression, KnobLeaf
from mlsearch.workload import Loop

_ANY = "!transform.any_op"
_PARAM = "!transform.any_param"
_INT = "!smt.int"
_PREDICATE = {"lt": 0, "le": 1, "gt": 2, "ge": 3}
_TRUTHS = ("eq", "distinct", "and", "or", "xor", "not", "implies")


class Steps:
    """Adds transform ops at the end of a sequence."""

    def __init__(self, block: mlir.Block) -> None:
        self.point = mlir.InsertionPoint(block)
        self.arguments = list(block.arguments)

    def add(
        self,
        name: str,
        operands: Sequence[mlir.Value] = (),
        results: Sequence[str] = (),
        attributes: Mapping[str, str] | None = None,
    ) -> list[mlir.Value]:
        """`attributes`: as MLIR prints their values, e.g. `array<i64: 1, 0>`."""
        op = mlir.Operation.create(
            name,
            results=[mlir.Type.parse(each) for each in results],
            operands=operands,
            attributes={key: mlir.Attribute.parse(value) for key, value in (attributes or {}).items()},
            ip=self.point,
        )
        return list(op.results)

    def handle(
        self, name: str, operands: Sequence[mlir.Value], attributes: Mapping[str, str] | None = None
    ) -> mlir.Value:
        """As `add`, for an op with one handle as its result."""
        return self.add(name, operands, [_ANY], attributes)[0]

    def annotate(self, target: mlir.Value, name: str, value: str, bind: str = "") -> None:
        """Set an attribute on what a handle stands for; `bind` marks the value as one that a candidate replaces."""
        attributes = {"value": value} | ({BIND: string_literal(bind)} if bind else {})
        parameter = self.add("transform.param.constant", (), [_PARAM], attributes)
        self.add("transform.annotate", [target, *parameter], (), {"name": string_literal(name)})

    def apply_patterns(self, target: mlir.Value, patterns: Sequence[str]) -> None:
        """`patterns`: names behind `transform.apply_patterns.`."""
        op = mlir.Operation.create(
            "transform.apply_patterns",
            operands=[target],
            attributes={key: mlir.Attribute.parse("-1 : i64") for key in ("max_iterations", "max_num_rewrites")},
            regions=1,
            ip=self.point,
        )
        body = Steps(op.regions[0].blocks.append())
        for pattern in patterns:
            body.add(f"transform.apply_patterns.{pattern}")

    def registered_pass(self, function: mlir.Value, name: str) -> mlir.Value:
        """The handle of the function afterwards."""
        attributes = {"pass_name": string_literal(name), "options": "{}"}
        return self.handle("transform.apply_registered_pass", [function], attributes)

    def match_inside(self, target: mlir.Value, count: int) -> list[mlir.Value]:
        """Handles of the `count` structured ops in `target`, in order."""
        found = self.handle("transform.structured.match", [target], {"interface": "0 : i32"})
        attributes = {"fail_on_payload_too_small": "true", "pass_through_empty_handle": "true"}
        return self.add("transform.split_handle", [found], [_ANY] * count, attributes)

    def function_of(self, op: mlir.Value) -> mlir.Value:
        return self.handle("transform.get_parent_op", [op], {"op_name": '"func.func"', "nth_parent": "1 : i64"})


Body = Callable[[Steps], None]
Rewrite = Callable[[Steps, mlir.Value], mlir.Value]
"""Changes the function before its ops get their configs; takes and gives the handle of the function."""

_LOWER = "iree-llvmcpu-lower-executable-target"
_DONE = "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>"
_STRATEGY = (
    "#iree_codegen.translation_info<pipeline = #iree_codegen.transform_dialect_codegen codegen_spec = @strategy>"
)


def function_in(steps: Steps, module: mlir.Value) -> mlir.Value:
    return steps.handle("transform.structured.match", [module], {"ops": '["func.func"]'})


def annotating_text(
    declarations: Declarations,
    loops: Sequence[Loop],
    config: str,
    translation: str,
    *,
    named: str | None = None,
    also: Mapping[str, str] | None = None,
) -> str:
    """A template that gives the root op, of these loops, its lowering config, and its function the translation info.

    `config`, `translation`: what the file itself shows, for the default assignment. `named`: the op's name, for one
    that MLIR's matchers of structured ops do not take. `also`: attributes of the module, with their values as MLIR
    prints them.
    """

    def schedule(steps: Steps) -> None:
        [root] = steps.arguments
        steps.annotate(root, "lowering_config", config, "lowering_config")
        steps.annotate(steps.function_of(root), "translation_info", translation, "translation_info")

    match = _match_body(loops) if named is None else _match_name(named)
    return _library(declarations, match, {"schedule": schedule}, also)


def strategy_text(
    declarations: Declarations,
    loops: Sequence[Loop],
    configs: Sequence[str],
    translation: str,
    rewrite: Rewrite | None = None,
) -> str:
    """A template that, late, rewrites the function, gives each of its ops a config, and runs IREE's own lowering.

    `configs`: of each structured op after the rewrite, empty for none; they and `translation` are what the file shows.
    """

    def schedule(steps: Steps) -> None:
        function = steps.function_of(steps.arguments[0])
        steps.annotate(function, "translation_info", _STRATEGY, "translation_info")

    def configure(steps: Steps) -> None:
        handles = steps.match_inside(steps.arguments[0], len(configs))
        for handle, config in zip(handles, configs, strict=True):
            if config:
                steps.annotate(handle, "lowering_config", config)

    def strategy(steps: Steps) -> None:
        function = function_in(steps, steps.arguments[0])
        if rewrite is not None:
            function = rewrite(steps, function)
        attributes = {"target": "@configure", "failure_propagation_mode": "1 : i32"}
        steps.add("transform.include", [function], (), attributes)
        steps.annotate(function, "translation_info", translation, "pipeline")
        lowered = steps.registered_pass(function, _LOWER)
        steps.annotate(lowered, "translation_info", _DONE, "done")

    sequences = {"schedule": schedule, "configure": configure, "strategy": strategy}
    return _library(declarations, _match_body(loops), sequences)


def _library(
    declarations: Declarations, match: Body, sequences: Mapping[str, Body], also: Mapping[str, str] | None = None
) -> str:
    with new_context(), mlir.Location.unknown():
        module = mlir.Module.create()
        attributes = module.operation.attributes
        attributes["transform.with_named_sequence"] = mlir.UnitAttr.get()
        if declarations.is_fallback:
            attributes["mlsearch.fallback"] = mlir.UnitAttr.get()
        if declarations.is_strategy:
            attributes["mlsearch.strategy"] = mlir.UnitAttr.get()
        for name, value in (also or {}).items():
            attributes[name] = mlir.Attribute.parse(value)
        point = mlir.InsertionPoint(module.body)
        _constraints(declarations, point)
        _sequence(point, "match", match, "transform.readonly", results=1)
        for name, body in sequences.items():
            op = _sequence(point, name, body, "" if name == "strategy" else "transform.readonly")
            if name == "configure":
                op.attributes[BIND] = mlir.StringAttr.get("every_op")
        _sequence(point, ENTRY_POINT, _entry_body, "transform.consumed", results=1)
        module.operation.verify()
        return str(module)


def sequence_text(name: str, body: Body) -> str:
    """A library of one sequence on a module, to be run by itself."""
    with new_context(), mlir.Location.unknown():
        module = mlir.Module.create()
        module.operation.attributes["transform.with_named_sequence"] = mlir.UnitAttr.get()
        _sequence(mlir.InsertionPoint(module.body), name, body, "")
        module.operation.verify()
        return str(module)


def _sequence(point: mlir.InsertionPoint, name: str, body: Body, effect: str, *, results: int = 0) -> mlir.Operation:
    """A sequence of one handle; `effect`: what it does with it, if that is to be said."""
    gives = ", ".join([_ANY] * results)
    attributes = {
        "sym_name": mlir.StringAttr.get(name),
        "function_type": mlir.Attribute.parse(f"({_ANY}) -> ({gives})"),
    }
    if effect:
        attributes["arg_attrs"] = mlir.Attribute.parse(f"[{{{effect}}}]")
    op = mlir.Operation.create("transform.named_sequence", attributes=attributes, regions=1, ip=point)
    block = op.regions[0].blocks.append(mlir.Type.parse(_ANY), arg_locs=[mlir.Location.unknown()])
    steps = Steps(block)
    body(steps)
    if not results:
        steps.add("transform.yield")
    return op


def _match_name(name: str) -> Body:
    def body(steps: Steps) -> None:
        steps.add("transform.match.operation_name", steps.arguments, (), {"op_names": f"[{string_literal(name)}]"})
        steps.add("transform.yield", steps.arguments)

    return body


def _match_body(loops: Sequence[Loop]) -> Body:
    """Takes structured ops of just these loops: their number, kinds and sizes."""

    def body(steps: Steps) -> None:
        op = mlir.Operation.create(
            "transform.match.structured",
            results=[mlir.Type.parse(_ANY)],
            operands=[steps.arguments[0]],
            attributes={"failure_propagation_mode": mlir.Attribute.parse("1 : i32")},
            regions=1,
            ip=steps.point,
        )
        block = op.regions[0].blocks.append(mlir.Type.parse(_ANY), arg_locs=[mlir.Location.unknown()])
        inner = Steps(block)
        [candidate] = inner.arguments
        _require(inner, "transform.match.structured.rank", candidate, {}, len(loops))
        for index, loop in enumerate(loops):
            dim = {"raw_dim_list": f"array<i64: {index}>"}
            inner.add("transform.match.structured.dim", [candidate], (), {**dim, loop.kind: "unit"})
            _require(inner, "transform.match.structured.dim", candidate, dim, loop.size)
        inner.add("transform.match.structured.yield", [candidate])
        steps.add("transform.yield", [op.result])

    return body


def _require(steps: Steps, fact: str, op: mlir.Value, attributes: Mapping[str, str], value: int) -> None:
    kind = ["!transform.param<i64>"]
    found = steps.add(fact, [op], kind, attributes)
    wanted = steps.add("transform.param.constant", (), kind, {"value": f"{value} : i64"})
    steps.add("transform.match.param.cmpi", [*found, *wanted], (), {"predicate": "0 : i32"})


def _entry_body(steps: Steps) -> None:
    attributes = {"matchers": "[@match]", "actions": "[@schedule]"}
    steps.add("transform.yield", [steps.handle("transform.foreach_match", steps.arguments, attributes)])


# --------------------------------------------------------------------------------- the constraints op


def _constraints(declarations: Declarations, point: mlir.InsertionPoint) -> None:
    sizes = [
        mlir.Operation.create(
            "arith.constant",
            results=[mlir.IndexType.get()],
            attributes={"value": mlir.IntegerAttr.get(mlir.IndexType.get(), size)},
            ip=point,
        ).result
        for size in declarations.dims.values()
    ]
    op = mlir.Operation.create(
        "iree_codegen.smt.constraints",
        operands=sizes,
        attributes={
            "target": mlir.Attribute.parse("#iree_codegen.root_op<set = 0>"),
            "pipeline": mlir.Attribute.parse(declarations.pipeline),
            "knobs": mlir.Attribute.parse(_tree_text(declarations.knob_tree)),
            "mlsearch.dims": mlir.Attribute.parse(_plain_text(list(declarations.dims))),
            "mlsearch.domains": mlir.Attribute.parse(_plain_text(declarations.domains)),
            "mlsearch.defaults": mlir.Attribute.parse(_plain_text(declarations.defaults)),
            "mlsearch.priors": mlir.Attribute.parse(_plain_text(list(declarations.priors))),
        },
        regions=1,
        ip=point,
    )
    count = len(sizes)
    block = op.regions[0].blocks.append(*[mlir.Type.parse(_INT)] * count, arg_locs=[mlir.Location.unknown()] * count)
    terms = _Terms(block, dict(zip(declarations.dims, block.arguments, strict=True)))
    for assertion in declarations.assertions:
        terms.state(assertion)


class _Terms:
    """Writes SMT terms, each once."""

    def __init__(self, block: mlir.Block, dims: Mapping[str, mlir.Value]) -> None:
        self._steps = Steps(block)
        self._dims = dims
        self._written: dict[Expression, mlir.Value] = {}

    def state(self, assertion: Assertion) -> None:
        values = [self._value(term) for term in (assertion.condition, *assertion.shown)]
        self._steps.add("iree_codegen.smt.assert", values, (), {"msg": string_literal(assertion.message)})

    def _value(self, term: Expression) -> mlir.Value:
        if term.op == "dim":
            return self._dims[str(term.value)]
        if term not in self._written:
            self._written[term] = self._write(term)
        return self._written[term]

    def _write(self, term: Expression) -> mlir.Value:
        operands = [self._value(argument) for argument in term.arguments]
        name, attributes = f"smt.{term.op}", {}
        if term.op == "knob":
            name, attributes = "iree_codegen.smt.knob", {"name": string_literal(str(term.value))}
        elif term.op == "constant":
            name, attributes = "smt.int.constant", {"value": f"{term.value} : ui64"}
        elif term.op == "int.cmp":
            attributes = {"pred": f"{_PREDICATE[str(term.value)]} : i64"}
        kind = "!smt.bool" if term.op in ("int.cmp", *_TRUTHS) else _INT
        return self._steps.add(name, operands, [kind], attributes)[0]


def _tree_text(tree: object, level: str = "") -> str:
    """The `knobs` dictionary, as MLIR prints it."""
    if isinstance(tree, KnobLeaf):
        name = string_literal(tree.name)
        if not tree.options:
            return f"#iree_codegen.smt.int_knob<{name}>"
        return f"#iree_codegen.smt.one_of_knob<{name}, [{', '.join(tree.options)}]>"
    if isinstance(tree, Mapping):
        return f"{{{', '.join(f'{name} = {_tree_text(child, level or name)}' for name, child in tree.items())}}}"
    if isinstance(tree, list):
        return f"[{', '.join(_tree_text(child, level) for child in tree)}]"
    return str(tree) if level == OPTIONS else _plain_text(tree)


def _plain_text(value: object) -> str:
    """Plain Python values as MLIR prints them."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_plain_text(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_plain_text(each) for each in value)}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return string_literal(str(value))

"""Spaces that the compiler itself emits: `iree_codegen.smt.constraints` ops beside the op that they are about.

IREE adds them with `--iree-codegen-emit-pipeline-constraints` when it stops at its executable configurations, one for
each pipeline that could lower the op, and turns an assignment of their knobs into a `compilation_info` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from iree.compiler import ir as mlir
from iree.compiler.dialects import iree_codegen

from mlsearch.errors import TemplateError
from mlsearch.ir.module import Module, Operation, first_error, new_context, parse, top_level, walk
from mlsearch.ir.template import Assertion, KnobTree, knob_tree, read_assertions

_CONSTRAINTS = "iree_codegen.smt.constraints"
_OPTIONS = "gpu_pipeline_options"

# IREE fixes these in the options of its pipelines; as knobs they are materialized like all others. A third one,
# `prefetch_num_stages`, stays as it is: for CUDA both pipelines give the same PTX whatever its value, and so does
# TileAndFuse for the order of the workgroups.
_BANK_CONFLICTS = {"no_reduce_shared_memory_bank_conflicts": "[false, true]"}
_WORKGROUP_ORDER = {
    "reorder_workgroups_strategy": (
        "[#iree_gpu.reorder_workgroups_strategy<None>, #iree_gpu.reorder_workgroups_strategy<Transpose>]"
    )
}
# IREE's own choice has it for TileAndFuse, its constraints leave it out: without it, matmuls that add to a given matrix
# do not bufferize. For all others it changes nothing.
_ACCUMULATES = "convert_acc_gemm"
_OPENED = {"TileAndFuse": _BANK_CONFLICTS, "VectorDistribute": {**_BANK_CONFLICTS, **_WORKGROUP_ORDER}}


@dataclass(frozen=True)
class EmittedConstraints:
    """One pipeline's constraints on one op."""

    text: str
    """A module with the op and constants for its dims; the same for equal problems."""
    pipeline: str
    """Name of the pipeline, e.g. `TileAndFuse`."""
    dims: dict[str, int]
    """Size of each loop of the root op: `dim_0`, `dim_1`, ..."""
    knob_tree: KnobTree
    assertions: tuple[Assertion, ...]


def emitted_in(configured: str) -> list[str]:
    """The constraints ops in IR at the executable-configurations phase, each as a module of its own."""
    context = new_context()
    module = parse(configured, context)
    return [_alone(op, context) for op in walk(module.operation) if op.name == _CONSTRAINTS]


PADDED_STEP = "padded_step"
"""The knob that `padded` adds: iterations of the reduction that a step is padded to."""


def padded(text: str) -> str:
    """The module with an entry `padding` in the config: the workgroup's tile, and `PADDED_STEP` for the reduction. A
    convolution as implicit GEMM, whose tile has fewer loops than the convolution, also gets `padding_conv` with the
    tile of the convolution's parallel loops.

    IREE's own choice has them wherever a loop is no multiple of the matrix instruction's. Its constraints leave them
    out, and nearly all candidates then fail to bufferize.
    """
    module = parse(text, new_context())
    op = _constraints(module)
    tree = {entry.name: entry.attr for entry in mlir.DictAttr(op.attributes["knobs"])}
    with module.context:
        tile = [str(item) for item in mlir.ArrayAttr(tree["workgroup"])]
        steps = [str(item) for item in mlir.ArrayAttr(tree["reduction"])]
        place = [step.startswith("#iree_codegen.smt.int_knob") for step in steps].index(True)
        parallel = tile[:place]
        tile[place] = f'#iree_codegen.smt.int_knob<"{PADDED_STEP}">'
        entries = {name: str(value) for name, value in tree.items()} | {"padding": f"[{', '.join(tile)}]"}
        if len(tile) < len(op.operands):
            zeros = ["0 : i64"] * (len(op.operands) - len(parallel))
            entries["padding_conv"] = f"[{', '.join([*parallel, *zeros])}]"
        op.attributes["knobs"] = mlir.Attribute.parse(_dictionary(entries))
    return str(module)


def opened(text: str) -> str:
    """The module with those of the pipeline's fixed options made knobs that IREE acts upon for CUDA, and with what any
    candidate needs beside them."""
    module = parse(text, new_context())
    op = _constraints(module)
    knobs = _OPENED.get(_pipeline(op), {})
    tree = {entry.name: str(entry.attr) for entry in mlir.DictAttr(op.attributes["knobs"])}
    if _OPTIONS not in tree:
        return text
    with module.context:
        options = {entry.name: str(entry.attr) for entry in mlir.DictAttr(mlir.Attribute.parse(tree[_OPTIONS]))}
        for name, choices in knobs.items():
            options[name] = f'#iree_codegen.smt.one_of_knob<"{name}", {choices}>'
        tree[_OPTIONS] = _dictionary(options)
        if _pipeline(op) == "TileAndFuse":
            tree[_ACCUMULATES] = "unit"
        op.attributes["knobs"] = mlir.Attribute.parse(_dictionary(tree))
    return str(module)


def read_emitted(text: str) -> EmittedConstraints:
    """Raises TemplateError for a module without exactly one constraints op."""
    op = _constraints(_parsed(text))
    sizes = [int(mlir.IntegerAttr(value.owner.attributes["value"]).value) for value in op.operands]
    dims = {f"dim_{index}": size for index, size in enumerate(sizes)}
    return EmittedConstraints(
        text=text,
        pipeline=_pipeline(op),
        dims=dims,
        knob_tree=cast(KnobTree, knob_tree(op.attributes["knobs"])),
        assertions=read_assertions(op, list(dims)),
    )


def materialize(text: str, numbers: Mapping[str, int]) -> str:
    """The `#iree_codegen.compilation_info` that the compiler makes of an assignment: for each knob its value, or the
    index of a choice. Raises TemplateError if it refuses."""
    op = _constraints(_parsed(text))
    try:
        with op.context:
            return str(iree_codegen.materialize_compilation_info(op, dict(numbers)))
    except (mlir.MLIRError, RuntimeError, ValueError) as error:
        reason = first_error(error) if isinstance(error, mlir.MLIRError) else str(error)
        raise TemplateError(f"the compiler does not materialize {dict(numbers)}: {reason}") from None


def smtlib(text: str) -> str:
    """The constraints as the compiler writes them for an SMT solver."""
    return str(iree_codegen.convert_constraints_op_to_smtlib(_constraints(_parsed(text))))


@lru_cache(maxsize=16)
def _parsed(text: str) -> Module:
    return parse(text, new_context())


def _constraints(module: Module) -> Operation:
    found = [op for op in top_level(module) if op.name == _CONSTRAINTS]
    if len(found) != 1:
        raise TemplateError(f"a module with {len(found)} {_CONSTRAINTS} ops; exactly one is needed")
    return found[0]


def _pipeline(op: Operation) -> str:
    """`TileAndFuse` of `#iree_gpu.pipeline<TileAndFuse>`."""
    text = str(op.attributes["pipeline"])
    return text.partition("<")[2].rstrip(">") or text


def _alone(op: Operation, context: mlir.Context) -> str:
    with context, mlir.Location.unknown():
        module = mlir.Module.create()
        start = mlir.InsertionPoint(module.body)
        constants = [
            mlir.Operation.create(
                "arith.constant",
                results=[value.type],
                attributes={"value": value.owner.attributes["value"]},
                ip=start,
            )
            for value in op.operands
        ]
        copy = op.clone(start)
        for index, constant in enumerate(constants):
            copy.operands[index] = constant.results[0]
    return str(module)


def _dictionary(entries: Mapping[str, str]) -> str:
    return f"{{{', '.join(f'{name} = {value}' for name, value in entries.items())}}}"

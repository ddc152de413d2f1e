"""Payloads whose weights are constants, as models have them, made from samples that take them as an argument.

Written as bytecode when the suite runs: 64 MB of random weights would be 128 MB of text, and a splat or a formula is
what a compiler folds away.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from iree.compiler import ir as mlir

from mlsearch.ir.module import new_context, parse


def write_with_constant(sample: Path, operand: int, values: np.ndarray[Any, Any], output: Path) -> None:
    """The sample's only function, with an argument replaced by an `arith.constant` that holds `values`.

    Raises IrError for a sample that does not parse, ValueError for values of another shape.
    """
    context = new_context()
    module = parse(sample.read_text(), context)
    with context, mlir.Location.unknown(context):
        [function] = module.body.operations
        [block] = function.regions[0].blocks
        argument = block.arguments[operand]
        tensor = mlir.RankedTensorType(argument.type)
        if tuple(tensor.shape) != values.shape:
            raise ValueError(f"{sample}: argument {operand} is {argument.type}, not of shape {values.shape}")
        blob = mlir.DenseResourceElementsAttr.get_from_buffer(
            memoryview(np.ascontiguousarray(values)), "weights", tensor
        )
        start = mlir.InsertionPoint.at_block_begin(block)
        constant = mlir.Operation.create("arith.constant", results=[tensor], attributes={"value": blob}, ip=start)
        argument.replace_all_uses_with(constant.results[0])
        block.erase_argument(operand)
        old = mlir.FunctionType(mlir.TypeAttr(function.attributes["function_type"]).value)
        left = [each for index, each in enumerate(old.inputs) if index != operand]
        function.attributes["function_type"] = mlir.TypeAttr.get(mlir.FunctionType.get(left, old.results))
        assert module.operation.verify()
        with output.open("wb") as stream:
            module.operation.write_bytecode(stream)

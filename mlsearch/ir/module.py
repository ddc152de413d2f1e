"""Parse, walk and print MLIR modules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from iree.compiler import ir as mlir

from mlsearch.errors import MlsearchError

Module: TypeAlias = "mlir.Module"
Operation: TypeAlias = "mlir.Operation"

_BARE_SYMBOL = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")


class IrError(MlsearchError):
    """Text that MLIR does not accept; the message is MLIR's first error."""


def new_context() -> mlir.Context:
    """A context with all dialects of IREE's compiler."""
    return mlir.Context()


def parse(text: str | bytes, context: mlir.Context) -> Module:
    """A verified module. Raises IrError."""
    try:
        with context:
            return mlir.Module.parse(text, context)
    except mlir.MLIRError as error:
        raise IrError(first_error(error)) from None


def first_error(error: mlir.MLIRError) -> str:
    """The first diagnostic of a failed call into MLIR, on one line."""
    diagnostics = error.error_diagnostics
    if diagnostics:
        return f"{diagnostics[0].location}: {diagnostics[0].message}".replace("\n", " ")[:300]
    return str(error).strip().splitlines()[0][:300]


def walk(op: Operation) -> Iterator[Operation]:
    """`op` and all operations nested in it, outer ones first."""
    yield op
    for region in op.regions:
        for block in region.blocks:
            for nested in block.operations:
                yield from walk(nested.operation)


def identity(value: mlir.Value) -> object:
    """Equal for equal values; the bindings make a new object whenever a value is asked for."""
    if isinstance(value, mlir.OpResult):
        return (hash(value.owner), value.result_number)
    return hash(value)


def top_level(module: Module) -> list[Operation]:
    return [op.operation for op in module.body.operations]


def symbol_name(op: Operation) -> str:
    return str(mlir.StringAttr(op.attributes["sym_name"]).value)


def print_local(op: Operation) -> str:
    """Text of one operation that stands on its own: no aliases defined elsewhere."""
    return str(op.get_asm(use_local_scope=True))


def symbol_ref(name: str) -> str:
    """`@name`, quoted as MLIR needs it for names with spaces, quotes, dashes or other special characters."""
    if _BARE_SYMBOL.fullmatch(name):
        return f"@{name}"
    return f"@{string_literal(name)}"


def string_literal(text: str) -> str:
    """An MLIR string literal: printable ASCII as it is, all else as two hex digits a byte."""
    plain = "".join(
        chr(byte) if 32 <= byte < 127 and byte not in (34, 92) else f"\\{byte:02X}" for byte in text.encode()
    )
    return f'"{plain}"'


def python_value(attribute: mlir.Attribute) -> object:
    """An attribute made of dictionaries, arrays, integers, booleans and strings as plain Python values; any
    other attribute as its text."""
    if isinstance(attribute, mlir.DictAttr):
        return {entry.name: python_value(entry.attr) for entry in attribute}
    if isinstance(attribute, mlir.ArrayAttr | mlir.DenseI64ArrayAttr):
        return [item if isinstance(item, int) else python_value(item) for item in attribute]
    if isinstance(attribute, mlir.BoolAttr):
        return bool(attribute.value)
    if isinstance(attribute, mlir.IntegerAttr):
        return int(attribute.value)
    if isinstance(attribute, mlir.StringAttr):
        return str(attribute.value)
    return str(attribute)

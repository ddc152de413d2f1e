"""Payload variants as MLIR: what is set or rewritten before dispatches form, and how a spec carries it along.

A variant's file is a module with

    mlsearch.flags = ["--iree-…"]     flags of the compiler, on the module
    @__transform_main                 the sequence that IREE runs on the whole payload; may be missing
    mlsearch.domains = {n = [16, 32]} on the module: values of each knob, each combination is a variant of its own
    mlsearch.knobs = ["", "n", ""]    on `transform.structured.pack`: the knob behind each packed size, "" for none; on
                                      `transform.structured.split_reduction`: the one behind its factor

A spec for a variant has these sequences beside its own, and `mlsearch.variant` with the variant's name on its module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from iree.compiler import ir as mlir

from mlsearch.errors import TemplateError
from mlsearch.ir.module import (
    IrError,
    Module,
    Operation,
    new_context,
    parse,
    python_value,
    symbol_name,
    top_level,
    walk,
)

SCRIPT_NAME = "-"
"""What MLIR calls the source of a text that was not read from a file."""
REWRITE = "__transform_main"
"""The sequence that IREE looks for in a preprocessing script."""
_FLAGS, _DOMAINS, _KNOBS, _VARIANT = "mlsearch.flags", "mlsearch.domains", "mlsearch.knobs", "mlsearch.variant"
_SIZES = {"transform.structured.pack": "static_packed_sizes", "transform.structured.split_reduction": "split_factor"}
"""Op to the attribute that knobs stand behind: an array of sizes, or a single one."""
# What IREE 3.13 calls such options: path, paths, file, patterns-file, library-file-name, transform-spec-path, ...; of
# linkers toolkit, link-module and l; substitutions (name=file), command and cmd-options for programs to run, and
# pipeline for passes that are again written out.
_REACHES_OUT = re.compile(r"path|file|dir|librar|toolkit|link|substitut|command|cmd|^(default-)?pipeline$|^l$")
_PIPELINE = re.compile(r'#iree_codegen\.pass_pipeline<\s*"((?:[^"\\]|\\.)*)"')
_PASS, _OPTION = re.compile(r"([\w-]+)\s*\{"), re.compile(r"([\w.-]+)\s*=")


@dataclass(frozen=True)
class Preprocessing:
    """What a variant's file declares."""

    flags: tuple[str, ...]
    domains: dict[str, tuple[int, ...]]
    rewrites: bool
    """It has a sequence that changes the payload."""


@dataclass(frozen=True)
class Carried:
    """The variant that a spec is for."""

    name: str | None
    """None: the payload as it is."""
    flags: tuple[str, ...]
    rewrites: bool


def read_preprocessing(text: str, where: str) -> Preprocessing:
    """Raises TemplateError, naming `where`."""
    module = _parsed(text, where)
    flags = _flags(module, where)
    domains = _plain(module, _DOMAINS, {})
    if not (isinstance(domains, dict) and all(_are_integers(values) for values in domains.values())):
        raise TemplateError(f"{where}: {_DOMAINS} has to give each knob a list of integers")
    used = {name for op in walk(module.operation) for name in _knob_names(op, where) if name}
    if used != set(domains):
        odd = ", ".join(sorted(used ^ set(domains)))
        raise TemplateError(f"{where}: {_DOMAINS} and {_KNOBS} do not name the same knobs: {odd}")
    rewrites = _rewrites(module)
    if not rewrites and not flags:
        raise TemplateError(f"{where} sets no {_FLAGS} and has no sequence @{REWRITE}, so it is no variant")
    return Preprocessing(flags, {str(name): tuple(values) for name, values in domains.items()}, rewrites)


def bind_preprocessing(text: str, values: Mapping[str, int]) -> str:
    """The script with these knob values, without mlsearch's own attributes. `text` has been read without complaint.

    Its ops say in which line of `text` they stand, so that the compiler can say which one failed: `SCRIPT_NAME:5:3`.
    """
    module = parse(text, new_context())
    for op in list(walk(module.operation)):
        names = _knob_names(op, "")
        if not names:
            continue
        with module.context:
            sizes = op.attributes[_SIZES[op.name]]
            bound = [values[name] if name else size for name, size in zip(names, _numbers(sizes), strict=True)]
            op.attributes[_SIZES[op.name]] = (
                mlir.DenseI64ArrayAttr.get(bound)
                if isinstance(sizes, mlir.DenseI64ArrayAttr)
                else mlir.IntegerAttr.get(sizes.type, bound[0])
            )
        del op.attributes[_KNOBS]
    for name in (_FLAGS, _DOMAINS):
        if name in module.operation.attributes:
            del module.operation.attributes[name]
    return str(module.operation.get_asm(enable_debug_info=True))


def carry(library: str, name: str, flags: tuple[str, ...], script: str | None) -> str:
    """A transform library that also holds what its variant needs: flags as an attribute, sequences as its own.

    Raises TemplateError if a sequence of the script has the name of one of the library's.
    """
    module = parse(library, new_context())
    with module.context:
        attributes = module.operation.attributes
        attributes[_VARIANT] = mlir.StringAttr.get(name)
        attributes[_FLAGS] = mlir.ArrayAttr.get([mlir.StringAttr.get(flag) for flag in flags])
    if script is None:
        return str(module)
    taken = {symbol_name(op) for op in top_level(module)}
    source = parse(script, module.context)
    for op in top_level(source):
        if symbol_name(op) in taken:
            raise TemplateError(f"variant '{name}': its sequence @{symbol_name(op)} has the name of a spec's own")
        op.clone(mlir.InsertionPoint(module.body))
    return str(module)


def carried(text: str, where: str) -> Carried:
    """The variant that a spec is for. Raises TemplateError for a spec that is no MLIR, or says it in another form."""
    module = _parsed(text, where)
    name = _plain(module, _VARIANT, None)
    return Carried(None if name is None else str(name), _flags(module, where), _rewrites(module))


def _flags(module: Module, where: str) -> tuple[str, ...]:
    flags = _plain(module, _FLAGS, [])
    if not (isinstance(flags, list) and all(isinstance(flag, str) for flag in flags)):
        raise TemplateError(f"{where}: {_FLAGS} is not a list of strings")
    return tuple(flags)


def _parsed(text: str, where: str) -> Module:
    try:
        module = parse(text, new_context())
    except IrError as error:
        raise TemplateError(f"{where} is not a transform library that MLIR accepts: {error}") from None
    for op in walk(module.operation):
        for name, option in (*_options(op), *_written_options(op)):
            if _REACHES_OUT.search(option):
                raise TemplateError(
                    f"{where}: a script may not have the compiler read or write files, nor run programs: pass '{name}'"
                    f" with option '{option}'"
                )
    return module


def _options(op: Operation) -> list[tuple[str, str]]:
    """(pass, option) of what a script gives to a pass of the compiler."""
    if op.name != "transform.apply_registered_pass" or "options" not in op.attributes:
        return []
    name = str(python_value(op.attributes["pass_name"]))
    return [(name, option.name) for option in mlir.DictAttr(op.attributes["options"])]


def _written_options(op: Operation) -> list[tuple[str, str]]:
    """The same in pipelines that are written out as text, however deep in an attribute: `a,b{option=value},c(d)`."""
    found = []
    for name in op.attributes:
        for pipeline in _PIPELINE.findall(str(op.attributes[name])):
            for option in _OPTION.finditer(pipeline):
                passes = _PASS.findall(pipeline, 0, option.start())
                found.append((passes[-1] if passes else "?", option[1]))
    return found


def _plain(module: Module, name: str, default: object) -> object:
    attributes = module.operation.attributes
    return python_value(attributes[name]) if name in attributes else default


def _rewrites(module: Module) -> bool:
    return any(op.name == "transform.named_sequence" and symbol_name(op) == REWRITE for op in top_level(module))


def _are_integers(values: object) -> bool:
    return isinstance(values, list) and bool(values) and all(type(value) is int for value in values)


def _knob_names(op: Operation, where: str) -> list[str]:
    """The knob behind each size of `op`; empty if it has none."""
    if _KNOBS not in op.attributes:
        return []
    names = python_value(op.attributes[_KNOBS])
    count = len(_numbers(op.attributes[_SIZES[op.name]])) if op.name in _SIZES else 0
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names) and len(names) == count):
        raise TemplateError(
            f"{where}: {_KNOBS} goes on {' or '.join(_SIZES)}, with one name, or an empty one, per size"
        )
    return [str(name) for name in names]


def _numbers(sizes: mlir.Attribute) -> list[int]:
    return list(sizes) if isinstance(sizes, mlir.DenseI64ArrayAttr) else [int(mlir.IntegerAttr(sizes).value)]

"""Transform libraries: match one dispatch exactly, hand its ops to a schedule, mark what was touched.

An entry of a library is three named sequences and one pair in `@__kernel_config`:

    @match_<entry>      the dispatch's whole computation, from the op whose result is stored back to the loads
    @schedule_<entry>   a template with its knobs bound; gets the root op
    @apply_<entry>      gets the matched ops: runs the schedule, lays the tile sizes out on the other ops, marks
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.matcher import matcher_text
from mlsearch.ir.module import new_context, parse, string_literal, symbol_ref

MARKER = "mlsearch.entry"
ENTRY_POINT = "__kernel_config"
_ANY = "!transform.any_op"


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
    matcher = matcher_text(name, view, (view.root, *companions))
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

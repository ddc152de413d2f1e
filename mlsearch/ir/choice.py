"""What IREE itself chooses for a dispatch, read from the dispatch as IREE has configured it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from iree.compiler import ir as mlir
from iree.compiler.dialects.iree_codegen import TranslationInfoAttr
from iree.compiler.dialects.iree_gpu import LoweringConfigAttr

from mlsearch.ir.dispatch import DispatchView, body_operations
from mlsearch.ir.module import new_context, parse, python_value, string_literal, symbol_ref

_TRANSLATION = "translation_info"
_CONFIG = "lowering_config"
_DECOMPOSITION = "decomposition_config"
_ANY = "!transform.any_op"


@dataclass(frozen=True)
class Choice:
    """Attributes of a configured function and of its compute ops, as MLIR prints them."""

    pipeline: str
    """E.g. `#iree_gpu.pipeline<TileAndFuse>`."""
    workgroup_size: tuple[int, ...]
    """Threads along x, y and z."""
    translation: str
    """The whole translation info."""
    of_root: Mapping[str, str]
    """Attributes of the root op that say how it is lowered; may be empty."""
    of_others: Mapping[int, str]
    """Lowering configs of other ops, by index into the compute ops."""
    entries: Mapping[str, str]
    """Entries of the root op's lowering config, where that is a GPU's."""
    sizes: Mapping[str, tuple[int, ...]]
    """Those of them that are lists of integers: mostly tile sizes, one per loop."""

    def of_each(self, root: int) -> dict[int, str]:
        """What every op gets, as a dictionary attribute, by index into the compute ops."""
        given = {index: {_CONFIG: config} for index, config in self.of_others.items()} | {root: dict(self.of_root)}
        return {
            index: f"{{{', '.join(f'{name} = {value}' for name, value in own.items())}}}"
            for index, own in sorted(given.items())
        }

    def with_sizes(self, sizes: Mapping[str, Sequence[int]]) -> str:
        """The root op's lowering config with other lists in place of its own."""
        texts = {**self.entries, **{name: str(list(own)) for name, own in sizes.items()}}
        return f"#iree_gpu.lowering_config<{{{', '.join(f'{name} = {text}' for name, text in texts.items())}}}>"

    def with_threads(self, threads: int) -> str:
        """The translation info for another number of threads, all along x."""
        with new_context():
            own = TranslationInfoAttr(mlir.Attribute.parse(self.translation))
            other = TranslationInfoAttr.get(
                own.pass_pipeline, own.codegen_spec, [threads, 1, 1], own.subgroup_size, own.configuration
            )
            return str(other)


def read_choice(configured: DispatchView) -> Choice | None:
    """None for a dispatch that IREE has not configured."""
    module = parse(configured.function, new_context())  # a function goes when its module does
    function = module.body.operations[0].operation
    if _TRANSLATION not in function.attributes:
        return None
    translation = TranslationInfoAttr(function.attributes[_TRANSLATION])
    operations = body_operations(function)
    of_each = [
        {name: op.attributes[name] for name in (_CONFIG, _DECOMPOSITION) if name in op.attributes}
        for op in (operations[each.position] for each in configured.compute_ops)
    ]
    config = of_each[configured.root].get(_CONFIG)
    is_gpu = config is not None and LoweringConfigAttr.isinstance(config)
    entries = list(LoweringConfigAttr(config).attributes) if is_gpu else []
    sizes = {entry.name: python_value(entry.attr) for entry in entries}
    return Choice(
        pipeline=str(translation.pass_pipeline),
        workgroup_size=tuple(translation.workgroup_size),
        translation=str(translation),
        of_root={name: str(each) for name, each in of_each[configured.root].items()},
        of_others={
            index: str(own[_CONFIG]) for index, own in enumerate(of_each) if index != configured.root and _CONFIG in own
        },
        entries={entry.name: str(entry.attr) for entry in entries},
        sizes={name: tuple(own) for name, own in sizes.items() if _are_integers(own)},
    )


def _are_integers(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(each) is int for each in value)


def choice_schedule(name: str, root: Mapping[str, str], translation: str) -> str:
    """The sequence `@schedule_<name>`: the root op gets these attributes, its function the translation info."""
    lines = [f"transform.named_sequence {symbol_ref('schedule_' + name)}(%root: {_ANY} {{transform.readonly}}) {{"]
    for index, (attribute, value) in enumerate(root.items()):
        lines += [
            f"  %value{index} = transform.param.constant {value} -> !transform.any_param",
            f"  transform.annotate %root {string_literal(attribute)} = %value{index} : {_ANY}, !transform.any_param",
        ]
    return "\n".join(
        [
            *lines,
            f'  %function = transform.get_parent_op %root <{{op_name = "func.func"}}> : ({_ANY}) -> {_ANY}',
            f"  %translation = transform.param.constant {translation} -> !transform.any_param",
            f"  transform.annotate %function {string_literal(_TRANSLATION)} = %translation"
            f" : {_ANY}, !transform.any_param",
            "  transform.yield",
            "}",
        ]
    )

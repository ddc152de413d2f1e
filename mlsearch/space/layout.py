"""Lay an assignment out on the loops of a dispatch: knob values to IREE lowering configs, for all its ops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from mlsearch.candidate import KnobValue
from mlsearch.errors import TemplateError
from mlsearch.ir.dispatch import ComputeOp, DispatchView
from mlsearch.ir.template import OPTIONS, Declarations, KnobLeaf
from mlsearch.workload import CPU_LEVELS, Loop, Tiling

"""IREE's CPU tiling levels, outermost first."""

MATMULS = ("scores", "values")
"""In place of a level, for a strategy on attention: the tiles of its two matmuls."""

CONSUMERS = "consumers"
"""In place of a level: vector tiles of the ops that come after the root op, where they differ from its own."""

_REDUCTION_LEVELS = ("cache_reduction", "vector_reduction")
_PARTIAL_LEVEL = "vector_reduction"

# A loop that the template does not name is cut to single iterations at these levels, and not at all at the others.
_UNIT_LEVELS = {
    "distribution": "parallel",
    "vector_common_parallel": "parallel",
    "vector_reduction": "reduction",
}
_ORDER = "order"
BUFFERS = "buffers"
"""In place of a level, for a strategy: knobs that it takes for itself, and that are no tile sizes."""
PIPELINE = "pipeline"
"""In `options`: a choice among pipelines, named or written out pass by pass."""
WORKGROUP_SIZE = "workgroup_size"
"""In `options`, on a GPU: a choice of the roles whose threads are counted along x, y and z."""


@dataclass(frozen=True)
class Layout:
    """An assignment on a dispatch."""

    tiling: Tiling
    root_config: str
    """`#iree_cpu.lowering_config<...>` of the root op."""
    companion_configs: dict[int, str]
    """The same for other ops, by index into the dispatch's compute ops."""
    options: str
    """Entries of the translation info as a dictionary attribute, or an empty text."""
    reductions: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """`vector_reduction` sizes of the ops that reduce, root op included, by index into the compute ops."""
    launch: str = ""
    """On a GPU the translation info's workgroup and subgroup sizes."""
    decomposition: str = ""
    """Of an attention op: its `decomposition_config`."""


def check_layout(declarations: Declarations, knobs: Mapping[str, KnobValue]) -> None:
    """Raises TemplateError for a `knobs` dictionary that can't be laid out. `knobs` has a value for each."""
    for level, tree in declarations.knob_tree.items():
        if not isinstance(tree, dict):
            raise TemplateError(f"knobs: '{level}' must be a dictionary, not {tree}")
        known = (*CPU_LEVELS, CONSUMERS, OPTIONS)
        if level not in known and not declarations.is_strategy:
            raise TemplateError(f"knobs: '{level}' is no tiling level; known: {', '.join(known)}")
        if level not in (*CPU_LEVELS, *MATMULS, BUFFERS, CONSUMERS):
            continue
        for role, leaf in tree.items():
            if role == _ORDER:
                _interchange(leaf, (), knobs)
            else:
                tile_size(leaf, knobs)


def lay_out(declarations: Declarations, view: DispatchView, knobs: Mapping[str, KnobValue], lanes: int) -> Layout:
    """`lanes`: elements of the output type in a vector register."""
    loops = view.workload.loops
    levels: list[tuple[str, tuple[int, ...]]] = []
    orders: dict[str, tuple[int, ...]] = {}
    for level in CPU_LEVELS:
        tree = declarations.knob_tree.get(level, {})
        assert isinstance(tree, dict)
        sizes = tuple(_size(level, loop, tree, knobs) for loop in loops)
        # IREE builds no pipeline for a root op without a distribution level, so one of zeros is written out.
        if any(sizes) or level == "distribution":
            levels.append((level, sizes))
        order = _interchange(tree.get(_ORDER), loops, knobs)
        if order and any(sizes):
            orders[level] = order
    options = options_of(declarations, knobs)
    buffers = declarations.knob_tree.get(BUFFERS, {})
    assert isinstance(buffers, dict)
    behind = _behind(declarations, view, knobs)
    tiling = Tiling(
        tuple(levels),
        tuple(
            sorted(
                [(name, str(value)) for name, value in options.items()]
                + [(f"{BUFFERS}.{name}", str(tile_size(leaf, knobs))) for name, leaf in buffers.items()]
                + [(f"{level}.order", ",".join(map(str, order))) for level, order in orders.items()]
                + [(f"{CONSUMERS}.{role}", size) for role, size in behind.items()]
            )
        ),
    )
    companions = {
        index: _companion_levels(op, tiling, loops, lanes, behind if index > view.root else {})
        for index, op in enumerate(view.compute_ops)
        if index != view.root
    }
    root_levels = [
        (level, own)
        for level, sizes in tiling.levels
        if any(own := _of_kind(level, sizes, loops)) or level == "distribution"
    ]
    reductions = {view.root: dict(root_levels).get(_PARTIAL_LEVEL)}
    reductions |= {index: dict(own).get(_PARTIAL_LEVEL) for index, own in companions.items()}
    return Layout(
        tiling,
        config_text(root_levels, orders),
        {index: text for index, own in companions.items() if (text := config_text(own, {}))},
        dictionary(options),
        {index: sizes for index, sizes in reductions.items() if sizes},
    )


def _behind(declarations: Declarations, view: DispatchView, knobs: Mapping[str, KnobValue]) -> dict[str, int]:
    """Vector tiles of the ops after the root op by its loops' roles, as far as they are not the root op's own."""
    tree = declarations.knob_tree.get(CONSUMERS, {})
    assert isinstance(tree, dict)
    if view.root == len(view.compute_ops) - 1:
        return {}
    sizes = {role: tile_size(leaf, knobs) for role, leaf in tree.items()}
    return {role: size for role, size in sizes.items() if size}


def _of_kind(level: str, sizes: tuple[int, ...], loops: Sequence[Loop]) -> tuple[int, ...]:
    """The sizes that IREE accepts at a level: a template may name a reduction loop at a parallel level, which is then
    meant for the other ops that run along it in parallel."""
    kind = "reduction" if level in _REDUCTION_LEVELS else "parallel"
    return tuple(size if loop.kind == kind else 0 for size, loop in zip(sizes, loops, strict=True))


def _size(level: str, loop: Loop, tree: Mapping[str, object], knobs: Mapping[str, KnobValue]) -> int:
    if loop.role not in tree:
        return 1 if _UNIT_LEVELS.get(level) == loop.kind else 0
    return min(tile_size(tree[loop.role], knobs), loop.size)


def tile_size(leaf: object, knobs: Mapping[str, KnobValue]) -> int:
    """A size in the `knobs` dictionary: a knob, a number, or a list of them that is multiplied."""
    if isinstance(leaf, list):
        return prod(tile_size(factor, knobs) for factor in leaf)
    if isinstance(leaf, KnobLeaf) and not leaf.options:
        return int(knobs[leaf.name])
    if isinstance(leaf, int) and not isinstance(leaf, bool):
        return leaf
    raise TemplateError(f"knobs: a tile size must be a knob, a number or a list of them, not {_shown(leaf)}")


def _interchange(leaf: object, loops: Sequence[Loop], knobs: Mapping[str, KnobValue]) -> tuple[int, ...] | None:
    """The loop order of a level as a permutation, or None if it is the op's own."""
    if leaf is None:
        return None
    if not isinstance(leaf, KnobLeaf):
        raise TemplateError(f"knobs: 'order' must be a choice among lists of roles, not {_shown(leaf)}")
    roles = leaf.option_values[leaf.options.index(str(knobs[leaf.name]))] if leaf.options else None
    if not isinstance(roles, list):
        raise TemplateError(f"knobs: 'order' must be a choice among lists of roles, not {_shown(leaf)}")
    positions = {loop.role: index for index, loop in enumerate(loops)}
    wanted = [positions[role] for role in roles if role in positions]
    order = list(range(len(loops)))
    for place, loop in zip(sorted(wanted), wanted, strict=True):
        order[place] = loop
    return None if order == list(range(len(loops))) else tuple(order)


def _shown(leaf: object) -> str:
    return f"the knob '{leaf.name}'" if isinstance(leaf, KnobLeaf) else str(leaf)


def options_of(declarations: Declarations, knobs: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """Entries of the translation info with their values."""
    tree = declarations.knob_tree.get(OPTIONS, {})
    assert isinstance(tree, dict)
    return {name: _option(leaf, knobs) for name, leaf in tree.items() if name not in (PIPELINE, WORKGROUP_SIZE)}


def _option(leaf: object, knobs: Mapping[str, KnobValue]) -> KnobValue:
    if isinstance(leaf, KnobLeaf):
        return knobs[leaf.name]
    if isinstance(leaf, dict):
        entries = ", ".join(f"{name} = {_option(each, knobs)}" for name, each in leaf.items())
        return f"#iree_gpu.pipeline_options<{entries}>"
    return str(leaf)


def pipeline_of(declarations: Declarations, knobs: Mapping[str, KnobValue]) -> str:
    """IREE's lowering pipeline: the template's own, or the one that its knob chooses."""
    tree = declarations.knob_tree.get(OPTIONS, {})
    leaf = tree.get(PIPELINE) if isinstance(tree, dict) else None
    return str(knobs[leaf.name]) if isinstance(leaf, KnobLeaf) else declarations.pipeline


def _companion_levels(
    op: ComputeOp, tiling: Tiling, loops: Sequence[Loop], lanes: int, smaller: Mapping[str, int]
) -> list[tuple[str, tuple[int, ...]]]:
    """Tile sizes by level that let this op be fused into the root op's tiles and be vectorized. `smaller`: vector
    tiles by role where they are not to be the root op's."""
    levels = tiling.by_level
    zeros = (0,) * len(loops)
    common = levels.get("vector_common_parallel", zeros)
    reduced = levels.get("vector_reduction", zeros)
    inner = levels.get("vector_inner_parallel", zeros)
    own: dict[str, list[int]] = {level: [0] * len(op.kinds) for level in CPU_LEVELS[3:]}
    for index, (kind, root_loop) in enumerate(zip(op.kinds, op.root_loops, strict=True)):
        root_kind = loops[root_loop].kind if root_loop is not None else None
        if kind == "reduction":
            size = reduced[root_loop] if root_loop is not None and root_kind == "reduction" else 0
            own["vector_reduction"][index] = size or 1
        elif root_loop is not None and root_kind == "parallel":
            size = min(common[root_loop], smaller.get(loops[root_loop].role, common[root_loop]))
            own["vector_common_parallel"][index] = _in_tiles(size, op.strides[index])
        else:
            # Parallel here, but not in the root op, e.g. the last op of a softmax.
            size = inner[root_loop] if root_loop is not None else 0
            innermost = index == len(op.kinds) - 1
            own["vector_inner_parallel"][index] = size or (lanes if innermost else 1)
    return [(level, tuple(sizes)) for level, sizes in own.items() if any(sizes)]


def _in_tiles(size: int, stride: int) -> int:
    """Iterations of a loop, each of which covers `stride` elements, for so many elements."""
    return max(1, size // stride) if size else 0


def config_text(levels: Sequence[tuple[str, tuple[int, ...]]], orders: Mapping[str, tuple[int, ...]]) -> str:
    """A lowering config of these levels, each with one size per loop; empty without any."""
    if not levels:
        return ""
    parts = []
    for level, sizes in levels:
        text = f"[{', '.join(map(str, sizes))}]"
        if level in orders:
            text = f"{{sizes = {text}, interchange = [{', '.join(map(str, orders[level]))}]}}"
        parts.append(f"{level} = {text}")
    return f"#iree_cpu.lowering_config<{', '.join(parts)}>"


def dictionary(options: Mapping[str, KnobValue]) -> str:
    """A dictionary attribute, or an empty text.

    Options that are `false` are left out: IREE looks at the presence of some, not at their value.
    """
    entries = [name if value == "true" else f"{name} = {value}" for name, value in options.items() if value != "false"]
    return f"{{{', '.join(entries)}}}" if entries else ""

"""Lay an assignment out on the loops of a dispatch for IREE's GPU pipelines.

TileAndFuse takes one config, on the root op, and fuses the others into its tiles. VectorDistribute takes one on each op
that has loops of the root op, and spreads vectors over lanes and subgroups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, prod

from mlsearch.candidate import KnobValue
from mlsearch.cuda.chips import WARP, matrix_instruction
from mlsearch.errors import TemplateError
from mlsearch.ir.dispatch import ComputeOp, DispatchView
from mlsearch.ir.template import OPTIONS, Declarations, KnobLeaf
from mlsearch.space.layout import BUFFERS, WORKGROUP_SIZE, Layout, dictionary, options_of, tile_size
from mlsearch.workload import Loop, Tiling

GPU_PIPELINE = "#iree_gpu.pipeline<"
GPU_LEVELS = ("workgroup", "reduction", "partial_reduction", "warps", "subgroup", "lane", "thread")
"""Tiling levels of IREE's GPU pipelines, outermost first. `warps` and `lane` count those that share a tile along a
loop; for VectorDistribute, `subgroup` does too."""
EXTRAS = "config"
"""Entry of the `knobs` dictionary with entries of the lowering config that are no tile sizes."""

_REDUCTION_LEVELS = ("reduction", "partial_reduction")
_BASIS_LEVELS = ("subgroup", "lane")


def check_gpu_levels(declarations: Declarations) -> None:
    """Raises TemplateError for an entry of `knobs` that no GPU pipeline has."""
    known = (*GPU_LEVELS, OPTIONS, EXTRAS, *((BUFFERS,) if declarations.is_strategy else ()))
    for level in declarations.knob_tree:
        if level not in known:
            raise TemplateError(f"knobs: '{level}' is no GPU tiling level; known: {', '.join(known)}")


def lay_out_gpu(declarations: Declarations, view: DispatchView, knobs: Mapping[str, KnobValue]) -> Layout:
    loops = view.workload.loops
    distributes = "VectorDistribute" in declarations.pipeline
    levels = [
        (level, tuple(level_size(level, loop, declarations.knob_tree[level], knobs, distributes) for loop in loops))
        for level in GPU_LEVELS
        if level in declarations.knob_tree
    ]
    sizes = dict(levels)
    options = options_of(declarations, knobs)
    extras = config_entries(declarations, knobs)
    if distributes:
        threads = prod(sizes.get("subgroup", (1,))) * prod(sizes.get("lane", (1,)))
        root = _distributed(view.compute_ops[view.root], sizes, loops, extras, is_root=True)
        companions = {
            index: config
            for index, op in enumerate(view.compute_ops)
            if index != view.root and (config := _distributed(op, sizes, loops, {}, is_root=False))
        }
    else:
        threads = prod(_threads_along(loop, index, sizes) for index, loop in enumerate(loops))
        if "warps" in sizes:
            threads = WARP * prod(sizes["warps"])
        entries = {level: _list(own) for level, own in levels if level != "warps"} | extras
        root, companions = f"#iree_gpu.lowering_config<{dictionary(entries)}>", {}
    chosen: list[tuple[str, KnobValue]] = [(name, str(value)) for name, value in sorted((options | extras).items())]
    if BUFFERS in declarations.knob_tree:
        buffers = declarations.knob_tree[BUFFERS]
        assert isinstance(buffers, dict)
        chosen.append(("stages", prod(tile_size(each, knobs) for each in buffers.values())))
    return Layout(
        tiling=Tiling(tiles(loops, sizes, extras, distributes), tuple([*chosen, ("threads", threads)])),
        root_config=root,
        companion_configs=companions,
        options=dictionary(options),
        launch=f" workgroup_size = {_list(_workgroup_size(declarations, loops, sizes, knobs, threads))}"
        f" subgroup_size = {WARP}",
    )


def _workgroup_size(
    declarations: Declarations,
    loops: Sequence[Loop],
    sizes: Mapping[str, tuple[int, ...]],
    knobs: Mapping[str, KnobValue],
    threads: int,
) -> tuple[int, int, int]:
    """Threads along x, y and z. Which of them does what is the same; how they number themselves is not."""
    options = declarations.knob_tree.get(OPTIONS, {})
    leaf = options.get(WORKGROUP_SIZE) if isinstance(options, dict) else None
    if not isinstance(leaf, KnobLeaf):
        return threads, 1, 1
    roles = leaf.option_values[leaf.options.index(str(knobs[leaf.name]))]
    if not isinstance(roles, list) or len(roles) > 2:
        raise TemplateError(f"knobs: '{WORKGROUP_SIZE}' must be a choice among lists of at most two roles")
    along = {loop.role: _threads_along(loop, index, sizes) for index, loop in enumerate(loops)}
    named = [along.get(role, 1) for role in roles]
    x, y, z = [*named, threads // prod(named), 1, 1][:3]
    return x, y, z


def tiles(
    loops: Sequence[Loop], sizes: Mapping[str, tuple[int, ...]], extras: Mapping[str, str], distributes: bool
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The levels of `workload.GPU_TILES`, of those that the pipeline has; `distributes`: for VectorDistribute."""
    shape = matrix_instruction(extras.get("mma_kind", ""))
    # TileAndFuse counts a warp's tile and a step in matrix instructions.
    units = dict(zip("mnk", shape, strict=True)) if shape and not distributes else {}
    inside = {
        level: tuple(min(size, loop.size) for size, loop in zip(own, loops, strict=True))
        for level, own in sizes.items()
    }
    workgroup = inside["workgroup"]
    step = [size * units.get(loop.role, 1) for size, loop in zip(_step(sizes, loops), loops, strict=True)]
    found = [("workgroup", workgroup), ("step", tuple(step))]
    counts = sizes.get("subgroup") if distributes else sizes.get("warps")
    if counts:
        around = (
            own if loop.kind == "parallel" else other for own, other, loop in zip(workgroup, step, loops, strict=True)
        )
        found.append(("warp", tuple(ceil(whole / max(1, n)) for whole, n in zip(around, counts, strict=True))))
    if "thread" in sizes:
        found.append(("thread", inside["thread"]))
    return tuple(found)


def _step(sizes: Mapping[str, tuple[int, ...]], loops: Sequence[Loop]) -> tuple[int, ...]:
    return next((sizes[level] for level in _REDUCTION_LEVELS if level in sizes), (0,) * len(loops))


def level_size(level: str, loop: Loop, tree: object, knobs: Mapping[str, KnobValue], distributes: bool) -> int:
    """Size of a loop at a level of the `knobs` dictionary; `distributes`: for VectorDistribute."""
    assert isinstance(tree, dict)
    if level == "warps" or (distributes and level in _BASIS_LEVELS):
        return tile_size(tree[loop.role], knobs) if loop.role in tree else 1
    kind = "reduction" if level in _REDUCTION_LEVELS or (distributes and level == "thread") else "parallel"
    if loop.kind != kind:
        return 0
    if loop.role in tree:
        size = tile_size(tree[loop.role], knobs)
        # TileAndFuse itself ends a tile where its loop ends. Cut to the loop, it would go to another number of threads.
        return size if kind == "parallel" and not distributes else min(size, loop.size)
    # A loop that the template does not name is cut to single iterations.
    return 0 if level == "subgroup" or (distributes and level == "thread") else 1


def _threads_along(loop: Loop, index: int, sizes: Mapping[str, tuple[int, ...]]) -> int:
    """Threads that share a workgroup's tile of a loop."""
    if loop.kind != "parallel" or "thread" not in sizes:
        return 1
    return ceil((sizes["workgroup"][index] or loop.size) / max(1, sizes["thread"][index]))


def _distributed(
    op: ComputeOp,
    sizes: Mapping[str, tuple[int, ...]],
    loops: Sequence[Loop],
    extras: Mapping[str, str],
    *,
    is_root: bool,
) -> str:
    """The config of one op, in terms of its own loops; empty for one without any of the distributed loops."""

    def own(level: str, absent: int) -> list[int]:
        return [absent if loop is None else sizes.get(level, ())[loop] for loop in op.root_loops]

    if op.is_fill or not any(own("thread", 0)):
        return ""
    reduces = any(
        kind == "reduction" and root is not None and loops[root].kind == "reduction"
        for kind, root in zip(op.kinds, op.root_loops, strict=True)
    )
    places = _list(range(len(op.kinds)))
    entries = {
        "lane_basis": f"[{_list(own('lane', 1))}, {places}]",
        "subgroup_basis": f"[{_list(own('subgroup', 1))}, {places}]",
        "partial_reduction" if reduces else "serial": _list(own("partial_reduction", 0)),
        "thread": _list(own("thread", 0)),
    }
    if is_root:
        entries["workgroup"] = _list(own("workgroup", 0))
    return f"#iree_gpu.lowering_config<{dictionary(entries | dict(extras))}>"


def _text(leaf: object) -> str:
    return "true" if leaf is True else str(leaf).replace("'", '"')


def config_entries(declarations: Declarations, knobs: Mapping[str, KnobValue]) -> dict[str, str]:
    """Entries of the lowering config that are no tile sizes."""
    tree = declarations.knob_tree.get(EXTRAS, {})
    assert isinstance(tree, dict)
    found = {name: str(knobs[leaf.name]) if isinstance(leaf, KnobLeaf) else _text(leaf) for name, leaf in tree.items()}
    return {name: text for name, text in found.items() if text != "[]"}


def _list(sizes: Sequence[int]) -> str:
    return f"[{', '.join(map(str, sizes))}]"

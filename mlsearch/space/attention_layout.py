"""Lay an assignment out on an attention op: the tiles of the whole op, and those of the two matmuls inside of it.

IREE takes the op apart after tiling it, and gives what is under `qk_attrs` and `pv_attrs` in its
`decomposition_config` to the matmul of queries with keys and to that of weights with values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil, prod

from mlsearch.candidate import KnobValue
from mlsearch.cuda.chips import WARP
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.template import Declarations
from mlsearch.space.gpu_layout import GPU_PIPELINE, config_entries, level_size
from mlsearch.space.layout import MATMULS, Layout, dictionary, lay_out, options_of, tile_size
from mlsearch.workload import Loop, Tiling

SCORES, VALUES = MATMULS
_ABSENT = {SCORES: "n", VALUES: "k"}
"""The role that a matmul does not have."""
_ATTRIBUTES = {SCORES: "qk_attrs", VALUES: "pv_attrs"}
_THREADS = "#iree_gpu.derived_thread_config"


def lay_out_attention(
    declarations: Declarations, view: DispatchView, knobs: Mapping[str, KnobValue], lanes: int
) -> Layout:
    """`lanes`: as for any other op on a CPU; a GPU does not ask for them."""
    if declarations.pipeline.startswith(GPU_PIPELINE):
        by_lanes = "lane" in declarations.knob_tree
        return _by_lanes(declarations, view, knobs) if by_lanes else _by_matrices(declarations, view, knobs)
    layout = lay_out(declarations, view, knobs, lanes)
    loops = view.workload.loops
    parts, told = {}, []
    for matmul in MATMULS:
        tree = declarations.knob_tree.get(matmul)
        if not isinstance(tree, dict):
            continue
        own = [loops[index] for index in _loops_of(matmul, loops)]
        sizes = [min(tile_size(tree[loop.role], knobs), loop.size) if loop.role in tree else 1 for loop in own]
        # What is reduced in one of the matmuls may be parallel in the other.
        reduced = {SCORES: "k", VALUES: "s"}[matmul]
        levels = {
            "vector_common_parallel": [0 if loop.role[0] == reduced else n for loop, n in zip(own, sizes, strict=True)],
            "vector_reduction": [n if loop.role[0] == reduced else 0 for loop, n in zip(own, sizes, strict=True)],
        }
        config = ", ".join(f"{level} = {each}" for level, each in levels.items() if any(each))
        parts[matmul] = f"#iree_cpu.lowering_config<{config}>"
        told += [(f"{matmul}.{loop.role}", n) for loop, n in zip(own, sizes, strict=True) if loop.role in tree]
    tiling = Tiling(layout.tiling.levels, tuple(sorted([*layout.tiling.options, *told])))
    return replace(layout, tiling=tiling, decomposition=_decomposition(parts))


def _by_matrices(declarations: Declarations, view: DispatchView, knobs: Mapping[str, KnobValue]) -> Layout:
    """VectorDistribute with matrix instructions: all operands go through shared memory, and warps share a tile."""
    loops = view.workload.loops
    tree = declarations.knob_tree
    sizes = {
        level: tuple(level_size(level, loop, tree[level], knobs, distributes=True) for loop in loops)
        for level in ("workgroup", "reduction", "subgroup")
    }
    threads = WARP * prod(sizes["subgroup"])
    extras = config_entries(declarations, knobs)
    parts = {}
    for matmul, promoted in ((SCORES, (0, 1)), (VALUES, (1,))):
        basis = f"[{list(sizes['subgroup'])}, {_loops_of(matmul, loops)}]"
        entries = {**extras, **_promotion(promoted), "subgroup_basis": basis}
        parts[matmul] = f"#iree_gpu.lowering_config<{dictionary(entries)}>"
    root = {**_promotion((0, 1, 2)), **{level: str(list(sizes[level])) for level in ("reduction", "workgroup")}}
    tiles = _tiles(loops, sizes["workgroup"], sizes["reduction"], sizes["subgroup"])
    return _launched(declarations, knobs, tiles, extras, root, parts, threads)


def _by_lanes(declarations: Declarations, view: DispatchView, knobs: Mapping[str, KnobValue]) -> Layout:
    """VectorDistribute without matrix instructions: warps and their lanes share the keys, lanes also what a query and a
    key have in common, and the columns of the output."""
    loops = view.workload.loops
    tree = declarations.knob_tree
    sizes = {
        level: tuple(level_size(level, loop, tree[level], knobs, distributes=True) for loop in loops)
        for level in ("workgroup", "partial_reduction", "subgroup", "lane")
    }
    vectors = tree["thread"]
    assert isinstance(vectors, dict)
    sizes["thread"] = tuple(tile_size(vectors[loop.role], knobs) if loop.role in vectors else 0 for loop in loops)
    parts = {}
    for matmul in MATMULS:
        own = _loops_of(matmul, loops)
        # Neighbouring lanes have neighbouring keys, whatever the order of the loops, as IREE's own choice has it.
        places = sorted(own, key=lambda index: (loops[index].role[0] == "s", index))
        entries = {"thread": str([sizes["thread"][index] for index in own])}
        for basis in ("lane", "subgroup"):
            counts = [sizes[basis][index] for index in places]
            entries[f"{basis}_basis"] = f"[{counts}, {[places.index(index) for index in own]}]"
        parts[matmul] = f"#iree_gpu.lowering_config<{dictionary(entries)}>"
    root = {level: str(list(sizes[level])) for level in ("partial_reduction", "workgroup")}
    tiles = _tiles(loops, sizes["workgroup"], sizes["partial_reduction"], sizes["subgroup"])
    # What a warp has, its lanes share, whole loops included.
    warp = (size or loop.size for size, loop in zip(tiles[-1][1], loops, strict=True))
    tiles.append(("thread", tuple(ceil(size / lanes) for size, lanes in zip(warp, sizes["lane"], strict=True))))
    return _launched(declarations, knobs, tiles, {}, root, parts, WARP * prod(sizes["subgroup"]))


def _tiles(
    loops: Sequence[Loop], workgroup: Sequence[int], step: Sequence[int], warps: Sequence[int]
) -> list[tuple[str, tuple[int, ...]]]:
    """In the terms of `workload.GPU_TILES`. `warps`: how many share each loop."""
    around = (
        tile if loop.kind == "parallel" else each for tile, each, loop in zip(workgroup, step, loops, strict=True)
    )
    return [
        ("workgroup", tuple(workgroup)),
        ("step", tuple(step)),
        ("warp", tuple(ceil(size / count) for size, count in zip(around, warps, strict=True))),
    ]


def _launched(
    declarations: Declarations,
    knobs: Mapping[str, KnobValue],
    levels: Sequence[tuple[str, tuple[int, ...]]],
    extras: Mapping[str, str],
    root: Mapping[str, str],
    parts: Mapping[str, str],
    threads: int,
) -> Layout:
    options = options_of(declarations, knobs)
    chosen = sorted([(name, str(value)) for name, value in (options | dict(extras)).items()])
    return Layout(
        tiling=Tiling(tuple(levels), tuple([*chosen, ("threads", threads)])),
        root_config=f"#iree_gpu.lowering_config<{dictionary(dict(root))}>",
        companion_configs={},
        options=dictionary(options),
        launch=f" workgroup_size = [{threads}, 1, 1] subgroup_size = {WARP}",
        decomposition=_decomposition(parts),
    )


def _loops_of(matmul: str, loops: Sequence[Loop]) -> list[int]:
    return [index for index, loop in enumerate(loops) if loop.role[0] != _ABSENT[matmul]]


def _decomposition(configs: Mapping[str, str]) -> str:
    parts = [f"{_ATTRIBUTES[matmul]} = {{lowering_config = {config}}}" for matmul, config in configs.items()]
    return f"{{{', '.join(parts)}}}"


def _promotion(operands: Sequence[int]) -> dict[str, str]:
    return {
        "promote_operands": str(list(operands)),
        "promotion_types": f"[{', '.join([_THREADS] * len(operands))}]",
    }

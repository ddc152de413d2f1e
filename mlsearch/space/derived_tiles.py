"""A derived space for any op without a window: IREE's `DoubleTilingExpert` with a knob for each loop that matters.

What matters is read from strides. The output's innermost loop is cut into vectors; loops that walk along an input one
element at a time are the other side of a transpose, or a row that is reduced; what is around them is unrolled.

    tile_ROLE   elements or iterations of a parallel loop in the innermost tile
    step_ROLE   iterations of a reduction in one step
    inner_ROLE  the same for ops that run in parallel along a loop that the root op reduces
    dist_ROLE   tiles in a workgroup, 0 for all
    peel        split off remainders, instead of masking the last tile
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mlsearch.ir.access import Access, accesses, contiguous_loop
from mlsearch.ir.dispatch import DispatchView, configured_levels
from mlsearch.ir.template import Declarations, read_declarations
from mlsearch.ir.workload import CONTRACTIONS
from mlsearch.ir.writing import annotating_text
from mlsearch.space.layout import lay_out
from mlsearch.space.sketch import (
    DISTRIBUTION,
    INNER,
    Draft,
    at_most,
    constant,
    knob,
    parallel_loops,
    powers,
    product,
    reduction_loops,
    shown,
    unroll_domain,
    vector_domain,
    whole_vectors,
)
from mlsearch.space.template import Template
from mlsearch.workload import Loop

_PIPELINE = "#iree_cpu.pipeline<DoubleTilingExpert>"
_PARALLEL_KNOBS = 3
_UNROLLED = 4
"""Vectors in a tile, over the registers: more compile for minutes."""


def loop_tiles(
    view: DispatchView, late_view: DispatchView | None, facts: Mapping[str, int], identifier: str
) -> Template | None:
    """The space of a dispatch; None if its root op's indexing maps can't be read."""
    found = accesses(view)
    if not found:
        return None
    configured = configured_levels(late_view) if late_view is not None else {}
    declarations = _declarations(view, found, facts, configured)
    layout = lay_out(declarations, view, shown(declarations), facts["lanes"])
    translation = f"#iree_codegen.translation_info<pipeline = {_PIPELINE}>"
    text = annotating_text(declarations, view.workload.loops, layout.root_config, translation)
    return Template(identifier, Path("derived"), text, read_declarations(text, identifier))


def _declarations(
    view: DispatchView,
    found: Sequence[Access],
    facts: Mapping[str, int],
    configured: Mapping[str, Sequence[int]],
) -> Declarations:
    """`configured`: tile sizes by level that IREE itself would choose."""
    loops = view.workload.loops
    lanes, registers = facts["lanes"], facts["registers"]
    draft = Draft(_PIPELINE, loops, facts)
    vector = contiguous_loop(loops, tuple(found))
    rows = {loop for access in found if not access.is_output for loop in access.contiguous}
    for loop in _tiled(loops, vector, rows):
        size = loops[loop].size
        if loop == vector:
            draft.tile(loop, vector_domain(size, lanes, 16), 2 * lanes)
        elif loop in rows:
            draft.tile(loop, sorted({*powers(min(size, 4 * lanes)), *vector_domain(size, lanes, 4)}), 1)
        else:
            draft.tile(loop, unroll_domain(size, 16), 1)
    outputs = [draft.tiles[loop] for loop in draft.tiles if loop != vector]
    vectors = [whole_vectors(draft.tiles[vector], lanes)] if vector in draft.tiles else []
    accumulators = product([*vectors, *outputs])
    steps = reduction_loops(loops)
    multiplies = view.workload.op_kind in CONTRACTIONS
    if multiplies:
        # Products that are summed over two loops at a time are taken apart into scalars: half a minute to compile.
        steps = sorted(steps, key=lambda loop: (loop in rows, loop))[-1:]
    for loop in steps:
        size = loops[loop].size
        if multiplies:
            draft.tile(loop, powers(min(size, 16)), 1)
        elif loop in rows:
            draft.tile(loop, powers(min(size, 32 * lanes)), 2 * lanes if vector not in rows else 1)
        else:
            draft.tile(loop, powers(min(size, 8)), 1)
    for loop in _run_along(view):
        name = f"inner_{loops[loop].role}"
        draft.place(INNER, loop, draft.integer(name, powers(min(loops[loop].size, 32 * lanes)), 2 * lanes))
        across = product([*(draft.tiles[each] for each in draft.tiles if loops[each].kind == "parallel"), knob(name)])
        bytes_across = product([across, constant(max(facts["element_bytes"], facts["input_bytes"]))])
        draft.keep_small(bytes_across, f" along {loops[loop].role}")
    outer = [loop for loop in parallel_loops(loops) if loop != vector]
    facing = [loop for loop in outer if loop in rows]
    # The two sides of a transpose, in blocks that stay in the cache; else what lies farthest apart.
    sides = facing if facing and not reduction_loops(loops) else outer[:1]
    draft.distribute([loop for loop in dict.fromkeys([*sides, vector]) if loop is not None])
    draft.peel()
    most = registers - 2 if multiplies or (steps and vector in rows) else _UNROLLED * registers
    if draft.tiles:
        draft.state(
            at_most(accumulators, constant(most)),
            f"{{}} vectors of the output in a tile <= {most}",
            accumulators,
        )
        volume = product([*(draft.tiles.values())])
        draft.state(
            at_most(volume, constant(_UNROLLED * registers * lanes)),
            f"{{}} elements in a tile <= {_UNROLLED * registers * lanes}",
            volume,
        )
    bytes_each = max(8 if "linalg.index" in view.function else 0, facts["element_bytes"], facts["input_bytes"])
    draft.makes_small_vectors(bytes_each)
    own = [_with_workgroups(draft, prior, configured) for prior in draft.as_configured(configured)]
    return draft.declarations([*own, *_priors(draft, vector, rows, facts)])


def _with_workgroups(
    draft: Draft, prior: Mapping[str, object], configured: Mapping[str, Sequence[int]]
) -> dict[str, object]:
    """IREE's own tiles with its own workgroups, as far as these are less than the loop."""
    found = dict(prior)
    for loop, size in enumerate(configured.get(DISTRIBUTION) or ()):
        role, tile = draft.loops[loop].role, draft.tiles.get(loop)
        if tile is not None and f"dist_{role}" in draft.domains and 0 < size < draft.loops[loop].size:
            found[f"dist_{role}"] = size // int(str(prior.get(str(tile.value), size)))
    return found


def _tiled(loops: Sequence[Loop], vector: int | None, rows: set[int]) -> list[int]:
    """The parallel loops that get a knob: the output's innermost one, those along inputs, then inner ones."""
    others = [loop for loop in reversed(parallel_loops(loops)) if loop != vector]
    others.sort(key=lambda loop: loop not in rows)
    first = [vector] if vector is not None else []
    return [*first, *others][:_PARALLEL_KNOBS]


def _run_along(view: DispatchView) -> list[int]:
    """The loops that the root op reduces and another op runs along in parallel."""
    loops = view.workload.loops
    found = {
        loop
        for op in view.compute_ops
        for kind, loop in zip(op.kinds, op.root_loops, strict=True)
        if kind == "parallel" and loop is not None and loops[loop].kind == "reduction" and loops[loop].size > 1
    }
    return sorted(found)


def _priors(draft: Draft, vector: int | None, rows: set[int], facts: Mapping[str, int]) -> list[dict[str, object]]:
    """Long vectors, squares for transposes, register tiles, and rows of a reduction."""
    lanes, half = facts["lanes"], facts["registers"] // 2
    shapes = ((4, 1, 1), (2, 4, 1), (1, half, 1), (2, half // 2, 4), (1, half // 4, 16), (8, 1, 8), (1, 1, 16))
    priors: list[dict[str, object]] = []
    for wide, tall, deep in shapes:
        prior: dict[str, object] = {}
        for loop, tile in draft.tiles.items():
            if loop == vector:
                prior[str(tile.value)] = wide * lanes
            elif draft.loops[loop].kind == "parallel":
                # Only one loop is unrolled, the first one that got a knob.
                prior[str(tile.value)] = tall if loop == _second(draft, vector) else 1
            else:
                prior[str(tile.value)] = deep * lanes if loop in rows and vector not in rows else deep
        priors.append(prior)
    return priors


def _second(draft: Draft, vector: int | None) -> int | None:
    return next((loop for loop in draft.tiles if loop != vector and draft.loops[loop].kind == "parallel"), None)

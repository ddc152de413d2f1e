"""A derived space for what packs a tensor into tiles, or unpacks it: how many packed tiles are moved at a time.

IREE moves one packed tile at a time. Where a tile is narrow along the rows of the unpacked tensor, e.g. the four bytes
that a dot product of bytes takes, each step then reads a few bytes from each of many rows; several tiles side by side
are whole vectors of them. All sizes are multiples of a packed tile, because IREE takes apart what is cut across one.

    tile_ROLE   packed tiles along a loop that are moved together
    dist_ROLE   so many of these in a workgroup, 0 for all
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path

from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.template import Expression, read_declarations
from mlsearch.ir.writing import annotating_text
from mlsearch.space.layout import lay_out
from mlsearch.space.sketch import (
    DISTRIBUTION,
    STACK_BYTES,
    TILE,
    Draft,
    at_most,
    constant,
    equal,
    implies,
    knob,
    parallel_loops,
    powers,
    product,
    shown,
)
from mlsearch.space.template import Template

_UNPACK = "linalg.unpack"
_MOST_TILES = 32
"""Packed tiles side by side: 32 of 4 bytes are two vectors of a row."""
_MOST_ROWS = 4
_PRIORS = ((1, 16, 1, 1), (1, 8, 1, 0), (1, 1, 1, 1), (1, 4, 4, 4), (1, 2, 1, 64), (1, 16, 1, 0))
"""(tile, tile, dist, dist) of the outer and the inner loop."""


def packed_tiles(view: DispatchView, facts: Mapping[str, int], identifier: str) -> Template | None:
    """The space of a dispatch with a `packed_tile`; None if it has one packed tile only."""
    loops, root = view.workload.loops, view.compute_ops[view.root]
    cut = parallel_loops(loops)
    if not cut:
        return None
    name = "DataTiling" if root.repacks else "DoubleTilingExpert"
    draft = Draft(f"#iree_cpu.pipeline<{name}>", loops, facts)
    # An iteration of a pack is a packed tile, one of any other op is an element.
    volume = [constant(max(facts["element_bytes"], facts["input_bytes"]) * prod(root.strides))]
    groups: list[Expression] = []
    for loop in cut:
        role, unit = loops[loop].role, view.packed_tile[loop]
        count = -(-loops[loop].size // unit)
        most = _MOST_TILES if loop == cut[-1] else _MOST_ROWS
        tile = draft.integer(f"tile_{role}", powers(min(count, most)), 1)
        # IREE refuses to move tiles that no workgroups share out.
        dist = draft.integer(f"dist_{role}", [*([0] if loop != cut[0] else []), *powers(count)], 1)
        draft.place(TILE, loop, [unit, tile])
        draft.place(DISTRIBUTION, loop, [unit, tile, dist])
        draft.tiles[loop] = product([constant(unit), knob(tile.name)])
        volume.append(draft.tiles[loop])
        covered = product([knob(tile.name), knob(dist.name)])
        tiles = Expression("ite", (equal(knob(dist.name), constant(0)), constant(count), covered))
        groups.append(product([constant(unit), tiles]))
        draft.state(
            at_most(covered, constant(count)), f"{{}} packed tiles in a workgroup <= {count} along {role}", covered
        )
    for loop in cut[1:] if root.name == _UNPACK else ():
        if loops[loop].size % view.packed_tile[loop]:
            # A workgroup that takes all of a loop whose last packed tile is not full unpacks onto the stack first.
            unpacked = product([constant(facts["element_bytes"]), *groups])
            draft.state(
                implies(equal(knob(f"dist_{loops[loop].role}"), constant(0)), at_most(unpacked, constant(STACK_BYTES))),
                f"{{}} bytes of a workgroup across all of {loops[loop].role} <= {STACK_BYTES} of stack",
                unpacked,
            )
    vectors = product(volume)
    draft.keep_small(vectors)
    outer, inner = loops[cut[0]].role, loops[cut[-1]].role
    names = (f"tile_{outer}", f"tile_{inner}", f"dist_{outer}", f"dist_{inner}")
    declarations = draft.declarations([dict(zip(names, prior, strict=True)) for prior in _PRIORS])
    layout = lay_out(declarations, view, shown(declarations), facts["lanes"])
    translation = f"#iree_codegen.translation_info<pipeline = {draft.pipeline}>"
    named = root.name if root.repacks else None
    text = annotating_text(declarations, loops, layout.root_config, translation, named=named)
    return Template(identifier, Path("derived"), text, read_declarations(text, identifier))

"""A derived space for copies of slices from buffer to buffer, as concatenations, pads and slices become.

IREE moves one vector at a time, in the only pipeline that takes buffers. It splits remainders off by itself.

    tile_ROLE   elements moved at a time along the innermost loop, rows along the others
    dist_ROLE   tiles in a workgroup, 0 for all
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlsearch.ir.access import accesses, contiguous_loop
from mlsearch.ir.dispatch import DispatchView, configured_levels
from mlsearch.ir.template import read_declarations
from mlsearch.ir.writing import annotating_text
from mlsearch.space.layout import lay_out
from mlsearch.space.sketch import Draft, parallel_loops, shown, unroll_domain, vector_domain
from mlsearch.space.template import Template

_PIPELINE = "#iree_cpu.pipeline<BufferOpsTileAndVectorize>"
_MOST_VECTORS, _MOST_ROWS = 32, 8
_PRIORS = ((1, 1), (4, 1), (8, 1), (32, 1), (4, 4), (1, 8))
"""(vectors, rows) at a time."""


def copy_tiles(
    view: DispatchView, late_view: DispatchView | None, facts: Mapping[str, int], identifier: str
) -> Template | None:
    """The space of a dispatch whose root op writes into a buffer; None if it has no loop to cut."""
    loops = view.workload.loops
    draft = Draft(_PIPELINE, loops, facts)
    vector = contiguous_loop(loops, accesses(view))
    cut = parallel_loops(loops)[-3:]
    if not cut:
        return None
    for loop in reversed(cut):
        if loop == vector:
            draft.tile(loop, vector_domain(loops[loop].size, facts["lanes"], _MOST_VECTORS), facts["lanes"])
        else:
            draft.tile(loop, unroll_domain(loops[loop].size, _MOST_ROWS), 1)
    draft.distribute(cut)
    draft.makes_small_vectors(facts["element_bytes"])
    configured = configured_levels(late_view) if late_view is not None else {}
    priors = [
        {str(tile.value): vectors * facts["lanes"] if loop == vector else rows for loop, tile in draft.tiles.items()}
        for vectors, rows in _PRIORS
    ]
    declarations = draft.declarations([*draft.as_configured(configured), *priors])
    layout = lay_out(declarations, view, shown(declarations), facts["lanes"])
    translation = f"#iree_codegen.translation_info<pipeline = {_PIPELINE}>"
    text = annotating_text(declarations, loops, layout.root_config, translation)
    return Template(identifier, Path("derived"), text, read_declarations(text, identifier))

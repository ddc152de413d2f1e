"""A derived space for IREE's own ops that have no indexing maps: scans, scatters, gathers, sorts, transforms.

Their loops are those of `mlsearch.ir.extension`. The pipeline is the one that IREE takes for the op, which cuts it into
tiles and then writes scalar loops, or vectors for the few that have any (gathers, transforms). A reduction stays whole:
IREE goes along a sorted or summed row in one piece.

Other pipelines than IREE's own were tried with scans, scatters, sorts and argument comparisons: `vector.scan` and its
like are not lowered for CPUs (builds fail), and the others come out as the same scalar loops.

    tile_ROLE   iterations of a parallel loop in the innermost tile; of a transform that works on groups, groups
    dist_ROLE   tiles in a workgroup, 0 for all
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from mlsearch.ir.access import extension_of
from mlsearch.ir.dispatch import DispatchView, configured_levels
from mlsearch.ir.template import Expression, KnobLeaf, read_declarations
from mlsearch.ir.writing import annotating_text
from mlsearch.space.layout import lay_out
from mlsearch.space.sketch import (
    DISTRIBUTION,
    STEP,
    TILE,
    Draft,
    constant,
    knob,
    less,
    parallel_loops,
    powers,
    product,
    shown,
)
from mlsearch.space.template import Template

_SCALAR = "#iree_cpu.pipeline<Default>"
_CHOSEN = re.compile(r"pipeline = (#iree_cpu\.pipeline<\w+>)")
_PARALLEL_KNOBS = 3
_MOST_INNERMOST = 1024
_MOST = 64


def extension_tiles(
    view: DispatchView, late_view: DispatchView | None, facts: Mapping[str, int], identifier: str
) -> Template | None:
    """The space of a dispatch whose root op is one of these; None if it has no loop to cut."""
    draft = _draft(view, late_view, facts)
    if not draft.domains:
        return None
    configured = configured_levels(late_view) if late_view is not None else {}
    declarations = draft.declarations([*draft.as_configured(configured), *_priors(draft, facts)])
    layout = lay_out(declarations, view, shown(declarations), facts["lanes"])
    translation = f"#iree_codegen.translation_info<pipeline = {draft.pipeline}>"
    named = view.compute_ops[view.root].name
    text = annotating_text(declarations, view.workload.loops, layout.root_config, translation, named=named)
    return Template(identifier, Path("derived"), text, read_declarations(text, identifier))


def _draft(view: DispatchView, late_view: DispatchView | None, facts: Mapping[str, int]) -> Draft:
    loops, extension = view.workload.loops, extension_of(view)
    assert extension is not None, "only an op without indexing maps gets here"
    chosen = _CHOSEN.search(late_view.function) if late_view is not None else None
    draft = Draft(chosen[1] if chosen else _SCALAR, loops, facts)
    for loop, each in enumerate(loops):
        if each.kind == "reduction":
            draft.place(STEP, loop, 0)
    cut = parallel_loops(loops)[::-1][:_PARALLEL_KNOBS]
    innermost = len(loops) - 1
    for loop in cut:
        if loop in extension.single:
            continue
        unit = extension.unit[loop]
        most = (_MOST_INNERMOST if loop == innermost else _MOST) // unit
        name = f"tile_{loops[loop].role}"
        counts = powers(min(loops[loop].size // unit, max(1, most)))
        leaf = draft.integer(name, counts, facts["lanes"] if loop == innermost else 1)
        draft.place(TILE, loop, [unit, leaf] if unit > 1 else leaf)
        draft.tiles[loop] = knob(name)
    _distribute(draft, cut, extension.unit)
    if draft.pipeline != _SCALAR:
        draft.makes_small_vectors(max(facts["element_bytes"], facts["input_bytes"]))
    return draft


def _distribute(draft: Draft, cut: list[int], unit: tuple[int, ...]) -> None:
    """Knobs for the tiles in a workgroup along the loops of `cut`; the other parallel loops stay whole."""
    for loop, each in enumerate(draft.loops):
        if each.kind != "parallel":
            continue
        if loop not in cut:
            draft.place(DISTRIBUTION, loop, 0)
            continue
        name = f"dist_{each.role}"
        count = draft.integer(name, [0, *powers((each.size - 1) // unit[loop])], 0)
        factors: list[Expression] = [constant(unit[loop]), knob(name)]
        leaves: list[object] = [unit[loop], count]
        if loop in draft.tiles:
            factors.append(draft.tiles[loop])
            leaves.append(KnobLeaf(str(draft.tiles[loop].value), ()))
        draft.place(DISTRIBUTION, loop, leaves)
        covered = product(factors)
        draft.state(
            less(covered, draft.size(loop)),
            f"a workgroup of {{}} is less than {each.role} ({{}}); 0 stands for all",
            covered,
            draft.size(loop),
        )


def _priors(draft: Draft, facts: Mapping[str, int]) -> list[dict[str, object]]:
    """Long rows, blocks, and single iterations."""
    if not draft.tiles:
        return [dict.fromkeys(draft.domains, count) for count in (0, 1, 4, 16)]
    lanes, innermost = facts["lanes"], len(draft.loops) - 1
    shapes = ((_MOST_INNERMOST, 1), (lanes, 1), (2 * lanes, 8), (lanes, lanes), (8 * lanes, 1), (1, 1))
    return [
        {str(tile.value): wide if loop == innermost else tall for loop, tile in draft.tiles.items()}
        for wide, tall in shapes
    ]

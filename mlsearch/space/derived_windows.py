"""A derived space for windows that stay whole: IREE's own pipeline for them, on all loops of the op.

It serves windows that can't be unrolled into taps, such as those that move by more than one element.

    tile_ROLE   output's innermost loop: elements side by side; the image's innermost loop and the output channels:
                iterations around it. IREE takes a window apart row by row, so other image loops are cut to one.
    step_ROLE   iterations of a reduction in one step: input channels, or the window's innermost loop
    dist_ROLE   tiles in a workgroup, 0 for all
    peel        split off remainders, instead of masking the last tile
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlsearch.ir.access import accesses, contiguous_loop, strides, window_loops
from mlsearch.ir.dispatch import DispatchView, configured_levels
from mlsearch.ir.template import Declarations, read_declarations
from mlsearch.ir.writing import strategy_text
from mlsearch.space.knobs import nearest
from mlsearch.space.layout import lay_out
from mlsearch.space.sketch import (
    Draft,
    at_most,
    constant,
    divisors,
    parallel_loops,
    product,
    reduction_loops,
    shown,
    vector_domain,
    whole_vectors,
)
from mlsearch.space.template import Template

PIPELINES = ("#iree_cpu.pipeline<ConvTileAndDecomposeExpert>", "#iree_cpu.pipeline<DoubleTilingExpert>")
"""Of those that IREE takes for windows. The second one vectorizes none, and serves those that the first one can't take
apart, e.g. depthwise ones with a stride whose channels are not the innermost."""


def window_tiles(
    view: DispatchView, late_view: DispatchView, facts: Mapping[str, int], identifier: str
) -> Template | None:
    """The space of a dispatch whose root op has a window, in the pipeline that IREE has chosen; else None."""
    pipeline = next((each for each in PIPELINES if f"pipeline = {each}" in late_view.function), None)
    if pipeline is None or not window_loops(late_view.workload.loops, accesses(late_view)):
        return None
    declarations = _declarations(late_view, {**facts, **late_view.workload.dims}, pipeline)
    layout = lay_out(declarations, late_view, shown(declarations), facts["lanes"])
    configs = {late_view.root: layout.root_config, **layout.companion_configs}
    text = strategy_text(
        declarations,
        view.workload.loops,
        [configs.get(index, "") for index in range(len(late_view.compute_ops))],
        f"#iree_codegen.translation_info<pipeline = {pipeline}>",
    )
    return Template(identifier, Path("derived"), text, read_declarations(text, identifier))


def _declarations(view: DispatchView, facts: Mapping[str, int], pipeline: str) -> Declarations:
    loops, found = view.workload.loops, accesses(view)
    lanes, registers = facts["lanes"], facts["registers"]
    draft = Draft(pipeline, loops, facts, is_strategy=True)
    vector = contiguous_loop(loops, found)
    image = sorted(strides(loops, found))
    tiled = [loop for loop in parallel_loops(loops) if loop not in image[:-1]]
    if vector in image[:-1]:
        tiled.append(vector)
    for loop in tiled:
        even = divisors(loops[loop].size, 2 * lanes if loop == vector else registers // 2)
        if loop != vector:
            draft.tile(loop, even, 4)
        elif loop in image:
            draft.tile(loop, sorted({*even, *vector_domain(loops[loop].size, lanes, 2)}), lanes)
        else:
            draft.tile(loop, vector_domain(loops[loop].size, lanes, 4), 2 * lanes)
    accumulators = product(
        [whole_vectors(tile, lanes) if loop == vector else tile for loop, tile in draft.tiles.items()]
    )
    windows = window_loops(loops, found)
    for loop in reduction_loops(loops):
        if loop not in windows:
            draft.tile(loop, divisors(loops[loop].size, 8), 1)
    if windows and loops[windows[-1]].size > 1:
        draft.tile(windows[-1], [1, loops[windows[-1]].size], loops[windows[-1]].size)
    outermost = min(parallel_loops(loops), default=None)
    draft.distribute([loop for loop in dict.fromkeys([outermost, vector]) if loop is not None], evenly=True)
    if draft.peel() and vector in image:
        # A row of the image under a mask is taken apart into scalars: 30 times slower where it was tried.
        draft.never_masked(vector)
    draft.state(
        at_most(accumulators, constant(registers - 2)),
        f"{{}} accumulators leave two of {registers} vector registers free",
        accumulators,
    )
    draft.makes_small_vectors(max(facts["element_bytes"], facts["input_bytes"]))
    return draft.declarations([*draft.as_configured(configured_levels(view)), *_priors(draft, vector, facts)])


def _priors(draft: Draft, vector: int | None, facts: Mapping[str, int]) -> list[dict[str, object]]:
    """Register tiles from wide to tall, the first ones of half of the registers."""
    lanes, half = facts["lanes"], facts["registers"] // 2
    priors: list[dict[str, object]] = []
    for wide, rows in ((2, half // 2), (4, half // 4), (1, half), (2, 1), (1, half // 4)):
        prior: dict[str, object] = {
            str(tile.value): rows
            for loop, tile in draft.tiles.items()
            if loop != vector and draft.loops[loop].kind == "parallel"
        }
        if vector is not None and vector in draft.tiles:
            name, size = str(draft.tiles[vector].value), draft.loops[vector].size
            even = [value for value in draft.domains[name] if size % value == 0]
            prior[name] = nearest(even or draft.domains[name], wide * lanes)
        priors.append(prior)
    return priors

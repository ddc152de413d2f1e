"""A derived space for windows: convolutions and poolings as a chain of taps (`mlsearch.ir.taps`).

tile_ROLE   output's innermost loop: elements side by side; other loops: iterations unrolled around it
step_ROLE   iterations in one step of a reduction that is no part of the window
dist_ROLE   tiles in a workgroup, 0 for all
peel        split off remainders, instead of masking the last tile
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch.candidate import KnobValue
from mlsearch.ir.access import accesses, contiguous_loop
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.library import EntryText
from mlsearch.ir.taps import Tapped, tapped
from mlsearch.ir.template import Declarations, read_declarations
from mlsearch.ir.writing import strategy_text
from mlsearch.space.knobs import nearest
from mlsearch.space.layout import Layout, config_text, lay_out
from mlsearch.space.sketch import (
    STEP,
    TILE,
    Draft,
    at_most,
    constant,
    divisors,
    parallel_loops,
    product,
    reduction_loops,
    shown,
    unroll_domain,
    vector_domain,
    whole_vectors,
)
from mlsearch.space.template import Template

_PIPELINE = "#iree_cpu.pipeline<DoubleTilingExpert>"
_UNROLLED_LOOPS = 2
_MOST_UNROLLED = 1024
"""Vector operations in a register tile, over all taps: they are unrolled, and compile time follows."""


@dataclass(frozen=True)
class WindowTaps(Template):
    """A template whose strategy unrolls the window, and lays its tiles out on what comes of it."""

    tapped: Tapped

    def entry(
        self,
        name: str,
        view: DispatchView,
        late_view: DispatchView | None,
        knobs: dict[str, KnobValue],
        lanes: int,
    ) -> EntryText:
        return super().entry(name, view, self.tapped.view, knobs, lanes)

    def layout(self, view: DispatchView, knobs: Mapping[str, KnobValue], lanes: int) -> Layout:
        return _layout(self.declarations, self.tapped, view, knobs, lanes)


def window_taps(
    view: DispatchView, late_view: DispatchView, facts: Mapping[str, int], identifier: str
) -> WindowTaps | None:
    """The space of a dispatch whose root op has a window that can be unrolled; else None."""
    found = tapped(view, late_view)
    if found is None:
        return None
    declarations = _declarations(found, facts)
    layout = _layout(declarations, found, found.view, shown(declarations), facts["lanes"])
    configs = {found.view.root: layout.root_config, **layout.companion_configs}
    text = strategy_text(
        declarations,
        view.workload.loops,
        [configs.get(index, "") for index in range(len(found.view.compute_ops))],
        f"#iree_codegen.translation_info<pipeline = {_PIPELINE}>",
        found.unrolling.rewrite,
    )
    return WindowTaps(identifier, Path("derived"), text, read_declarations(text, identifier), found)


def _layout(
    declarations: Declarations, found: Tapped, view: DispatchView, knobs: Mapping[str, KnobValue], lanes: int
) -> Layout:
    """All taps are cut alike; only the last one, which is the root op, is distributed."""
    whole = lay_out(declarations, view, knobs, lanes)
    if len(view.compute_ops) < len(found.view.compute_ops):  # the dispatch as it is, before its window is unrolled
        return whole
    sizes = whole.tiling.by_level
    tap = config_text([(level, sizes[level]) for level in (TILE, STEP) if any(sizes.get(level, ()))], {})
    others = {index: tap for index in found.chain if index != view.root}
    return replace(whole, companion_configs=dict(sorted({**whole.companion_configs, **others}.items())))


def _declarations(found: Tapped, facts: Mapping[str, int]) -> Declarations:
    loops = found.view.workload.loops
    lanes, registers = facts["lanes"], facts["registers"]
    draft = Draft(_PIPELINE, loops, facts, is_strategy=True)
    operands = accesses(found.view)
    vector = contiguous_loop(loops, operands)
    if vector is not None:
        draft.tile(vector, vector_domain(loops[vector].size, lanes, 4), 2 * lanes)
    # What one operand does not move along is loaded once for all iterations that are unrolled.
    others = [loop for loop in parallel_loops(loops) if loop != vector]
    others.sort(key=lambda loop: (-sum(loop not in each.loops for each in operands), -loop))
    unrolled = others[:_UNROLLED_LOOPS]
    steps = reduction_loops(loops)
    # Products of vectors under a mask are taken apart into scalars: 10 to 20 times slower where it was tried. So where
    # there are products, nothing leaves a remainder but the vectors themselves, and that is split off.
    multiplies = bool(steps)
    domain = divisors if multiplies else unroll_domain
    for loop in unrolled:
        draft.tile(loop, domain(loops[loop].size, registers // 2), 4 if loop == unrolled[0] else 1)
    vectors = [] if vector is None else [whole_vectors(draft.tiles[vector], lanes)]
    accumulators = product([*vectors, *(draft.tiles[loop] for loop in unrolled)])
    for loop in steps:
        draft.tile(loop, divisors(loops[loop].size, 8), 1)
    outermost = min(parallel_loops(loops), default=None)
    cut = [loop for loop in dict.fromkeys([outermost, vector]) if loop is not None]
    draft.distribute(cut, evenly=multiplies)
    if draft.peel() and multiplies and vector is not None:
        draft.never_masked(vector)
    draft.state(
        at_most(accumulators, constant(registers - 2)),
        f"{{}} accumulators leave two of {registers} vector registers free",
        accumulators,
    )
    operations = product([accumulators, *(draft.tiles[loop] for loop in steps), constant(found.taps)])
    draft.state(
        at_most(operations, constant(_MOST_UNROLLED)),
        f"{{}} vector operations in a register tile of all taps <= {_MOST_UNROLLED}",
        operations,
    )
    draft.makes_small_vectors(max(facts["element_bytes"], facts["input_bytes"]))
    return draft.declarations(_priors(draft, vector, unrolled, facts))


def _priors(
    draft: Draft, vector: int | None, unrolled: Sequence[int], facts: Mapping[str, int]
) -> list[dict[str, object]]:
    """Register tiles from wide to tall, of half of the registers, then of a quarter. Where only narrow tiles divide the
    loop of vectors, first those that do not: a 1-d convolution over 508 positions took 37 ms with tiles of 16 and a
    remainder, 128 ms with tiles of 4."""
    lanes, half = facts["lanes"], facts["registers"] // 2
    shapes = [(2, half // 2), (4, half // 4), (1, half), (2, half // 4), (1, half // 2)]
    tiles = [(shape, False) for shape in shapes]
    may_peel = "peel" in draft.defaults and vector is not None and draft.loops[vector].size >= lanes
    if may_peel and vector is not None and not _even(draft, vector, lanes):
        tiles = [((1, half), True), ((2, half // 2), True), *tiles]
    priors: list[dict[str, object]] = []
    for (vectors, rows), with_rest in tiles:
        prior: dict[str, object] = {}
        if vector is not None:
            name = str(draft.tiles[vector].value)
            even = [] if with_rest else _even(draft, vector, 1)
            prior[name] = nearest(even or draft.domains[name], vectors * lanes)
            prior["peel"] = not even
        for place, loop in enumerate(unrolled):
            name = str(draft.tiles[loop].value)
            even = _even(draft, loop, 1)
            prior[name] = max(value for value in even if value <= rows) if place == 0 else 1
        priors.append(prior)
    return priors


def _even(draft: Draft, loop: int, least: int) -> list[int]:
    """Tile sizes of `least` or more that divide the loop."""
    values = draft.domains[str(draft.tiles[loop].value)]
    return [value for value in values if value >= least and draft.loops[loop].size % value == 0]

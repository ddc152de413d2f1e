"""IREE's own choice for a dispatch as a template, so that it is a point of every space on a GPU.

The choice is taken over as it stands in the configured dispatch, whatever op and pipeline it is for. Where no other
template has its tiles, it gets knobs around them, so that a search can walk on from there (`own_knobs`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mlsearch.candidate import KnobValue
from mlsearch.ir.choice import Choice, choice_schedule, read_choice
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.library import EntryText, entry_text
from mlsearch.ir.template import KnobLeaf
from mlsearch.ir.writing import annotating_text
from mlsearch.space.constraints import evaluate
from mlsearch.space.emitted import EmittedTemplate
from mlsearch.space.gpu_layout import GPU_LEVELS, tiles
from mlsearch.space.own_knobs import OwnKnobs, own_knobs
from mlsearch.space.sketch import Draft
from mlsearch.space.template import Template
from mlsearch.space.template_space import TemplateSpace
from mlsearch.workload import Loop, Tiling


@dataclass(frozen=True)
class OwnChoice(Template):
    """Its text shows the choice and its knobs; module attributes `mlsearch.op0` and so on have what each op gets."""

    choice: Choice
    opened: OwnKnobs | None
    """None where other templates have the tiles, or nothing can be varied: the choice is the only candidate."""

    def entry(
        self,
        name: str,
        view: DispatchView,
        late_view: DispatchView | None,
        knobs: dict[str, KnobValue],
        lanes: int,
    ) -> EntryText:
        root, translation = self.choice.of_root, self.choice.translation
        if self.opened is not None and not self._is_own(knobs):
            sizes = self.opened.sizes(knobs)
            root = {**root, "lowering_config": self.choice.with_sizes(sizes)}
            translation = self.choice.with_threads(self.opened.threads(sizes))
        return entry_text(name, view, choice_schedule(name, root, translation), dict(self.choice.of_others), False)

    def tiling(self, view: DispatchView, knobs: dict[str, KnobValue], lanes: int) -> Tiling:
        loops, sizes = view.workload.loops, self.choice.sizes
        threads = prod(self.choice.workgroup_size)
        if self.opened is not None and not self._is_own(knobs):
            sizes = self.opened.sizes(knobs)
            threads = self.opened.threads(sizes)
        extras = {name: text for name, text in self.choice.entries.items() if name not in GPU_LEVELS}
        of_loops = {level: own for level, own in sizes.items() if level in GPU_LEVELS and len(own) == len(loops)}
        distributes = "VectorDistribute" in self.choice.pipeline
        levels = tiles(loops, of_loops, extras, distributes) if "workgroup" in of_loops else ()
        return Tiling(levels, (*sorted(extras.items()), ("threads", threads)))

    def _is_own(self, knobs: Mapping[str, KnobValue]) -> bool:
        return all(knobs[each.name] == each.default for each in self.knobs)


def own_choice(
    view: DispatchView,
    late_view: DispatchView | None,
    facts: Mapping[str, int],
    others: Sequence[TemplateSpace],
    identifier: str,
) -> Template | None:
    """None where the configured dispatch can't be read, or has other ops or loops than the one that is tuned."""
    choice = read_choice(late_view) if late_view is not None and _is_alike(view, late_view) else None
    if choice is None:
        return None
    loops = view.workload.loops
    draft = Draft(choice.pipeline, loops, facts)
    is_held = any(has_tiles(part, choice, view) for part in others)
    opened = None if is_held else own_knobs(draft, choice)
    declarations = draft.declarations([])
    text = annotating_text(
        declarations,
        loops,
        choice.of_root.get("lowering_config", "unit"),
        choice.translation,
        also={f"mlsearch.op{index}": config for index, config in choice.of_each(view.root).items()},
    )
    return OwnChoice(identifier, Path("derived"), text, declarations, choice, opened)


def _is_alike(view: DispatchView, late_view: DispatchView) -> bool:
    """Whether configuring has left the dispatch's ops as they were."""
    ops, late_ops = ([(op.kinds, op.root_loops) for op in each.compute_ops] for each in (view, late_view))
    return ops == late_ops and view.root == late_view.root and view.workload.loops == late_view.workload.loops


def has_tiles(part: TemplateSpace, choice: Choice, view: DispatchView) -> bool:
    """Whether an assignment of another template has the choice's tiles on as many threads."""
    template, loops = part.template, view.workload.loops
    if template.declarations.pipeline != choice.pipeline or template.declarations.is_strategy:
        return False
    keep = np.ones(len(part), dtype=bool)
    for level in GPU_LEVELS:
        if level not in choice.sizes:
            continue
        own = _columns(part, level, loops)
        if own is None or len(own) != len(choice.sizes[level]):
            return False
        for index, (column, size) in enumerate(zip(own, choice.sizes[level], strict=True)):
            if len(own) != len(loops):
                keep &= np.equal(column, size)
            elif loops[index].size > 1 and (loops[index].kind == "reduction") == (level in _REDUCTIONS):
                keep &= np.minimum(column, loops[index].size) == min(size, loops[index].size)
    threads = prod(choice.workgroup_size)
    fitting = (part.row(int(index)) for index in np.flatnonzero(keep))
    return any(dict(template.tiling(view, each.knobs, 1).options).get("threads") == threads for each in fitting)


_REDUCTIONS = ("reduction", "partial_reduction")


def _columns(part: TemplateSpace, level: str, loops: Sequence[Loop]) -> list[NDArray[np.int64] | int] | None:
    """The sizes at a level in all assignments of a template; None if it does not have the level."""
    template, numbers = part.template, part.columns()
    if isinstance(template, EmittedTemplate):
        for name, term in template.derived.items():
            numbers[name] = evaluate(term, numbers, part.dims)
        sizes = template.emitted.knob_tree.get(level)
        return [_size(each, numbers) for each in sizes] if isinstance(sizes, list) else None
    tree = template.declarations.knob_tree.get(level)
    unnamed = 0 if level == "subgroup" else 1
    return [_size(tree.get(loop.role, unnamed), numbers) for loop in loops] if isinstance(tree, dict) else None


def _size(leaf: object, numbers: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64] | int:
    if isinstance(leaf, list):
        product: NDArray[np.int64] | int = 1
        for factor in leaf:
            product = product * _size(factor, numbers)
        return product
    return numbers[leaf.name] if isinstance(leaf, KnobLeaf) else int(str(leaf))

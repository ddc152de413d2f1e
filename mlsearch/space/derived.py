"""Templates that are derived from a dispatch: from its loops, strides and what IREE would do with it.

They are the third kind beside those written by hand and those that the compiler emits, and like those they are IR:
knobs, constraints, a matcher of the op, a schedule. The same dispatch on the same hardware gives the same text, so a
record's candidate can be built again.

    derived/window_taps      convolutions and poolings whose window can be unrolled, in any layout
    derived/window_tiles     those whose window can't
    derived/packed_tiles     what puts a tensor into packed tiles, or back, alone or with elementwise ops
    derived/extension_tiles  IREE's own ops without indexing maps: scans, scatters, sorts, transforms
    derived/copy_tiles       copies between buffers, as pads, concatenations and slices become
    derived/loop_tiles       contractions with several loops of a kind, dims that change places beyond the two
                             innermost, and whatever no other template applies to
    derived/own_choice       on a GPU, whatever IREE configures: see `own_choice`
"""

from __future__ import annotations

from collections.abc import Mapping

from mlsearch.ir.access import accesses
from mlsearch.ir.dispatch import DispatchView
from mlsearch.space.derived_copies import copy_tiles
from mlsearch.space.derived_extension import extension_tiles
from mlsearch.space.derived_packing import packed_tiles
from mlsearch.space.derived_taps import window_taps
from mlsearch.space.derived_tiles import loop_tiles
from mlsearch.space.derived_windows import window_tiles
from mlsearch.space.template import Template

PREFIX = "derived/"
OWN_CHOICE = f"{PREFIX}own_choice"


def derived_templates(
    view: DispatchView, late_view: DispatchView | None, facts: Mapping[str, int], *, is_covered: bool
) -> list[Template]:
    """What can be derived for a dispatch on a CPU. `is_covered`: another template applies to it."""
    if view.packed_tile:
        packed = packed_tiles(view, facts, f"{PREFIX}packed_tiles")
        return [packed] if packed is not None else []
    if view.compute_ops[view.root].is_extension:
        own = extension_tiles(view, late_view, facts, f"{PREFIX}extension_tiles")
        return [own] if own is not None else []
    if view.compute_ops[view.root].on_buffers:
        copied = copy_tiles(view, late_view, facts, f"{PREFIX}copy_tiles")
        return [copied] if copied is not None else []
    found: list[Template | None] = []
    if late_view is not None:
        taps = window_taps(view, late_view, facts, f"{PREFIX}window_taps")
        found.append(taps or window_tiles(view, late_view, facts, f"{PREFIX}window_tiles"))
    if view.workload.op_kind == "contraction" or not (is_covered or any(found)) or _is_permuted(view):
        found.append(loop_tiles(view, late_view, facts, f"{PREFIX}loop_tiles"))
    return [template for template in found if template is not None]


def _is_permuted(view: DispatchView) -> bool:
    """Whether an elementwise op has an operand that lies along a loop which files have no knob for, because it is not
    among the two innermost, as where the dims change places all at once. Cut to one iteration, such a loop is walked
    element by element: on one AVX-512 core, all that the files allow for 128x96x160 read as 160x96x128 was 12 times
    slower than IREE's own choice, and more."""
    loops, found = view.workload.loops, accesses(view)
    if any(loop.kind == "reduction" for loop in loops):
        return False
    return any(loops[loop].size > 1 and loop < len(loops) - 2 for access in found for loop in access.contiguous)

"""What a chip's registers and memory allow, as constraints beside the compiler's own.

IREE's constraints bound tiles by an AMD-like register file; NVIDIA's has 255 registers a thread. Of 61 candidates of a
1024 cubed f16 matmul on sm_90, all 15 with 256 or more accumulators a thread spilled, and of the 46 others one did, by
4 bytes. Those 15 took 68 of the 112 seconds of compiling.
"""

from __future__ import annotations

from mlsearch.cuda.chips import WARP, Chip, matrix_instruction
from mlsearch.ir.emitted import EmittedConstraints
from mlsearch.ir.template import Assertion, Expression, KnobLeaf

MMA_KIND = "mma_kind"
_THREADS = "wg_size_x"
_STEP_MMA = 256
"""Matrix instructions of a warp in one step of the reduction: they are unrolled, and compile time follows."""


def pressure_assertions(emitted: EmittedConstraints, chip: Chip) -> list[Assertion]:
    """Bounds on accumulators, operands in flight and unrolled instructions; empty where the constraints have no
    matrix instruction."""
    tree = emitted.knob_tree
    kinds = tree.get(MMA_KIND)
    if not isinstance(kinds, KnobLeaf) or not (tile := _sizes(tree.get("workgroup"))):
        return []
    if matrix_shapes(emitted) is None:
        return []
    threads = Expression("knob", value=_THREADS)
    elements = _product(*tile)
    accumulators = Expression("int.div", (elements, threads))
    most = (chip.architecture.registers_per_thread + 1) // 2
    found = [
        Assertion(
            Expression("int.cmp", (accumulators, _constant(most)), "le"),
            f"{{}} accumulators of a thread <= {most}, half of its registers",
            (accumulators,),
        )
    ]
    steps = _sizes(tree.get("reduction"))
    if steps:
        m, n, k = (matrix_size(emitted, axis) for axis in range(3))
        step = _product(*steps, k) if emitted.pipeline == "TileAndFuse" else _product(*steps)
        unrolled = Expression("int.div", (_product(elements, step, _constant(WARP)), _product(threads, m, n, k)))
        found.append(
            Assertion(
                Expression("int.cmp", (unrolled, _constant(_STEP_MMA)), "le"),
                f"{{}} matrix instructions of a warp in one step <= {_STEP_MMA}",
                (unrolled,),
            )
        )
    return found


def matrix_shapes(emitted: EmittedConstraints) -> list[tuple[int, int, int]] | None:
    """(m, n, k) of each matrix instruction to choose from; None where there is none, or one of unknown shape."""
    kinds = emitted.knob_tree.get(MMA_KIND)
    if not isinstance(kinds, KnobLeaf):
        return None
    found = [matrix_instruction(kind) for kind in kinds.options]
    shapes = [shape for shape in found if shape]
    return shapes if len(shapes) == len(found) else None


def matrix_size(emitted: EmittedConstraints, axis: int) -> Expression:
    """Size of the chosen matrix instruction along m (0), n (1) or k (2)."""
    kinds, shapes = emitted.knob_tree[MMA_KIND], matrix_shapes(emitted)
    assert isinstance(kinds, KnobLeaf) and shapes is not None
    table = tuple((index, shape[axis]) for index, shape in enumerate(shapes))
    return Expression("lookup", (Expression("knob", value=kinds.name),), table)


def _sizes(entries: object) -> list[Expression]:
    """The sizes of a level that are not zero, i.e. cut."""
    if not isinstance(entries, list):
        return []
    return [
        Expression("knob", value=entry.name) if isinstance(entry, KnobLeaf) else _constant(int(entry))
        for entry in entries
        if isinstance(entry, KnobLeaf) or entry
    ]


def _product(*factors: Expression) -> Expression:
    return Expression("int.mul", factors)


def _constant(value: int) -> Expression:
    return Expression("constant", value=value)

"""The space of a task: all templates that apply to it, with what their constraints allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from mlsearch.candidate import Candidate, KnobValue
from mlsearch.errors import KnobError, TemplateError
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.library import EntryText
from mlsearch.space.derived import OWN_CHOICE, derived_templates
from mlsearch.space.emitted import EmittedTemplate, emitted_templates
from mlsearch.space.knobs import Knob
from mlsearch.space.own_choice import own_choice
from mlsearch.space.sketch import vector_limit
from mlsearch.space.template import Template
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import Target
from mlsearch.task import Task
from mlsearch.workload import ATTENTION, Tiling, Workload, element_bytes

TEMPLATE_PARAMETER = "template"
_TRIES_PER_NEIGHBOUR = 10


class Space:
    """What a proposer draws from. All candidates that it gives out are valid."""

    def __init__(
        self,
        parts: Sequence[TemplateSpace],
        view: DispatchView,
        lanes: int,
        late_view: DispatchView | None = None,
    ) -> None:
        """Parts without a valid assignment are left out, and so are strategies where there is no late view."""
        self.parts = {
            part.template.id: part
            for part in parts
            if len(part) and (late_view is not None or not part.template.declarations.is_strategy)
        }
        self.late_view = late_view
        self.note = ""
        """What people should know of it."""
        self.view = view
        self.lanes = lanes
        self._parameter_names = _parameter_names(list(self.parts.values()))

    @property
    def size(self) -> int:
        """Number of valid candidates (an estimate for huge spaces)."""
        return sum(part.size for part in self.parts.values())

    @property
    def distributions(self) -> Mapping[str, tuple[KnobValue, ...]]:
        """Study parameter to its choices. Knobs with one value left are no parameters."""
        choices: dict[str, tuple[KnobValue, ...]] = {}
        if len(self.parts) > 1:
            choices[TEMPLATE_PARAMETER] = tuple(self.parts)
        for part in self.parts.values():
            for knob in part.knobs:
                if len(knob.values) > 1:
                    choices[self._parameter_names[part.template.id, knob.name]] = knob.values
        return choices

    def params(self, candidate: Candidate) -> dict[str, KnobValue]:
        """The study's parameters for a candidate of this space."""
        part = self.parts[candidate.template]
        params: dict[str, KnobValue] = {}
        if len(self.parts) > 1:
            params[TEMPLATE_PARAMETER] = candidate.template
        knobs = candidate.knobs
        for knob in part.knobs:
            if len(knob.values) > 1:
                params[self._parameter_names[candidate.template, knob.name]] = knobs[knob.name]
        return params

    def repair(self, params: Mapping[str, KnobValue]) -> Candidate | None:
        """The candidate that the parameters describe; None if a constraint forbids it or one is missing."""
        template_id = str(params.get(TEMPLATE_PARAMETER, next(iter(self.parts), "")))
        part = self.parts.get(template_id)
        if part is None:
            return None
        knobs: dict[str, KnobValue] = {}
        for knob in part.knobs:
            value = params.get(self._parameter_names[template_id, knob.name])
            value = knob.values[0] if len(knob.values) == 1 else value
            if value is None or value not in knob.values:
                return None
            knobs[knob.name] = value
        return None if part.violations(knobs) else part.template.candidate(knobs)

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        """Distinct candidates, each template as likely as any other, uniform within a template; fewer than
        `count` if the space is smaller."""
        parts = list(self.parts.values())
        return [
            part.row(int(index))
            for part, share in zip(parts, _shares(rng, count, [len(part) for part in parts]), strict=True)
            for index in rng.choice(len(part), share, replace=False)
        ]

    def neighbours(self, candidate: Candidate, rng: np.random.Generator, count: int) -> list[Candidate]:
        """Distinct valid candidates with one or two knobs changed by a step."""
        part = self.parts[candidate.template]
        free = [knob for knob in part.knobs if len(knob.values) > 1]
        if not free:
            return []
        found: dict[str, Candidate] = {}
        for _ in range(_TRIES_PER_NEIGHBOUR):
            moved = [_moved(candidate.knobs, free, rng) for _ in range(2 * count)]
            for knobs, is_valid in zip(moved, part.valid(moved), strict=True):
                if is_valid and len(found) < count:
                    neighbour = part.template.candidate(knobs)
                    found.setdefault(neighbour.key, neighbour)
            if len(found) == count:
                break
        return list(found.values())

    def priors(self) -> list[Candidate]:
        """To be tried first: what the templates suggest, in turns."""
        queues = [part.priors() for part in self.parts.values()]
        longest = max((len(queue) for queue in queues), default=0)
        return [queue[i] for i in range(longest) for queue in queues if i < len(queue)]

    def __iter__(self) -> Iterator[Candidate]:
        for part in self.parts.values():
            yield from part

    def violations(self, candidate: Candidate) -> tuple[str, ...]:
        """Constraints that a candidate of one of the templates breaks. Raises KnobError."""
        if candidate.template not in self.parts:
            raise KnobError(f"no template '{candidate.template}' here; known: {', '.join(self.parts)}")
        return self.parts[candidate.template].violations(candidate.knobs)

    def tiling(self, candidate: Candidate) -> Tiling:
        part = self.parts[candidate.template]
        return part.template.tiling(self.view, candidate.knobs, self.lanes)

    def block_tile(self, candidate: Candidate) -> tuple[int, ...] | None:
        """On a GPU the size of a workgroup's tile along each loop, 0 for the whole loop; None if it isn't known."""
        return self.tiling(candidate).by_level.get("workgroup")

    def entry(self, name: str, candidate: Candidate) -> EntryText:
        """The library entry `name` for a candidate."""
        return self.parts[candidate.template].template.entry(
            name, self.view, self.late_view, candidate.knobs, self.lanes
        )


def build_space(
    view: DispatchView, templates: Sequence[Template], target: Target, late_view: DispatchView | None = None
) -> Space:
    """The space of a dispatch out of the templates that apply to it: fallbacks only where no other has a candidate. On
    a CPU, what can be derived from the dispatch comes along; on a GPU, what IREE chooses itself."""
    facts = dims_and_facts(view, target)
    # No template in a file knows of packed tiles, which cuts have to respect, or of the pipeline that buffers need.
    root = view.compute_ops[view.root]
    files = (
        [] if view.packed_tile or root.on_buffers else [template for template in templates if template.applies_to(view)]
    )
    emitted, problems = _laid_out([each for each in files if isinstance(each, EmittedTemplate)], view, facts)
    facts["emitted"] = sum(1 for part in emitted if len(part))
    own, more = _laid_out([each for each in files if not isinstance(each, EmittedTemplate)], view, facts)
    parts = [*emitted, *own]
    usable = [part for part in parts if len(part) and (late_view or not part.template.declarations.is_strategy)]
    specific = [part for part in usable if not part.template.declarations.is_fallback]
    chosen = specific or usable
    if target.chip is None:
        derived = derived_templates(view, late_view, facts, is_covered=bool(chosen))
        chosen += [TemplateSpace(template, facts) for template in derived]
    elif not (root.is_extension or root.on_buffers):
        # What knobs around the choice would do to these has not been looked at.
        choice = own_choice(view, late_view, facts, chosen, OWN_CHOICE)
        chosen += [TemplateSpace(choice, facts)] if choice is not None else []
    space = Space(chosen, view, facts["lanes"], late_view)
    space.note = "; ".join([*problems, *more])
    return space


def _laid_out(
    templates: Sequence[Template], view: DispatchView, facts: Mapping[str, int]
) -> tuple[list[TemplateSpace], list[str]]:
    """The spaces of the templates on this dispatch, and of those that break the format's rules here, what is wrong.

    What a file says is checked on its own example when it is read; domains and first suggestions are worked out anew
    for each dispatch. One template's failure must not take the others along.
    """
    parts, problems = [], []
    for template in templates:
        try:
            part = TemplateSpace(template, facts)
            for prior in part.priors():
                template.tiling(view, prior.knobs, facts["lanes"])
            parts.append(part)
        except TemplateError as error:
            problems.append(f"{view.workload.label} is tuned without '{template.id}': {error}")
    return parts, problems


def space_of(task: Task, templates: Sequence[Template], target: Target) -> Space | str:
    """The space of a task, or in words why it can't be tuned."""
    if task.view is None or task.module is None:
        return task.not_tunable or "it can't run on its own"
    emitted, note = emitted_templates(task, target)
    space = build_space(task.view, [*emitted, *templates], target, task.late_view)
    space.note = "; ".join(filter(None, (note, space.note)))
    if space.size == 0:
        return f"no template applies to {task.view.workload.op_kind}" + (f"; {space.note}" if space.note else "")
    return space


def dims_and_facts(view: DispatchView, target: Target) -> dict[str, int]:
    """What a template's constraints may ask for by name: loop sizes by role or as `dim_0`, `dim_1`, ..., and facts of
    the target.

    `lanes`, `registers`: elements of the output type in a vector register, and how many of those there are;
    `wide_lanes`: the same for what is computed with, since elements of less than 32 bits are widened; `vector_bytes`;
    `element_bytes`: of the output; `input_bytes`: of the widest input; `l1_bytes`, `l2_bytes`, where a GPU's l1 is the
    shared memory of a block; `threads`; `mma_f16`, `mma_bf16`: 1 if a GPU's matrix instructions take the inputs' type
    and sum up in f32 as the op does, else 0; `mma_f16_f16`: the same for f16 in f16; `emitted`: how many spaces the
    compiler itself emits, of those that have a candidate; `inner`: size of the innermost loop that another op runs in
    parallel where the root op reduces, or 1; `rows_contiguous`: 1 if an input lies in memory along the root op's
    innermost reduction loop, else 0; `transposed`: which operand, counted from 1, is the first that moves along the
    root op's innermost loop, but does not lie in memory along it; 0 if there is none; `exponentials`: how many ops
    compute exponentials; `consumers`: how many ops come after the root op; `vector_limit`: bytes from which IREE's CPU
    pipelines refuse a vector; `partial_results`: 1 if all ops that reduce combine by an operation that results of parts
    can be put together with, else 0.
    """
    workload = view.workload
    outputs = [operand for operand in workload.operands if operand.is_output]
    inputs = [operand for operand in workload.operands if not operand.is_output] or outputs
    output_bytes = max((element_bytes(operand.element_type) for operand in outputs), default=4)
    hardware = target.hardware
    types, results = ({operand.element_type for operand in each} for each in (inputs, outputs))
    # Whatever an attention gives, it sums up in f32.
    in_f32 = results == {"f32"} or workload.op_kind == ATTENTION
    mma = target.chip.architecture.mma if target.chip else ()
    return {
        **workload.dims,
        **{f"dim_{index}": loop.size for index, loop in enumerate(workload.loops)},
        "lanes": max(1, hardware.vector_bytes // output_bytes),
        "wide_lanes": max(1, hardware.vector_bytes // max(4, output_bytes)),
        "vector_bytes": hardware.vector_bytes,
        "registers": hardware.vector_registers,
        "element_bytes": output_bytes,
        "input_bytes": max(element_bytes(operand.element_type) for operand in inputs),
        "l1_bytes": hardware.l1_bytes,
        "l2_bytes": hardware.l2_bytes,
        "threads": target.threads,
        "mma_f16": int(types == {"f16"} and in_f32 and "NV_MMA_SYNC_F32_16x8x16_F16" in mma),
        "mma_bf16": int(types == {"bf16"} and in_f32 and "NV_MMA_SYNC_F32_16x8x16_BF16" in mma),
        "mma_f16_f16": int(types == {"f16"} == results and "NV_MMA_SYNC_F16_16x8x16_F16" in mma),
        "emitted": 0,
        "inner": _inner_size(view),
        "rows_contiguous": int(_reduces_rows(workload)),
        "transposed": _transposed_operand(workload),
        "exponentials": sum("math.exp" in op.functions for op in view.compute_ops),
        "partial_results": int(all(op.combines for op in view.compute_ops if "reduction" in op.kinds)),
        "consumers": len(view.compute_ops) - 1 - view.root,
        "vector_limit": vector_limit(hardware.vector_bytes),
    }


def _transposed_operand(workload: Workload) -> int:
    innermost = len(workload.loops) - 1
    across = [number for number, operand in enumerate(workload.operands, 1) if innermost in operand.loops[:-1]]
    return across[0] if across else 0


def _reduces_rows(workload: Workload) -> bool:
    reduced = [index for index, loop in enumerate(workload.loops) if loop.kind == "reduction"]
    inputs = [operand for operand in workload.operands if not operand.is_output]
    return bool(reduced) and any(operand.loops[-1:] == (reduced[-1],) for operand in inputs)


def _inner_size(view: DispatchView) -> int:
    loops = view.workload.loops
    return max(
        (
            loops[root_loop].size
            for op in view.compute_ops
            for kind, root_loop in zip(op.kinds, op.root_loops, strict=True)
            if kind == "parallel" and root_loop is not None and loops[root_loop].kind == "reduction"
        ),
        default=1,
    )


def _shares(rng: np.random.Generator, count: int, sizes: Sequence[int]) -> list[int]:
    """How many of so many draws go to each part: at random, and what a part is too small for to the others."""
    shares = np.zeros(len(sizes), dtype=np.int64)
    while count > shares.sum() and (shares < sizes).any():
        has_room = shares < sizes
        drawn = rng.multinomial(count - shares.sum(), has_room / has_room.sum())
        shares = np.minimum(shares + drawn, sizes)
    return [int(share) for share in shares]


def _moved(knobs: dict[str, KnobValue], free: Sequence[Knob], rng: np.random.Generator) -> dict[str, KnobValue]:
    """The assignment with one or two of the free knobs changed by a step."""
    for index in rng.choice(len(free), min(len(free), int(rng.integers(1, 3))), replace=False):
        near = free[index].near(knobs[free[index].name])
        knobs[free[index].name] = near[int(rng.integers(len(near)))]
    return knobs


def _parameter_names(parts: Sequence[TemplateSpace]) -> dict[tuple[str, str], str]:
    """Plain knob names, unless two templates mean different domains by one name."""
    domains: dict[str, set[tuple[KnobValue, ...]]] = {}
    for part in parts:
        for knob in part.knobs:
            domains.setdefault(knob.name, set()).add(knob.values)
    stems = Counter(_stem(part) for part in parts)
    names = {}
    for part in parts:
        prefix = _stem(part) if stems[_stem(part)] == 1 else part.template.id
        for knob in part.knobs:
            clash = len(domains[knob.name]) > 1
            names[part.template.id, knob.name] = f"{prefix}.{knob.name}" if clash else knob.name
    return names


def _stem(part: TemplateSpace) -> str:
    return part.template.id.rpartition("/")[2]

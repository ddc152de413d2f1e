"""Templates that the compiler emits for a task: its own constraints, its own way from an assignment to a config.

To what the compiler says is added what it does not know of a chip (`mlsearch.space.pressure`), and options that it
fixes are opened as knobs. Knobs that follow from others are worked out, not searched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from mlsearch import toolchain
from mlsearch.candidate import KnobValue
from mlsearch.cuda.chips import WARP, Chip, matrix_instruction
from mlsearch.errors import MlsearchError, TemplateError
from mlsearch.ir import emitted as ir_emitted
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.emitted import EmittedConstraints, read_emitted
from mlsearch.ir.library import EntryText, entry_text
from mlsearch.ir.module import symbol_ref
from mlsearch.ir.template import Assertion, Declarations, Expression, KnobLeaf
from mlsearch.space.bounds import bounded_domains
from mlsearch.space.constraints import evaluate, knobs_of
from mlsearch.space.pressure import MMA_KIND, pressure_assertions
from mlsearch.space.ragged import with_whole_instructions
from mlsearch.space.template import Template
from mlsearch.space.template_space import TemplateSpace
from mlsearch.space.terms import reduced, text_of
from mlsearch.target import Target
from mlsearch.task import Task
from mlsearch.workload import Loop, Tiling

_EMIT_FLAG = "--iree-codegen-emit-pipeline-constraints"
_ANY = "!transform.any_op"
_NONE = (1,)


@dataclass(frozen=True)
class EmittedTemplate(Template):
    """A template whose text is a module with one of the compiler's constraints ops."""

    emitted: EmittedConstraints
    derived: dict[str, Expression]
    """Knobs that follow from the others."""

    def applies_to(self, view: DispatchView) -> bool:
        return tuple(loop.size for loop in view.workload.loops) == tuple(self.emitted.dims.values())

    def numbers(self, knobs: Mapping[str, KnobValue]) -> dict[str, int]:
        """What the compiler is given for an assignment: a number for each knob, the derived ones included."""
        numbers = {knob.name: knob.number(knobs[knob.name]) for knob in self.knobs}
        for name, term in self.derived.items():
            numbers[name] = int(evaluate(term, numbers, self.emitted.dims))
        return numbers

    def compilation_info(self, knobs: Mapping[str, KnobValue]) -> str:
        return ir_emitted.materialize(self.text, self.numbers(knobs))

    def entry(
        self,
        name: str,
        view: DispatchView,
        late_view: DispatchView | None,
        knobs: dict[str, KnobValue],
        lanes: int,
    ) -> EntryText:
        schedule = "\n".join(
            [
                f"transform.named_sequence {symbol_ref('schedule_' + name)}(%root: {_ANY} {{transform.readonly}}) {{",
                f"  %info = transform.param.constant {self.compilation_info(knobs)} -> !transform.any_param",
                f'  transform.annotate %root "compilation_info" = %info : {_ANY}, !transform.any_param',
                "  transform.yield",
                "}",
            ]
        )
        return entry_text(name, view, schedule, {}, False)

    def tiling(self, view: DispatchView, knobs: dict[str, KnobValue], lanes: int) -> Tiling:
        numbers, loops = self.numbers(knobs), view.workload.loops
        flat = {level: _flat(tree, numbers) for level, tree in self.emitted.knob_tree.items()}
        sizes = {level: each for level, each in flat.items() if each is not None and len(each) == len(loops)}
        levels = [("workgroup", sizes["workgroup"])] if "workgroup" in sizes else []
        units = self._units(loops, knobs)
        if "reduction" in sizes:
            levels.append(("step", tuple(size * unit for size, unit in zip(sizes["reduction"], units, strict=True))))
        if "subgroup" in sizes:
            levels.append(("warp", tuple(size * unit for size, unit in zip(sizes["subgroup"], units, strict=True))))
        elif levels:
            warps = {role: numbers.get(f"sg_{role}_cnt", 1) for role in "mn"}
            tile = zip(sizes["workgroup"], loops, strict=True)
            levels.append(("warp", tuple(ceil(size / warps.get(loop.role, 1)) for size, loop in tile)))
        placed = {
            name for level in ("workgroup", "reduction", "subgroup") for name in _names(self.emitted.knob_tree, level)
        }
        options = [(name, value) for name, value in knobs.items() if name not in placed]
        return Tiling(tuple(levels), (*sorted(options), ("threads", numbers.get("wg_size_x", WARP))))

    def _units(self, loops: Sequence[Loop], knobs: Mapping[str, KnobValue]) -> tuple[int, ...]:
        """Iterations that 1 stands for in a warp's tile and a step: TileAndFuse counts matrix instructions."""
        kind = self.emitted.knob_tree.get(MMA_KIND)
        name = str(knobs.get(kind.name, "")) if isinstance(kind, KnobLeaf) else ""
        shape = matrix_instruction(name) if self.emitted.pipeline == "TileAndFuse" else None
        by_role = dict(zip("mnk", shape, strict=True)) if shape else {}
        return tuple(by_role.get(loop.role, 1) for loop in loops)


def emitted_templates(task: Task, target: Target) -> tuple[list[Template], str]:
    """What the compiler emits for a task, empty for targets and ops that it emits nothing for, and a note for people
    where it should have and did not.

    Constraints that can't be followed are left out, with a note: the task's other templates do without them.
    """
    if target.chip is None or task.module is None or task.view is None:
        return [], ""
    output = task.module.with_suffix(".configurations.mlir")
    argv = toolchain.compile_argv(
        task.module,
        output,
        target.compile_flags,
        compile_from="flow",
        compile_to="executable-configurations",
        extra=(_EMIT_FLAG,),
    )
    done = toolchain.run(argv)
    if done.returncode or not output.is_file():
        # IREE 3.13 dies of a null operand here for contractions with a batch loop.
        return [], f"{task.id}: the compiler emits no constraints, it ends with exit code {done.returncode}"
    try:
        texts = ir_emitted.emitted_in(output.read_text())
    except MlsearchError as reason:
        return [], f"{task.id}: what the compiler emits can't be read: {reason}"
    templates: list[Template] = []
    problems: list[str] = []
    for number, text in enumerate(texts):
        try:
            templates.append(template_of(text, f"cuda/emitted_{number}", output, target.chip))
        except TemplateError as reason:
            problems.append(f"{task.id}: a space that the compiler emits can't be followed: {reason}")
    return _named(templates), "; ".join(problems)


def template_of(text: str, identifier: str, path: Path, chip: Chip | None, opened: bool = True) -> EmittedTemplate:
    """A template of one constraints op. `opened=False`: exactly the compiler's space, and nothing of a chip.

    Raises TemplateError where the constraints do not bound a knob.
    """
    if opened:
        text = ir_emitted.opened(text)
    emitted = read_emitted(text)
    assertions = emitted.assertions
    if opened:
        emitted, assertions = with_whole_instructions(emitted)
    if chip is not None:
        assertions += tuple(pressure_assertions(emitted, chip))
    short = reduced(assertions)
    leaves = {name: leaf for name, leaf in _leaves(emitted.knob_tree).items() if name not in short.derived}
    integers = [name for name, leaf in leaves.items() if not leaf.options]
    known: dict[str, Sequence[int]] = {name: range(len(leaf.options)) for name, leaf in leaves.items() if leaf.options}
    domains = bounded_domains(integers, known, short.assertions, emitted.dims)
    domains = {name: _narrowed(name, values, short.assertions, emitted.dims) for name, values in domains.items()}
    # Where bounds contradict each other there is no assignment. A value that breaks one of them says the same.
    domains = {name: values or _NONE for name, values in domains.items()}
    template = _template(emitted, identifier, path, leaves, domains, short.assertions, short.derived)
    space = TemplateSpace(template, emitted.dims)
    used = space.values_used()
    domains = {name: tuple(int(value) for value in used[name]) or domains[name][:1] for name in domains}
    return _template(emitted, identifier, path, leaves, domains, short.assertions, short.derived)


def _template(
    emitted: EmittedConstraints,
    identifier: str,
    path: Path,
    leaves: Mapping[str, KnobLeaf],
    domains: Mapping[str, tuple[int, ...]],
    assertions: tuple[Assertion, ...],
    derived: dict[str, Expression],
) -> EmittedTemplate:
    order = _joining_order(leaves, domains, assertions)
    declarations = Declarations(
        knob_tree={"emitted": {name: leaves[name] for name in order}},
        domains=dict(domains),
        defaults={name: leaves[name].option_values[0] if leaves[name].options else domains[name][0] for name in order},
        priors=(),
        dims=emitted.dims,
        pipeline=f"#iree_gpu.pipeline<{emitted.pipeline}>",
        assertions=assertions,
        is_fallback=False,
        is_strategy=False,
    )
    return EmittedTemplate(identifier, path, emitted.text, declarations, emitted, derived)


def _narrowed(
    name: str, values: tuple[int, ...], assertions: Sequence[Assertion], dims: Mapping[str, int]
) -> tuple[int, ...]:
    """Without the values that a constraint on this knob alone forbids."""
    alone = [assertion.condition for assertion in assertions if knobs_of(assertion.condition) == {name}]
    return tuple(value for value in values if all(bool(evaluate(each, {name: value}, dims)) for each in alone))


def _joining_order(
    leaves: Mapping[str, KnobLeaf], domains: Mapping[str, tuple[int, ...]], assertions: Sequence[Assertion]
) -> list[str]:
    """Knobs in the order in which they are joined: next always the one that lets the most constraints be applied, of
    those the one with the fewest values. Unconstrained ones come last."""
    sizes = {name: len(leaf.options or domains[name]) for name, leaf in leaves.items()}
    pending = [knobs_of(assertion.condition) for assertion in assertions]
    order: list[str] = []
    while len(order) < len(leaves):
        done = set(order)

        def rank(name: str) -> tuple[int, int, str]:
            ready = sum(1 for names in pending if name in names and names <= done | {name} and len(names) > 1)  # noqa: B023
            return (-ready if ready else int(not any(name in names for names in pending)), sizes[name], name)

        order.append(min((name for name in leaves if name not in done), key=rank))
    return order


def _leaves(tree: object) -> dict[str, KnobLeaf]:
    if isinstance(tree, KnobLeaf):
        return {tree.name: tree}
    children = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    found: dict[str, KnobLeaf] = {}
    for child in children:
        found |= _leaves(child)
    return found


def _names(tree: Mapping[str, object], level: str) -> set[str]:
    return set(_leaves(tree.get(level, [])))


def _flat(tree: object, numbers: Mapping[str, int]) -> tuple[int, ...] | None:
    """A list of sizes with its knobs filled in."""
    if not isinstance(tree, list):
        return None
    sizes = [numbers[leaf.name] if isinstance(leaf, KnobLeaf) else leaf for leaf in tree]
    return tuple(sizes) if all(isinstance(size, int) for size in sizes) else None


def _named(templates: Sequence[Template]) -> list[Template]:
    """Ids that say the pipeline, with a number where one pipeline has several."""
    named: list[Template] = []
    for template in templates:
        assert isinstance(template, EmittedTemplate)
        stem = f"cuda/emitted_{_snake(template.emitted.pipeline)}"
        count = sum(1 for other in named if other.id.startswith(stem))
        identifier = stem if not count else f"{stem}_{count + 1}"
        named.append(
            EmittedTemplate(
                identifier, template.path, template.text, template.declarations, template.emitted, template.derived
            )
        )
    return named


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")


def derived_texts(template: Template) -> dict[str, str]:
    """Knobs that are worked out from others, with the term, for reports."""
    if not isinstance(template, EmittedTemplate):
        return {}
    return {name: text_of(term) for name, term in template.derived.items()}

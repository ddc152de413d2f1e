"""A template file: what it declares, whether it applies to a dispatch, what an assignment turns it into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mlsearch.candidate import Candidate, KnobValue, digest
from mlsearch.errors import TemplateError
from mlsearch.ir import template as ir_template
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.library import EntryText, entry_text
from mlsearch.ir.template import Declarations, KnobLeaf
from mlsearch.space.arithmetic import arithmetic
from mlsearch.space.attention_layout import lay_out_attention
from mlsearch.space.constraints import dims_of, evaluate
from mlsearch.space.domains import domain
from mlsearch.space.gpu_layout import GPU_PIPELINE, check_gpu_levels, lay_out_gpu
from mlsearch.space.knobs import Knob, nearest
from mlsearch.space.layout import Layout, check_layout, lay_out, pipeline_of
from mlsearch.target import Target
from mlsearch.workload import ATTENTION, Tiling

PREPROCESSING = "preprocessing"
"""Folder of variants of the payload below a folder of templates, see `mlsearch.variant`."""


@dataclass(frozen=True)
class Template:
    id: str
    """Path below the template folder without its ending, e.g. `cpu/contraction_double_tiling`."""
    path: Path
    text: str
    declarations: Declarations

    @staticmethod
    def load(path: Path, folder: Path) -> Template:
        """Raises TemplateError for a file that breaks the rules of the format."""
        identifier = path.relative_to(folder).with_suffix("").as_posix()
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise TemplateError(f"template {path} can't be read: {error}") from None
        template = Template(identifier, path, text, ir_template.read_declarations(text, str(path)))
        _check(template)
        return template

    @cached_property
    def digest(self) -> str:
        return digest(self.text)

    @cached_property
    def leaves(self) -> dict[str, KnobLeaf]:
        """Each knob as it stands in the knob dictionary, by name."""
        found: dict[str, KnobLeaf] = {}

        def visit(node: object) -> None:
            if isinstance(node, KnobLeaf):
                found.setdefault(node.name, node)
            elif isinstance(node, dict):
                for child in node.values():
                    visit(child)
            elif isinstance(node, list):
                for child in node:
                    visit(child)

        visit(self.declarations.knob_tree)
        return found

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        """All knobs with their whole domains on the file's own example, in the order of the file."""
        return self.knobs_on(self.declarations.dims)

    def knobs_on(self, dims: Mapping[str, int]) -> tuple[Knob, ...]:
        """The same where the dims have these values. A default that is not in the domain there gives way to the value
        below it. Raises TemplateError for a domain that can't be worked out."""
        return tuple(self._knob(name, leaf, dims) for name, leaf in self.leaves.items())

    def _knob(self, name: str, leaf: KnobLeaf, dims: Mapping[str, int]) -> Knob:
        default = self.default_of(name)
        if leaf.options:
            return Knob(name, leaf.options, default, True)
        values = self.domain_on(name, dims)
        return Knob(name, values, default if default in values else nearest(values, int(default)), False)

    def domain_on(self, name: str, dims: Mapping[str, int]) -> tuple[int, ...]:
        """The values of an integer knob where the dims have these values. Raises TemplateError, naming the knob."""
        try:
            return domain(self.declarations.domains[name], dims)
        except TemplateError as error:
            raise TemplateError(f"template {self.path}: mlsearch.domains, knob '{name}': {error}") from None

    def default_of(self, name: str) -> KnobValue:
        return self.normalized({name: self.declarations.defaults[name]})[name]

    def normalized(self, assignment: dict[str, object]) -> dict[str, KnobValue]:
        """Values as the knobs have them: the printed attribute where a file shows one of a choice's options."""
        return {name: _knob_value(self.leaves[name], value) for name, value in assignment.items()}

    def priors(self, dims: Mapping[str, int]) -> list[dict[str, KnobValue]]:
        """The assignments to be tried first where the dims have these values: knobs that a prior names only, and
        integers as they come of its arithmetic, which may lie between those of the domain."""
        return [
            {
                name: int(evaluate(arithmetic(value), {}, dims))
                if isinstance(value, str) and not self.leaves[name].options
                else self.normalized({name: value})[name]
                for name, value in prior.items()
            }
            for prior in self.declarations.priors
        ]

    def applies_to(self, view: DispatchView) -> bool:
        return ir_template.applies_to(self.text, view.function, view.compute_ops[view.root].position)

    def entry(
        self,
        name: str,
        view: DispatchView,
        late_view: DispatchView | None,
        knobs: dict[str, KnobValue],
        lanes: int,
    ) -> EntryText:
        """The library entry `name` that applies this template with these knob values to this dispatch."""
        layout = self.layout(view, knobs, lanes)
        options = f", {layout.options}" if layout.options else ""
        pipeline = pipeline_of(self.declarations, knobs)
        translation = f"#iree_codegen.translation_info<pipeline = {pipeline}{layout.launch}{options}>"
        if not self.declarations.is_strategy:
            bound = {
                "lowering_config": layout.root_config,
                "decomposition_config": layout.decomposition,
                "translation_info": translation,
            }
            schedule = ir_template.bind_schedule(self.text, name, bound, knobs)
            return entry_text(name, view, schedule, layout.companion_configs, False)
        assert late_view is not None, "a strategy is offered only where the late view can be read"
        late = self.layout(late_view, knobs, lanes)
        configs = {late_view.root: late.root_config, **late.companion_configs}
        bound = {
            "lowering_config": late.root_config,
            "decomposition_config": late.decomposition,
            "pipeline": translation,
            "done": f"#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline{layout.launch}>",
            "zeros": ir_template.zeros([operand.element_type for operand in late_view.workload.operands]),
            "translation_info": (
                "#iree_codegen.translation_info<pipeline = #iree_codegen.transform_dialect_codegen"
                f" codegen_spec = {ir_template.strategy_name(name)}>"
            ),
        }
        every_op = [(op.name, configs.get(index, "")) for index, op in enumerate(late_view.compute_ops)]
        named = {**late_view.workload.dims, **knobs}
        schedule = ir_template.bind_schedule(self.text, name, bound, named, every_op, late.reductions)
        return entry_text(name, view, schedule, {}, True)

    def tiling(self, view: DispatchView, knobs: dict[str, KnobValue], lanes: int) -> Tiling:
        """How an assignment cuts the dispatch's loops."""
        return self.layout(view, knobs, lanes).tiling

    def layout(self, view: DispatchView, knobs: Mapping[str, KnobValue], lanes: int) -> Layout:
        """An assignment on the dispatch, in the terms of the template's pipeline."""
        if view.workload.op_kind == ATTENTION:
            return lay_out_attention(self.declarations, view, knobs, lanes)
        if self.is_for_gpu:
            return lay_out_gpu(self.declarations, view, knobs)
        return lay_out(self.declarations, view, knobs, lanes)

    @property
    def is_for_gpu(self) -> bool:
        return self.declarations.pipeline.startswith(GPU_PIPELINE)

    def candidate(self, knobs: dict[str, KnobValue]) -> Candidate:
        return Candidate.of(self.id, self.digest, knobs)


def _knob_value(leaf: KnobLeaf, value: object) -> KnobValue:
    if not leaf.options:
        return int(value)  # type: ignore[call-overload, no-any-return]
    if value in leaf.option_values:
        return leaf.options[leaf.option_values.index(value)]
    return str(value)


def _check(template: Template) -> None:
    ir_template.check_places(template.text, str(template.path))
    declared = template.declarations
    unnamed = sorted(ir_template.size_names(template.text, str(template.path)) - {*template.leaves, *declared.dims})
    if unnamed:
        raise TemplateError(
            f"template {template.path}: {ir_template.SIZES} names {', '.join(unnamed)}, which is neither a knob nor in"
            " mlsearch.dims"
        )
    for name, leaf in template.leaves.items():
        if not leaf.options and name not in declared.domains:
            raise TemplateError(f"template {template.path}: knob '{name}' has no domain in mlsearch.domains")
        if not leaf.options:
            template.domain_on(name, declared.dims)
        if name not in declared.defaults:
            raise TemplateError(f"template {template.path}: knob '{name}' has no default in mlsearch.defaults")
    for place, names in (
        ("mlsearch.domains", declared.domains.keys()),
        ("mlsearch.defaults", declared.defaults.keys()),
        *(("mlsearch.priors", prior.keys()) for prior in declared.priors),
    ):
        unknown = sorted(set(names) - set(template.leaves))
        if unknown:
            raise TemplateError(f"template {template.path}: {place} names unknown knobs: {', '.join(unknown)}")
    for place, assignment in (
        ("mlsearch.defaults", declared.defaults),
        *(("mlsearch.priors", prior) for prior in declared.priors),
    ):
        for name, value in assignment.items():
            if place == "mlsearch.priors" and isinstance(value, str) and not template.leaves[name].options:
                _check_arithmetic(template, name, value)
            else:
                _check_value(template, place, name, value)
    try:
        if template.is_for_gpu:
            check_gpu_levels(declared)
        else:
            check_layout(declared, {knob.name: knob.default for knob in template.knobs})
        numbers = {knob.name: knob.number(knob.default) for knob in template.knobs}
        for assertion in declared.assertions:
            evaluate(assertion.condition, numbers, declared.dims)
    except TemplateError as error:
        raise TemplateError(f"template {template.path}: {error}") from None


def _check_arithmetic(template: Template, name: str, text: str) -> None:
    try:
        missing = [dim for dim in dims_of(arithmetic(text)) if dim not in template.declarations.dims]
    except TemplateError as error:
        raise TemplateError(f"template {template.path}: mlsearch.priors, knob '{name}': {error}") from None
    if missing:
        raise TemplateError(
            f"template {template.path}: mlsearch.priors, knob '{name}': '{text}' names '{missing[0]}', which is not in"
            f" mlsearch.dims: {', '.join(template.declarations.dims)}"
        )


def _check_value(template: Template, place: str, name: str, value: object) -> None:
    leaf = template.leaves[name]
    allowed = leaf.option_values or template.domain_on(name, template.declarations.dims)
    if value not in allowed:
        raise TemplateError(
            f"template {template.path}: {place} gives knob '{name}' the value {value}, which is not in {list(allowed)}"
        )


def load_templates(folder: Path, backend: str) -> list[Template]:
    """The templates below `folder/<backend>`, or below `folder` if it has no such folder; sorted by id.

    Raises TemplateError if there are none, nor any variants of the payload.
    """
    start = folder / backend if (folder / backend).is_dir() else folder
    variants = folder / PREPROCESSING
    files = sorted(path for path in start.rglob("*.mlir") if not path.is_relative_to(variants))
    if not files and not variants.is_dir():
        raise TemplateError(f"no templates (*.mlir) below {folder}")
    return [Template.load(path, folder) for path in files]


def templates_for(target: Target, folder: Path | None) -> list[Template]:
    """The built-in templates of a target, and those of a user's folder. Raises TemplateError."""
    backend = target.backend.removeprefix("llvm-")
    templates = load_templates(built_in_folder(), backend)
    known = {template.id for template in templates}
    for template in load_templates(folder, backend) if folder else []:
        if template.id in known:
            raise TemplateError(f"template {template.path}: '{template.id}' is the id of a built-in one; rename it")
        templates.append(template)
    return templates


def built_in_folder() -> Path:
    """The templates that come with the package: inside it when installed, beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "transforms"
    return installed if installed.is_dir() else package.parent / "transforms"

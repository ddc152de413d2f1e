"""Each built-in template has a golden twin, uses what it declares, and shows what its defaults bind to."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from iree.compiler import ir as mlir
from spec_time_functions import attention, elementwise, filled, function_text, matmul, matmul_then, read, softmax

from mlsearch.cuda.chips import find_chip
from mlsearch.errors import KnobError
from mlsearch.ir.dispatch import DispatchView
from mlsearch.ir.module import new_context, parse, python_value, walk
from mlsearch.ir.template import BIND
from mlsearch.space.constraints import knobs_of
from mlsearch.space.layout import CONSUMERS
from mlsearch.space.template import PREPROCESSING, Template, built_in_folder
from mlsearch.space.template_space import TemplateSpace
from mlsearch.surrogate.gpu_features import GpuFeatureExtractor
from mlsearch.testing.bind import LANES, bound_library
from mlsearch.testing.bind import knobs_of as settings

FOLDER = built_in_folder()
FILES = sorted(path for path in FOLDER.rglob("*.mlir") if PREPROCESSING not in path.parts)
TWINS = Path(__file__).parents[1] / "lit"
HEADER = ("Matches", "Leaves", "Knobs", "Known failures")

each_template = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


def template_of(path: Path) -> Template:
    return Template.load(path, FOLDER)


def twin_of(path: Path) -> Path:
    return TWINS / path.relative_to(FOLDER)


def test_the_twins_and_the_templates_are_the_same_files() -> None:
    assert FILES
    assert sorted(path.relative_to(TWINS) for path in TWINS.rglob("*.mlir")) == [
        path.relative_to(FOLDER) for path in FILES
    ]


@each_template
def test_a_twin_has_the_default_another_binding_and_a_payload_that_is_left_alone(path: Path) -> None:
    text = twin_of(path).read_text()
    runs = [line for line in text.splitlines() if "RUN:" in line]
    place = f"%templates/{path.relative_to(FOLDER)}"
    assert any(f"%configure_with={place}" in line for line in runs)
    bindings = [line for line in runs if f"%bind {place}" in line]
    assert bindings
    assert all(re.search(rf"\b{name}=", bindings[0]) for name in template_of(path).leaves), "a knob has its default"
    for prefix in ("DEFAULT", "BOUND"):
        assert f"{prefix}-NOT:" in text, f"no payload that {prefix} must not match"


@each_template
def test_the_header_tells_what_a_reader_asks(path: Path) -> None:
    comment = "\n".join(line for line in path.read_text().splitlines() if line.startswith("//"))
    for word in HEADER:
        assert re.search(rf"^// {word}", comment, re.MULTILINE), f"the header does not say: {word}"
    for name in template_of(path).leaves:
        assert name in comment, f"the header does not explain the knob {name}"


@each_template
def test_every_size_is_constrained(path: Path) -> None:
    template = template_of(path)
    constrained = frozenset().union(*(knobs_of(each.condition) for each in template.declarations.assertions))
    # A free choice needs no constraint, a size does: its domain may reach beyond the loop.
    sizes = {name for name, leaf in template.leaves.items() if not leaf.options}
    assert sizes <= constrained


@each_template
def test_every_knob_changes_the_library(path: Path) -> None:
    template = template_of(path)
    view = example(template)
    defaults = {knob.name: knob.default for knob in template.knobs}
    starts = [defaults, *(defaults | prior for prior in template.priors(template.declarations.dims))]
    for knob in template.knobs:
        for start in starts:
            if len({bound_library(template, view.function, {**start, knob.name: value}) for value in knob.values}) > 1:
                break
        else:
            pytest.fail(f"{knob.name} changes nothing, whatever the other knobs are")


@each_template
def test_every_constraint_is_told_with_its_values(path: Path) -> None:
    for assertion in template_of(path).declarations.assertions:
        assert assertion.message.count("{}") == len(assertion.shown), assertion.message


@each_template
def test_the_example_has_valid_assignments(path: Path) -> None:
    template = template_of(path)
    assert len(TemplateSpace(template, template.declarations.dims)) > 1


def convolution(dims: dict[str, int]) -> str:
    o1, o, n, k = (dims[name] for name in ("o1", "o", "n", "k"))
    f1, f = dims.get("f1", 3), dims.get("f", 3)
    a, w = f"tensor<1x{o1 + f1 - 1}x{o + f - 1}x{k}xf32>", f"tensor<{f1}x{f}x{k}x{n}xf32>"
    c = f"tensor<1x{o1}x{o}x{n}xf32>"
    body = f"{filled(c)}\n%r = linalg.conv_2d_nhwc_hwcf ins(%a, %w : {a}, {w}) outs(%init : {c}) -> {c}"
    return function_text({"%a": a, "%w": w}, body, {"%r": c})


def example(template: Template) -> DispatchView:
    """A dispatch with the template's own example dims."""
    dims = template.declarations.dims
    if "s" in dims:
        types = "f16" if "mma" in template.leaves else "f32"
        return read(attention(12, dims["m"], dims["s"], dims["k"], dims["n"], types=types))
    if "r" in dims:
        return read(softmax(dims.get("p", 1024), dims["r"]))
    if "k" in dims and "o" in dims:
        return read(convolution({"o1": dims.get("o1", 56), "o": dims["o"], "n": dims["n"], "k": dims["k"]}))
    if "k" in dims and CONSUMERS in template.declarations.knob_tree:
        return read(matmul_then("%y = math.exp %x0 : f32", m=dims["m"], n=dims["n"], k=dims["k"]))
    if "k" in dims:
        return read(matmul(dims["m"], dims["n"], dims["k"]))
    return read(elementwise(f"{dims.get('p1', 1024)}x{dims['p']}"))


def shown(text: str, place: str) -> list[str]:
    module = parse(text, new_context())
    return [
        str(op.attributes["value"])
        for op in walk(module.operation)
        if BIND in op.attributes and python_value(op.attributes[BIND]) == place and "value" in op.attributes
    ]


def canonical(attribute: str) -> str:
    with new_context():
        return str(mlir.Attribute.parse(attribute))


@each_template
def test_the_file_shows_what_its_defaults_bind_to(path: Path) -> None:
    template = template_of(path)
    view = example(template)
    layout = template.layout(view, {knob.name: knob.default for knob in template.knobs}, LANES)
    for config in shown(template.text, "lowering_config"):
        # A level that the dispatch does not use may still be shown for readers of the file.
        assert levels(config) >= levels(canonical(layout.root_config))
    for config in shown(template.text, "decomposition_config"):
        assert config == canonical(layout.decomposition)
    launch = layout.launch + (f", {layout.options}" if layout.options else "")
    translation = canonical(f"#iree_codegen.translation_info<pipeline = {template.declarations.pipeline}{launch}>")
    place = "pipeline" if template.declarations.is_strategy else "translation_info"
    # A strategy that lowers a dispatch by itself names no pipeline, and has to say when it is done.
    lowers_itself = template.declarations.is_strategy and not shown(template.text, place)
    assert shown(template.text, "done" if lowers_itself else place) == [DONE if lowers_itself else translation]
    if template.declarations.is_strategy:
        every = [layout.root_config, *layout.companion_configs.values()]
        for config in every:
            assert canonical(config) in canonical_lines(template.text), config


@pytest.mark.parametrize("path", [path for path in FILES if path.parent.name == "cuda"], ids=lambda path: path.stem)
def test_the_model_knows_the_tiles_of_each_template_for_a_gpu(path: Path) -> None:
    template = template_of(path)
    view = example(template)
    tiling = template.tiling(view, {knob.name: knob.default for knob in template.knobs}, LANES)
    assert np.isfinite(GpuFeatureExtractor(view.workload, find_chip("h100")).matrix([tiling])).all()


DONE = "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>"


def levels(config: str) -> set[str]:
    """`distribution = [..]` and the like, one by one."""
    return set(re.findall(r"\w+ = (?:\[[^\]]*\]|\{[^}]*\})", config))


def canonical_lines(text: str) -> set[str]:
    module = parse(text, new_context())
    return {str(op.attributes["value"]) for op in walk(module.operation) if op.name == "transform.param.constant"}


@each_template
def test_binding_refuses_unknown_knobs_and_values(path: Path) -> None:
    template = template_of(path)
    with pytest.raises(KnobError, match="no knob tiel"):
        settings(template, ["tiel=3"])
    number = next(knob for knob in template.knobs if not knob.is_choice)
    with pytest.raises(KnobError, match=number.name):
        settings(template, [f"{number.name}=12345"])


def test_no_two_templates_share_a_name() -> None:
    assert max(Counter(path.stem for path in FILES).values()) == 1

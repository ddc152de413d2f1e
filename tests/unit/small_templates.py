"""Templates made to measure, for tests of what reads and lays out templates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mlsearch.space.template import Template

KNOBS = """
  distribution = {m = [#iree_codegen.smt.int_knob<"tile">, #iree_codegen.smt.int_knob<"count">]},
  vector_common_parallel = {m = #iree_codegen.smt.int_knob<"tile">},
  options = {enable_loop_peeling = #iree_codegen.smt.one_of_knob<"peel", [false, true]>}
"""
DOMAINS = "tile = [1, 2, 4, 8], count = [0, 1, 2]"
DEFAULTS = "tile = 4, count = 0, peel = true"
DIMS = {"m": 8, "n": 8, "k": 8}

SCHEDULE = """
  transform.named_sequence @match_it(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["linalg.matmul"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }
  transform.named_sequence @schedule(%root: !transform.any_op {transform.readonly}) {
    %config = transform.param.constant #iree_cpu.lowering_config<distribution = [1, 1, 0]>
        {mlsearch.bind = "lowering_config"} -> !transform.any_param
    transform.annotate %root "lowering_config" = %config : !transform.any_op, !transform.any_param
    %function = transform.get_parent_op %root <{op_name = "func.func"}> : (!transform.any_op) -> !transform.any_op
    %translation = transform.param.constant #iree_codegen.translation_info<
        pipeline = #iree_cpu.pipeline<DoubleTilingExpert>>
        {mlsearch.bind = "translation_info"} -> !transform.any_param
    transform.annotate %function "translation_info" = %translation : !transform.any_op, !transform.any_param
    transform.yield
  }
"""
ENTRY = """
  transform.named_sequence @__kernel_config(%function: !transform.any_op {transform.consumed}) -> !transform.any_op {
    %done = transform.foreach_match in %function @match_it -> @schedule : (!transform.any_op) -> !transform.any_op
    transform.yield %done : !transform.any_op
  }
"""


def template_text(
    *,
    knobs: str = KNOBS,
    domains: str = DOMAINS,
    defaults: str = DEFAULTS,
    priors: str = "",
    dims: Mapping[str, int] = DIMS,
    named_dims: list[str] | None = None,
    asserts: str = "",
    constraints: bool = True,
    module_attributes: str = "transform.with_named_sequence",
    sequences: str = SCHEDULE + ENTRY,
) -> str:
    """`asserts`: the body of the constraints op; the dims are `%m`, `%n`, ... in it."""
    names = list(dims) if named_dims is None else named_dims
    quoted = ", ".join(f'"{name}"' for name in names)
    arguments = ", ".join(f"%{name}: !smt.int" for name in dims)
    constants = "\n".join(f"%const_{name} = arith.constant {value} : index" for name, value in dims.items())
    op = f"""
      {constants}
      iree_codegen.smt.constraints target = <set = 0>, pipeline = #iree_cpu.pipeline<DoubleTilingExpert>,
        knobs = {{{knobs}}}
        dims({", ".join(f"%const_{name}" for name in dims)}) attributes {{
          mlsearch.dims = [{quoted}], mlsearch.domains = {{{domains}}}, mlsearch.defaults = {{{defaults}}},
          mlsearch.priors = [{priors}]
        }} {{
      ^bb0({arguments}):
        {asserts}
      }}
    """
    return f"module attributes {{{module_attributes}}} {{\n{op if constraints else ''}\n{sequences}\n}}\n"


def load(folder: Path, text: str, name: str = "cpu/small.mlir") -> Template:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return Template.load(path, folder)

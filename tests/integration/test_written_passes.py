"""The template format's example of passes written out, in a template of one's own: both pipelines compute the same."""

from __future__ import annotations

import re
from pathlib import Path

from mlsearch.candidate import BuildRequest, Built, Measured, RunRequest
from mlsearch.ir.library import library_text
from mlsearch.payload import load_payload
from mlsearch.space.space import build_space
from mlsearch.space.template import Template, built_in_folder
from mlsearch.target import resolve
from mlsearch.task import cut
from mlsearch.tune.trials import measure_baseline
from mlsearch.workbench import open_workbench

TARGET = resolve("llvm-cpu", 1)
DOCS = Path(__file__).parents[2] / "docs" / "templates.md"
EXPERT = "#iree_cpu.pipeline<DoubleTilingExpert>"
CHAIN = """
func.func @main(%x: tensor<29x203xf32>, %y: tensor<203xf32>) -> tensor<29x203xf32> {
  %e = tensor.empty() : tensor<29x203xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>,
                                        affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<29x203xf32>, tensor<203xf32>) outs(%e : tensor<29x203xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %s = arith.addf %a, %b : f32
    %t = arith.mulf %s, %a : f32
    linalg.yield %t : f32
  } -> tensor<29x203xf32>
  return %r : tensor<29x203xf32>
}
"""


def own_template(folder: Path) -> tuple[Template, tuple[str, ...]]:
    """The elementwise template with the example's choice of a pipeline, and its options."""
    [example] = re.findall(r"```mlir\noptions = \{\n(.*?)\n\}\n```", DOCS.read_text(), re.DOTALL)
    text = (built_in_folder() / "cpu" / "elementwise_double_tiling.mlir").read_text()
    text = text.replace("options = {", f"options = {{{example}, ").replace(
        "mlsearch.defaults = {", f"mlsearch.defaults = {{lowering = {EXPERT}, "
    )
    path = folder / "cpu" / "own.mlir"
    path.parent.mkdir()
    path.write_text(text)
    template = Template.load(path, folder)
    return template, template.leaves["lowering"].options


def test_the_example_of_passes_written_out_builds_other_code_that_computes_the_same(tmp_path: Path) -> None:
    template, (named, written) = own_template(tmp_path)
    assert named == EXPERT
    payload = tmp_path / "chain.mlir"
    payload.write_text(CHAIN)
    [task] = cut(load_payload(payload, TARGET, tmp_path / "work"), TARGET, tmp_path / "work")
    assert task.view is not None and task.module is not None and task.signature is not None
    space = build_space(task.view, [template], TARGET, task.late_view)
    prior = space.priors()[0]
    artifacts = {}
    with open_workbench(TARGET, lambda event: None, jobs=2) as bench:
        baseline = measure_baseline(bench, task)
        for pipeline in (named, written):
            candidate = template.candidate({**prior.knobs, "lowering": pipeline})
            assert not space.violations(candidate)
            library = library_text([space.entry("e", candidate)])
            request = BuildRequest(candidate.key, task.module, library, ("e",), TARGET.compile_flags, 60.0)
            built = bench.build_one(request)
            assert isinstance(built, Built), (pipeline, built)
            artifacts[pipeline] = built.artifact_digest
            plan = bench.plan(min_samples=1, max_samples=1, warmup=0, timeout_s=60.0)
            outcome = bench.run(RunRequest(built.artifact, baseline.artifact, task.signature, plan))
            assert isinstance(outcome, Measured) and outcome.numerics.agrees, (pipeline, outcome)
    assert artifacts[named] != artifacts[written]

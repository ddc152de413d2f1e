"""Enumerate the spaces that IREE emits for a 1024 cubed f16 matmul, and hold them to an SMT solver's enumeration.

    python tools/bench_emitted_space.py [SIZE]

Prints the seconds of both; ends with 1 if the two sets differ.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

import z3

from mlsearch import toolchain
from mlsearch.ir import emitted
from mlsearch.space.emitted import template_of
from mlsearch.space.template_space import TemplateSpace
from mlsearch.target import resolve

PAYLOAD = """
func.func @f(%a: tensor<{n}x{n}xf16>, %b: tensor<{n}x{n}xf16>, %c: tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32> {{
  %d = linalg.matmul ins(%a, %b : tensor<{n}x{n}xf16>, tensor<{n}x{n}xf16>)
                     outs(%c : tensor<{n}x{n}xf32>) -> tensor<{n}x{n}xf32>
  return %d : tensor<{n}x{n}xf32>
}}
"""

Solutions = set[tuple[tuple[str, int], ...]]


def main() -> None:
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    agree = True
    for text in emit(size):
        began = time.perf_counter()
        template = template_of(text, "emitted", Path("emitted.mlir"), None, opened=False)
        space = TemplateSpace(template, template.emitted.dims)
        count = len(space)
        ours_s = time.perf_counter() - began
        ours = {tuple(sorted(template.numbers(candidate.knobs).items())) for candidate in space}
        began = time.perf_counter()
        theirs = solve(text)
        z3_s = time.perf_counter() - began
        agree &= ours == theirs
        verdict = "equal" if ours == theirs else f"{len(ours - theirs)} only ours, {len(theirs - ours)} only z3's"
        print(f"{template.emitted.pipeline}: {count} assignments in {ours_s:.3f} s, z3 {z3_s:.1f} s, {verdict}")
    sys.exit(0 if agree else 1)


def emit(size: int) -> list[str]:
    with tempfile.TemporaryDirectory() as name:
        source, output = Path(name) / "payload.mlir", Path(name) / "configured.mlir"
        source.write_text(PAYLOAD.format(n=size))
        argv = toolchain.compile_argv(
            source,
            output,
            resolve("cuda:sm_80", 1).compile_flags,
            compile_to="executable-configurations",
            extra=("--iree-codegen-emit-pipeline-constraints",),
        )
        done = toolchain.run(argv)
        if done.returncode:
            sys.exit(done.headline)
        return emitted.emitted_in(output.read_text())


def solve(text: str) -> Solutions:
    """All assignments, by blocking each one that was found."""
    solver = z3.Solver()
    solver.from_string(emitted.smtlib(text))
    names = sorted(set(re.findall(r"iree_codegen.smt.knob \"(\w+)\"", text)))
    found: Solutions = set()
    while solver.check() == z3.sat:
        model = solver.model()
        knobs = {name: model.eval(z3.Int(name), model_completion=True).as_long() for name in names}
        found.add(tuple(knobs.items()))
        solver.add(z3.Or([z3.Int(name) != value for name, value in knobs.items()]))
    return found


if __name__ == "__main__":
    main()

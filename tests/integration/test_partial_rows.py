"""Reductions along rows with partial results, compiled by plain `iree-compile` and held against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import iree.runtime
import numpy as np
import pytest
from numpy.typing import NDArray

from mlsearch import toolchain
from mlsearch.ir.library import library_text, readable
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.spec import application
from mlsearch.target import resolve
from mlsearch.task import cut

TARGET = resolve("llvm-cpu", 1)
TEMPLATE = "cpu/reduction_partial_rows"


def row_sums(rows: int, columns: int, element: str = "f32", body: str = "%n = arith.addf %a, %s : f32") -> str:
    total = "f32" if element == "f32" else "i32"
    return f"""
func.func @main(%x: tensor<{rows}x{columns}x{element}>) -> tensor<{rows}x{total}> {{
  %zero = arith.constant {"0.0" if total == "f32" else "0"} : {total}
  %e = tensor.empty() : tensor<{rows}x{total}>
  %f = linalg.fill ins(%zero : {total}) outs(%e : tensor<{rows}x{total}>) -> tensor<{rows}x{total}>
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}}
      ins(%x : tensor<{rows}x{columns}x{element}>) outs(%f : tensor<{rows}x{total}>) {{
  ^bb0(%a: {element}, %s: {total}):
    {body}
    linalg.yield %n : {total}
  }} -> tensor<{rows}x{total}>
  return %r : tensor<{rows}x{total}>
}}
"""


def softmax(shape: str) -> str:
    return f"""
func.func @main(%x: tensor<{shape}xf32>) -> tensor<{shape}xf32> {{
  %e = tensor.empty() : tensor<{shape}xf32>
  %r = linalg.softmax dimension({shape.count("x")}) ins(%x : tensor<{shape}xf32>) outs(%e : tensor<{shape}xf32>)
      -> tensor<{shape}xf32>
  return %r : tensor<{shape}xf32>
}}
"""


def softmax_of(x: NDArray[Any]) -> NDArray[Any]:
    exponentials = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


WIDENED = "%w = arith.extsi %a : i8 to i32\n    %n = arith.addi %w, %s : i32"
CASES: dict[str, tuple[str, tuple[int, ...], str, Any]] = {
    "sums of whole vectors": (row_sums(64, 512), (64, 512), "f4", lambda x: x.sum(axis=1)),
    "rows and columns that no tile divides": (row_sums(61, 997), (61, 997), "f4", lambda x: x.sum(axis=1)),
    "sums of squares": (
        row_sums(64, 300, "f32", "%q = arith.mulf %a, %a : f32\n    %n = arith.addf %s, %q : f32"),
        (64, 300),
        "f4",
        lambda x: (x * x).sum(axis=1),
    ),
    "integers": (
        row_sums(32, 256, "i8", WIDENED),
        (32, 256),
        "i1",
        lambda x: x.astype(np.int32).sum(axis=1, dtype=np.int32),
    ),
    "a softmax over three loops": (softmax("3x21x197"), (3, 21, 197), "f4", softmax_of),
    "a softmax whose exponentials are stored": (softmax("3x128x256"), (3, 128, 256), "f4", softmax_of),
}


def inputs(shape: tuple[int, ...], element: str) -> NDArray[Any]:
    rng = np.random.default_rng(0)
    if element == "i1":
        return rng.integers(-100, 100, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(element)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_its_first_suggestions_compute_what_numpy_computes(case: str, number: int, tmp_path: Path) -> None:
    text, shape, element, expected = CASES[case]
    path = tmp_path / "payload.mlir"
    path.write_text(text)
    [task] = cut(load_payload(path, TARGET, tmp_path), TARGET, tmp_path)
    space = space_of(task, templates_for(TARGET, None), TARGET)
    assert isinstance(space, Space), space
    suggestion = space.parts[TEMPLATE].priors()[number]
    assert suggestion.knobs["stored"] == int("stored" in case)
    library = readable(library_text([space.entry(task.entry_name, suggestion)]))
    assert application(library, "x", path, None, TARGET, tmp_path).functions == {task.entry_name: task.functions}

    spec, artifact = tmp_path / "spec.mlir", tmp_path / "payload.vmfb"
    spec.write_text(library)
    ran = toolchain.run(toolchain.compile_argv(path, artifact, TARGET.compile_flags, library=spec))
    assert ran.returncode == 0, ran.headline
    module = iree.runtime.load_vm_flatbuffer_file(str(artifact), driver="local-sync")
    x = inputs(shape, element)
    found = module.main(x).to_host()
    if element == "i1":
        np.testing.assert_array_equal(found, expected(x))
    else:
        np.testing.assert_allclose(found, expected(x.astype(np.float64)), rtol=1e-4, atol=1e-5)

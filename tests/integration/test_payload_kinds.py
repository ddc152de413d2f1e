"""Whatever `iree-compile` accepts is cut into tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from iree.compiler import ir as mlir
from payload_texts import ACCUMULATE, ASYNC, DYNAMIC, ODD_NAME, STABLEHLO, TOSA, matmul

from mlsearch.candidate import TensorSpec
from mlsearch.errors import PayloadError
from mlsearch.payload import Payload, load_payload
from mlsearch.target import resolve
from mlsearch.task import Task, cut
from mlsearch.tune.trials import measure_baseline
from mlsearch.workbench import open_workbench

TARGET = resolve("llvm-cpu", 1)


def cut_text(folder: Path, text: str | bytes, function: str | None = None) -> tuple[Payload, list[Task]]:
    path = folder / "payload.mlir"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    payload = load_payload(path, TARGET, folder / "work", function)
    return payload, cut(payload, TARGET, folder / "work")


def kinds(tasks: list[Task]) -> list[str]:
    return [task.workload.op_kind if task.workload else "" for task in tasks]


def bytecode(text: str) -> bytes:
    import io

    stream = io.BytesIO()
    with mlir.Context():
        mlir.Module.parse(text).operation.write_bytecode(stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        pytest.param(matmul(), "matmul", id="linalg"),
        pytest.param(STABLEHLO, "matmul", id="stablehlo"),
        pytest.param(TOSA, "matmul", id="tosa"),
        pytest.param(bytecode(matmul()), "matmul", id="bytecode"),
    ],
)
def test_a_payload_of_any_kind_has_its_task(text: str | bytes, kind: str, tmp_path: Path) -> None:
    payload, tasks = cut_text(tmp_path, text)
    assert kind in kinds(tasks)
    assert all(task.module is not None and task.not_tunable is None for task in tasks)
    assert [entry.name for entry in payload.functions] == ["main"]


def test_an_imported_model_with_fences_and_an_odd_name_is_called_by_its_plain_name(tmp_path: Path) -> None:
    payload, tasks = cut_text(tmp_path, ASYNC, ODD_NAME)
    [entry] = payload.functions
    assert entry.name == ODD_NAME
    assert entry.signature is not None
    assert entry.signature.inputs == (TensorSpec((24, 40), "f32"), TensorSpec((40, 32), "f32"))
    assert kinds(tasks) == ["matmul"]
    with open_workbench(TARGET, lambda event: None, jobs=1) as bench:
        assert measure_baseline(bench, tasks[0]).measured.numerics.agrees


def test_dynamic_dims_are_listed_with_the_reason(tmp_path: Path) -> None:
    payload, tasks = cut_text(tmp_path, DYNAMIC)
    assert [(task.not_tunable, task.module) for task in tasks] == [("it has dynamic dims", None)]
    assert payload.functions[0].signature is None


def test_equal_dispatches_of_several_functions_are_one_task(tmp_path: Path) -> None:
    text = matmul(name="one") + matmul(name="two") + matmul(29, 31, 37, name="three")
    payload, tasks = cut_text(tmp_path, text)
    assert [entry.name for entry in payload.functions] == ["one", "two", "three"]
    assert [task.sites for task in tasks] == [2, 1]
    assert len({task.entry_name for task in tasks}) == 2


def test_one_function_can_be_asked_for(tmp_path: Path) -> None:
    text = matmul(name="one") + matmul(name="two")
    assert [entry.name for entry in cut_text(tmp_path, text, "two")[0].functions] == ["two"]
    with pytest.raises(PayloadError, match=r"'gone'.*'one', 'two'"):
        cut_text(tmp_path, text, "gone")


def test_a_dispatch_that_writes_over_an_argument_runs_with_the_same_numbers_each_time(tmp_path: Path) -> None:
    _, [task] = cut_text(tmp_path, ACCUMULATE)
    assert task.signature is not None
    assert task.signature.out_buffers == ()
    with open_workbench(TARGET, lambda event: None, jobs=1) as bench:
        assert measure_baseline(bench, task).measured.numerics.agrees


def test_what_is_no_mlir_is_told_with_the_compilers_words(tmp_path: Path) -> None:
    with pytest.raises(PayloadError, match=r"iree-compile does not accept .*payload\.mlir.*error"):
        cut_text(tmp_path, "func.func @f( {")
    with pytest.raises(PayloadError, match="does not exist"):
        load_payload(tmp_path / "gone.mlir", TARGET, tmp_path)


def test_a_payload_without_dispatches_has_no_tasks(tmp_path: Path) -> None:
    assert cut_text(tmp_path, "func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }")[1] == []


ROW_MAXIMUM = """
func.func @main(%x: tensor<8x32xi32>) -> tensor<8xi32> {
  %least = arith.constant -2147483648 : i32
  %e = tensor.empty() : tensor<8xi32>
  %f = linalg.fill ins(%least : i32) outs(%e : tensor<8xi32>) -> tensor<8xi32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
      iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x32xi32>) outs(%f : tensor<8xi32>) {
  ^bb0(%a: i32, %o: i32):
    %m = arith.maxsi %a, %o : i32
    linalg.yield %m : i32
  } -> tensor<8xi32>
  return %r : tensor<8xi32>
}
"""
GATHER = """
func.func @main(%table: tensor<4x8xf32>, %rows: tensor<6xi32>) -> tensor<6x8xf32> {
  %e = tensor.empty() : tensor<6x8xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(i, j) -> (i)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%rows : tensor<6xi32>) outs(%e : tensor<6x8xf32>) {
  ^bb0(%row: i32, %o: f32):
    %i = arith.index_cast %row : i32 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%i, %j] : tensor<4x8xf32>
    linalg.yield %v : f32
  } -> tensor<6x8xf32>
  return %r : tensor<6x8xf32>
}
"""
PACKED = """
func.func @main(%a: tensor<64x32xi4>, %b: tensor<64x32xi4>) -> tensor<64x32xi4> {
  %0 = arith.addi %a, %b : tensor<64x32xi4>
  return %0 : tensor<64x32xi4>
}
"""


@pytest.mark.parametrize(("text", "indices"), [(ROW_MAXIMUM, False), (GATHER, True)])
def test_integers_are_taken_for_indices_only_where_something_is_indexed(
    text: str, indices: bool, tmp_path: Path
) -> None:
    payload, [task] = cut_text(tmp_path, text)
    whole = payload.functions[0].signature
    assert task.signature is not None and whole is not None
    assert (task.signature.indices, whole.indices) == (indices, indices)


def test_elements_that_share_a_byte_are_neither_tuned_nor_run(tmp_path: Path) -> None:
    payload, [task] = cut_text(tmp_path, PACKED)
    assert task.not_tunable is not None
    assert "i4" in task.not_tunable
    assert payload.functions[0].signature is None

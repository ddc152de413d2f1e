from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlsearch.candidate import (
    Compared,
    CompareRequest,
    Measured,
    RunOutcome,
    RunRequest,
    Signature,
    TensorSpec,
    WrongResult,
)
from mlsearch.errors import RunnerError
from mlsearch.runner import LocalRunner, Runner
from mlsearch.runner.numerics import INTEGER_POISON
from mlsearch.testing.runner_contract import PLAN, ContractArtifacts, RunnerContract, run

Build = Callable[[Path], Path]


class TestLocalSync(RunnerContract):
    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
        folder = tmp_path_factory.mktemp("log")
        with LocalRunner("local-sync", threads=1, log_folder=folder) as runner:
            yield runner

    @pytest.fixture
    def artifacts(self, matmul_artifacts: ContractArtifacts) -> ContractArtifacts:
        return matmul_artifacts


class TestLocalTask(TestLocalSync):
    @pytest.fixture(scope="class")
    @classmethod
    def runner(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
        folder = tmp_path_factory.mktemp("log")
        with LocalRunner("local-task", threads=2, log_folder=folder) as runner:
            yield runner


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRunner]:
    folder = tmp_path_factory.mktemp("log")
    with LocalRunner("local-sync", threads=1, log_folder=folder, llc_bytes=1 << 22) as runner:
        yield runner


def run_text(
    runner: Runner, build: Build, folder: Path, text: str, signature: Signature, other: str | None = None
) -> RunOutcome:
    """Run `other` (or the same again) against the build of `text`."""
    (folder / "baseline.mlir").write_text(text)
    baseline = candidate = build(folder / "baseline.mlir")
    if other is not None:
        (folder / "candidate.mlir").write_text(other)
        candidate = build(folder / "candidate.mlir")
    return runner.run(RunRequest(candidate, baseline, signature, PLAN))


def matmul_text(left: str, result: str, depth: int = 64) -> str:
    return f"""
func.func @task(%a: tensor<8x{depth}x{left}>, %b: tensor<{depth}x16x{left}>,
                %out: !hal.buffer {{iree.abi.output = 0 : index}}) -> tensor<8x16x{result}> {{
  %zero = arith.constant {"0" if result.startswith("i") else "0.0"} : {result}
  %empty = tensor.empty() : tensor<8x16x{result}>
  %fill = linalg.fill ins(%zero : {result}) outs(%empty : tensor<8x16x{result}>) -> tensor<8x16x{result}>
  %product = linalg.matmul ins(%a, %b : tensor<8x{depth}x{left}>, tensor<{depth}x16x{left}>)
                           outs(%fill : tensor<8x16x{result}>) -> tensor<8x16x{result}>
  return %product : tensor<8x16x{result}>
}}"""


@pytest.mark.parametrize(("left", "result"), [("bf16", "f32"), ("bf16", "bf16"), ("f16", "f16"), ("i8", "i32")])
def test_other_element_types_are_fed_and_checked(
    runner: Runner, build: Build, tmp_path: Path, left: str, result: str
) -> None:
    inputs = (TensorSpec((8, 64), left), TensorSpec((64, 16), left))
    signature = Signature("task", inputs, (TensorSpec((8, 16), result),), (0,), 64)
    outcome = run_text(runner, build, tmp_path, matmul_text(left, result), signature)
    assert isinstance(outcome, Measured)
    assert outcome.numerics.agrees
    assert outcome.numerics.elements == 8 * 16


WHOLE = """
func.func @main(%x: tensor<64xf32>, %keep: tensor<64xi1>) -> (tensor<64xf32>, tensor<64xi1>) {{
  %root = math.{operation} %x : tensor<64xf32>
  %true = arith.constant dense<true> : tensor<64xi1>
  %not = arith.xori %keep, %true : tensor<64xi1>
  return %root, %not : tensor<64xf32>, tensor<64xi1>
}}"""
WHOLE_SIGNATURE = Signature(
    "main",
    (TensorSpec((64,), "f32"), TensorSpec((64,), "i1")),
    (TensorSpec((64,), "f32"), TensorSpec((64,), "i1")),
    (),
    1,
)


def test_a_whole_payload_is_run_without_out_buffers_and_finite_on_positive_inputs(
    runner: Runner, build: Build, tmp_path: Path
) -> None:
    # On standard normal inputs half of the roots are NaN; on positive ones the two programs agree.
    root = WHOLE.format(operation="sqrt")
    of_magnitude = root.replace("math.sqrt %x", "math.sqrt %size").replace(
        "%root", "%size = math.absf %x : tensor<64xf32>\n  %root", 1
    )
    outcome = run_text(runner, build, tmp_path, root, WHOLE_SIGNATURE, of_magnitude)
    assert isinstance(outcome, Measured)
    assert outcome.numerics.elements == 128


def test_a_whole_payload_with_other_numbers_is_a_wrong_result(runner: Runner, build: Build, tmp_path: Path) -> None:
    outcome = run_text(
        runner,
        build,
        tmp_path,
        WHOLE.format(operation="sqrt"),
        WHOLE_SIGNATURE,
        WHOLE.format(operation="rsqrt"),
    )
    assert isinstance(outcome, WrongResult)


NOT_A_NUMBER = """
func.func @task(%x: tensor<64xf32>, %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<64xf32> {
  %least = arith.constant dense<LEAST> : tensor<64xf32>
  %difference = arith.subf %x, %least : tensor<64xf32>
  %root = math.sqrt %difference : tensor<64xf32>
  return %root : tensor<64xf32>
}"""
PARTLY = NOT_A_NUMBER.replace("LEAST", "0.55")
"""NaN in about half of its elements, on positive inputs as well."""
UNWRITTEN = """
func.func @task(%x: tensor<64xf32>, %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<64xf32> {
  %c1 = arith.constant 1 : index
  %quotient = flow.dispatch.workgroups[%c1, %c1, %c1](%x) : (tensor<64xf32>) -> tensor<64xf32> =
      (%source: !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xf32>>,
       %result: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<64xf32>>) {
    %s = iree_tensor_ext.dispatch.tensor.load %source, offsets = [0], sizes = [16], strides = [1]
        : !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xf32>> -> tensor<16xf32>
    %least = arith.constant dense<0.55> : tensor<16xf32>
    %d = arith.subf %s, %least : tensor<16xf32>
    %q = math.sqrt %d : tensor<16xf32>
    iree_tensor_ext.dispatch.tensor.store %q, %result, offsets = [0], sizes = [16], strides = [1]
        : tensor<16xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<64xf32>>
    flow.return
  }
  return %quotient : tensor<64xf32>
}"""
POISON_VALUES = """
func.func @task(%x: tensor<64xi8>, %out: !hal.buffer {iree.abi.output = 0 : index}) -> tensor<64xi8> {
  %large = arith.constant dense<100> : tensor<64xi8>
  %is_small = arith.cmpi slt, %x, %large : tensor<64xi8>
  %poison = arith.constant dense<90> : tensor<64xi8>
  %value = arith.select %is_small, %poison, %x : tensor<64xi1>, tensor<64xi8>
  return %value : tensor<64xi8>
}"""
VECTOR = Signature("task", (TensorSpec((64,), "f32"),), (TensorSpec((64,), "f32"),), (0,), 1)


def test_an_output_that_is_rightly_nan_agrees(runner: Runner, build: Build, tmp_path: Path) -> None:
    assert isinstance(run_text(runner, build, tmp_path, PARTLY, VECTOR), Measured)


def test_the_poison_does_not_pass_for_a_nan_that_was_expected(runner: Runner, build: Build, tmp_path: Path) -> None:
    outcome = run_text(runner, build, tmp_path, PARTLY, VECTOR, UNWRITTEN)
    assert isinstance(outcome, WrongResult)
    assert outcome.numerics.unwritten == 48


def test_an_untuned_build_that_computes_nothing_finite_is_an_error(
    runner: Runner, build: Build, tmp_path: Path
) -> None:
    with pytest.raises(RunnerError, match="output 0 is finite nowhere on random inputs"):
        run_text(runner, build, tmp_path, NOT_A_NUMBER.replace("LEAST", "9.0"), VECTOR)


def test_inputs_on_which_nothing_is_finite_are_not_those_that_numbers_are_checked_on(
    runner: Runner, build: Build, tmp_path: Path
) -> None:
    # Positive inputs are less than 1; of the normal ones a sixth is more.
    text = NOT_A_NUMBER.replace("LEAST", "1.0")
    twice = text.replace("return %root", "%twice = arith.addf %root, %root : tensor<64xf32>\n  return %twice")
    assert isinstance(run_text(runner, build, tmp_path, text, VECTOR), Measured)
    assert isinstance(run_text(runner, build, tmp_path, text, VECTOR, twice), WrongResult)


def test_the_poison_does_not_pass_for_an_integer_that_was_expected(
    runner: Runner, build: Build, tmp_path: Path
) -> None:
    assert INTEGER_POISON == 90
    integers = replace(VECTOR, inputs=(TensorSpec((64,), "i8"),), outputs=(TensorSpec((64,), "i8"),))
    quarter = UNWRITTEN.replace("f32", "i8").replace(
        "%least = arith.constant dense<0.55> : tensor<16xi8>\n    %d = arith.subf %s, %least : tensor<16xi8>",
        """%large = arith.constant dense<100> : tensor<16xi8>
    %is_small = arith.cmpi slt, %s, %large : tensor<16xi8>
    %poison = arith.constant dense<90> : tensor<16xi8>""",
    )
    quarter = quarter.replace(
        "math.sqrt %d : tensor<16xi8>",
        "arith.select %is_small, %poison, %s : tensor<16xi1>, tensor<16xi8>",
    )
    assert isinstance(run_text(runner, build, tmp_path, POISON_VALUES, integers), Measured)
    outcome = run_text(runner, build, tmp_path, POISON_VALUES, integers, quarter)
    assert isinstance(outcome, WrongResult)
    assert outcome.numerics.unwritten == 48


def test_a_cold_measurement_is_taken(runner: Runner, matmul_artifacts: ContractArtifacts) -> None:
    plan = replace(PLAN, cache="cold", max_samples=8)
    outcome = run(runner, matmul_artifacts, matmul_artifacts.baseline, plan)
    assert isinstance(outcome, Measured)
    assert 5 <= len(outcome.samples_us) <= 8


def test_a_rebuilt_baseline_at_the_same_path_is_run_anew(
    runner: Runner, matmul_artifacts: ContractArtifacts, tmp_path: Path
) -> None:
    baseline = tmp_path / "baseline.vmfb"
    request = RunRequest(matmul_artifacts.baseline, baseline, matmul_artifacts.signature, PLAN)
    baseline.write_bytes(matmul_artifacts.baseline.read_bytes())
    assert isinstance(runner.run(request), Measured)
    baseline.write_bytes(matmul_artifacts.short_reduction.read_bytes())
    assert isinstance(runner.run(request), WrongResult)


def test_the_inputs_follow_the_seed(runner: Runner, matmul_artifacts: ContractArtifacts) -> None:
    errors = set()
    for seed in (1, 2, 1):
        outcome = run(runner, matmul_artifacts, matmul_artifacts.short_reduction, replace(PLAN, seed=seed))
        assert isinstance(outcome, WrongResult)
        errors.add(outcome.numerics.max_abs_error)
    assert len(errors) == 2


def test_a_worker_that_died_while_idle_is_replaced(tmp_path: Path, matmul_artifacts: ContractArtifacts) -> None:
    with LocalRunner("local-sync", threads=1, log_folder=tmp_path) as runner:
        run(runner, matmul_artifacts, matmul_artifacts.baseline)
        os.kill(worker_process(), signal.SIGKILL)
        assert isinstance(run(runner, matmul_artifacts, matmul_artifacts.baseline), Measured)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores to tell one from all")
def test_a_pool_has_the_threads_and_cores_that_were_asked_for(
    tmp_path: Path, matmul_artifacts: ContractArtifacts
) -> None:
    with LocalRunner("local-task", threads=1, log_folder=tmp_path) as runner:
        run(runner, matmul_artifacts, matmul_artifacts.baseline)
        threads = list(Path(f"/proc/{worker_process()}/task").iterdir())
        names = [(thread / "comm").read_text().strip() for thread in threads]
        assert sum(name.startswith("iree-worker") for name in names) == 1
        cores = {core for thread in threads for core in os.sched_getaffinity(int(thread.name))}
        assert cores == {max(os.sched_getaffinity(0))}


def test_closing_ends_the_process(tmp_path: Path, matmul_artifacts: ContractArtifacts) -> None:
    runner = LocalRunner("local-sync", threads=1, log_folder=tmp_path)
    run(runner, matmul_artifacts, matmul_artifacts.baseline)
    process = worker_process()
    runner.close()
    assert not Path(f"/proc/{process}").exists()


def worker_process() -> int:
    """Process id of the youngest child of this process that runs the worker."""
    children = [
        int(child)
        for thread in Path("/proc/self/task").iterdir()
        for child in (thread / "children").read_text().split()
    ]
    return max(child for child in children if b"mlsearch.runner.worker" in Path(f"/proc/{child}/cmdline").read_bytes())


STEP = """
  %{name} = flow.dispatch.workgroups[%c1, %c1, %c1](%{source}) : (tensor<64xf32>) -> tensor<64xf32> =
      (%from: !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xf32>>,
       %to: !iree_tensor_ext.dispatch.tensor<writeonly:tensor<64xf32>>) {{
    %x = iree_tensor_ext.dispatch.tensor.load %from, offsets = [0], sizes = [{written}], strides = [1]
        : !iree_tensor_ext.dispatch.tensor<readonly:tensor<64xf32>> -> tensor<{written}xf32>
    %y = arith.addf %x, %x : tensor<{written}xf32>
    iree_tensor_ext.dispatch.tensor.store %y, %to, offsets = [0], sizes = [{written}], strides = [1]
        : tensor<{written}xf32> -> !iree_tensor_ext.dispatch.tensor<writeonly:tensor<64xf32>>
    flow.return
  }}"""


def two_steps(first: int, second: int) -> str:
    """Two dispatches, of which each writes so many of its 64 elements; what the first gives is in between."""
    steps = STEP.format(name="a", source="in", written=first) + STEP.format(name="b", source="a", written=second)
    return f"""
func.func @main(%in: tensor<64xf32>) -> tensor<64xf32> {{
  %c1 = arith.constant 1 : index{steps}
  return %b : tensor<64xf32>
}}"""


def build_steps(build: Build, folder: Path, first: int, second: int) -> Path:
    module = folder / f"steps_{first}_{second}.mlir"
    module.write_text(two_steps(first, second))
    return build(module)


TWO_STEPS = Signature("main", (TensorSpec((64,), "f32"),), (TensorSpec((64,), "f32"),), (), 1)


@pytest.mark.parametrize(("device", "threads"), [("local-sync", 1), ("local-task", 2)])
def test_what_a_whole_payload_forgets_to_write_is_not_made_up_for_by_an_earlier_run(
    device: str, threads: int, build: Build, tmp_path: Path
) -> None:
    whole = build_steps(build, tmp_path, 64, 64)
    others = (build_steps(build, tmp_path, 64, 32), build_steps(build, tmp_path, 32, 64))
    with LocalRunner(device, threads=threads, log_folder=tmp_path) as runner:
        # The untuned build runs first, and gives back memory that holds what the others leave out.
        compared = runner.compare(CompareRequest((whole, *others, whole), TWO_STEPS, PLAN, 2))
        assert isinstance(compared, Compared)
        assert [numerics.agrees for numerics in compared.numerics] == [True, False, False, True]
        assert compared.numerics[1].unwritten == 32
        for artifact in others:
            assert isinstance(runner.run(RunRequest(artifact, whole, TWO_STEPS, PLAN)), WrongResult)


def test_elements_that_the_untuned_build_never_writes_are_nobodys_fault(
    runner: Runner, build: Build, tmp_path: Path
) -> None:
    partial = build_steps(build, tmp_path, 64, 32)
    compared = runner.compare(CompareRequest((partial, partial), TWO_STEPS, PLAN, 2))
    assert isinstance(compared, Compared)
    assert compared.numerics[1].agrees

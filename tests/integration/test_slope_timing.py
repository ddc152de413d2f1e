"""Timing by slope, with a batch in one call, on a device where the wall clock says something to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mlsearch import toolchain
from mlsearch.candidate import Compared, CompareRequest, Measured, RunFailed, RunRequest, Signature, TimingPlan
from mlsearch.ir.flow import dispatch_sites, slice_task, task_signature
from mlsearch.payload import load_payload
from mlsearch.runner import LocalRunner
from mlsearch.target import resolve

MATMUL = """
func.func @matmul(%a: tensor<64x128xf32>, %b: tensor<128x96xf32>) -> tensor<64x96xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<64x96xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<64x96xf32>) -> tensor<64x96xf32>
  %r = linalg.matmul ins(%a, %b : tensor<64x128xf32>, tensor<128x96xf32>)
      outs(%f : tensor<64x96xf32>) -> tensor<64x96xf32>
  return %r : tensor<64x96xf32>
}
"""
BATCH = 16


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Signature, str]:
    """A task with a batch function: artifact, signature, and the module at the stream phase."""
    folder = tmp_path_factory.mktemp("slope")
    (folder / "matmul.mlir").write_text(MATMUL)
    target = resolve("llvm-cpu", 1)
    module = load_payload(folder / "matmul.mlir", target, folder).parse()
    site = next(iter(dispatch_sites(module)[0].values()))
    signature = task_signature(site, 128, BATCH)
    assert signature is not None
    (folder / "task.mlir").write_text(slice_task(module, site, BATCH))
    for name, phase in (("task.vmfb", None), ("task.stream.mlir", "stream")):
        done = toolchain.run(
            toolchain.compile_argv(
                folder / "task.mlir", folder / name, target.compile_flags, compile_from="flow", compile_to=phase
            )
        )
        assert done.returncode == 0, done.stderr[:2000]
    return folder / "task.vmfb", signature, (folder / "task.stream.mlir").read_text()


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[[str], LocalRunner]]:
    runners = []

    def make(uri: str) -> LocalRunner:
        runners.append(LocalRunner(uri, threads=1, log_folder=tmp_path))
        return runners[-1]

    yield make
    for each in runners:
        each.close()


def test_a_batch_is_one_command_buffer(batched: tuple[Path, Signature, str]) -> None:
    text = batched[2][batched[2].index("@task_batch") :]
    assert text.count("stream.cmd.execute") == 1
    assert text.count("stream.cmd.dispatch") == BATCH


def test_the_slope_leaves_out_what_waking_a_pool_costs(
    batched: tuple[Path, Signature, str], runner: Callable[[str], LocalRunner]
) -> None:
    artifact, signature, _ = batched
    plan = TimingPlan(seed=0, threads=1)
    times: dict[str, float] = {}
    with runner("local-task") as pool:
        for method in ("wall", "slope"):
            request = RunRequest(artifact, artifact, signature, replace(plan, method=method))
            outcome = pool.run(request)
            assert isinstance(outcome, Measured), outcome
            times[method] = outcome.time_us
            compared = pool.compare(CompareRequest((artifact, artifact), signature, request.plan, 3))
            assert isinstance(compared, Compared)
            assert all(numerics.agrees for numerics in compared.numerics)
    # 42 us by the wall clock, 7 us by slope, where the matmul takes 7 us in the caller's own thread.
    assert times["slope"] < times["wall"]


def test_an_artifact_without_the_promised_batch_function_says_so(
    batched: tuple[Path, Signature, str], runner: Callable[[str], LocalRunner], build: Callable[[Path], Path]
) -> None:
    artifact, signature, _ = batched
    other = build(Path(__file__).parent / "artifacts" / "matmul.mlir")
    outcome = runner("local-sync").run(RunRequest(other, artifact, signature, TimingPlan(seed=0, threads=1)))
    assert isinstance(outcome, RunFailed)
    assert "has no function 'task_batch'" in outcome.message

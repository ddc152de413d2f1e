"""Real builds for tests that run them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mlsearch import toolchain
from mlsearch.candidate import Signature, TensorSpec
from mlsearch.payload import load_payload
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import templates_for
from mlsearch.target import resolve
from mlsearch.task import Task, cut

# Before the contract suites are imported, so that their failures show values.
pytest.register_assert_rewrite("mlsearch.testing")
from mlsearch.testing.runner_contract import ContractArtifacts  # noqa: E402

ARTIFACTS = Path(__file__).parent / "artifacts"


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """Compiles MLIR for this machine's CPU, untuned; gives the path of the artifact."""
    folder = tmp_path_factory.mktemp("artifacts")
    flags = resolve("llvm-cpu", 1).compile_flags

    def compile_file(module: Path) -> Path:
        artifact = folder / f"{module.stem}.vmfb"
        done = toolchain.run(toolchain.compile_argv(module, artifact, flags))
        assert done.returncode == 0, done.stderr[:2000]
        return artifact

    return compile_file


@pytest.fixture(scope="session")
def matmul_signature() -> Signature:
    """Of all functions in `artifacts/`: a 24x137 by 137x40 f32 matmul into a buffer of the caller's."""
    return Signature(
        function="task",
        inputs=(TensorSpec((24, 137), "f32"), TensorSpec((137, 40), "f32")),
        outputs=(TensorSpec((24, 40), "f32"),),
        out_buffers=(0,),
        reduction_length=137,
    )


@pytest.fixture(scope="session")
def matmul_artifacts(build: Callable[[Path], Path], matmul_signature: Signature) -> ContractArtifacts:
    """The matmul, untuned, and what can go wrong with it."""
    return ContractArtifacts(
        signature=matmul_signature,
        baseline=build(ARTIFACTS / "matmul.mlir"),
        reassociated=build(ARTIFACTS / "matmul_reassociated.mlir"),
        short_reduction=build(ARTIFACTS / "matmul_short_reduction.mlir"),
        half_written=build(ARTIFACTS / "matmul_half_written.mlir"),
        crashing=build(ARTIFACTS / "matmul_crashing.mlir"),
        hanging=build(ARTIFACTS / "matmul_hanging.mlir"),
        slow=build(ARTIFACTS / "matmul_slow.mlir"),
    )


CudaSpaces = Callable[[str, str], list[tuple[Task, Space]]]


@pytest.fixture(scope="session")
def cuda_spaces(tmp_path_factory: pytest.TempPathFactory) -> CudaSpaces:
    """The tasks of a payload's text on an architecture, with their spaces; laid out once for all tests."""
    known: dict[tuple[str, str], list[tuple[Task, Space]]] = {}

    def laid_out(text: str, architecture: str) -> list[tuple[Task, Space]]:
        if (text, architecture) not in known:
            target = resolve(f"cuda:{architecture}", 1)
            folder = tmp_path_factory.mktemp("cuda")
            (folder / "payload.mlir").write_text(text)
            tasks = cut(load_payload(folder / "payload.mlir", target, folder), target, folder)
            spaces = [space_of(task, templates_for(target, None), target) for task in tasks]
            found = [(task, space) for task, space in zip(tasks, spaces, strict=True) if isinstance(space, Space)]
            assert len(found) == len(tasks), spaces
            known[text, architecture] = found
        return known[text, architecture]

    return laid_out

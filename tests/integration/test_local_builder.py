"""The local builder: its contract, and what is special to processes on this machine."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

import pytest

from mlsearch.builder import Builder, LocalBuilder, local
from mlsearch.builder.local import _spoke
from mlsearch.candidate import BuildFailed, BuildTimeout, Built
from mlsearch.errors import MlsearchError, NoSpaceError
from mlsearch.testing.builder_contract import ENTRY, MARKING_LIBRARY, BuilderContract, RequestMaker
from mlsearch.toolchain import compile_argv

CONFIG_LIBRARY = """
module attributes {transform.with_named_sequence} {
  transform.named_sequence @match(%op: !transform.any_op {transform.readonly}) -> !transform.any_op {
    transform.match.operation_name %op ["linalg.matmul"] : !transform.any_op
    transform.yield %op : !transform.any_op
  }
  transform.named_sequence @apply(%op: !transform.any_op {transform.readonly}) {
    %info = transform.param.constant #iree_codegen.compilation_info<
        lowering_config = #iree_cpu.lowering_config<LEVELS>,
        translation_info = #iree_codegen.translation_info<pipeline = #iree_cpu.pipeline<PIPELINE>>
      > -> !transform.any_param
    transform.annotate %op "compilation_info" = %info : !transform.any_op, !transform.any_param
    transform.yield
  }
  transform.named_sequence @__kernel_config(%variant: !transform.any_op {transform.consumed}) {
    transform.foreach_match in %variant @match -> @apply : (!transform.any_op) -> !transform.any_op
    transform.yield
  }
}
"""


def config_library(levels: str, pipeline: str = "DoubleTilingExpert") -> str:
    return CONFIG_LIBRARY.replace("LEVELS", levels).replace("PIPELINE", pipeline)


def tiled_library(rows: int) -> str:
    return config_library(
        f"distribution = [16, 16, 0], vector_common_parallel = [{rows}, 16, 0], vector_reduction = [0, 0, 4]"
    )


class TestLocalBuilder(BuilderContract):
    flags = (
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        "--iree-llvmcpu-target-cpu=host",
    )

    def make_builder(self, workdir: Path) -> Builder:
        return LocalBuilder(workdir, jobs=2, memory_bytes=4 << 30)

    def test_two_workers_give_byte_equal_artifacts(self, request_for: RequestMaker, tmp_path: Path) -> None:
        artifacts = []
        for name in ("one", "another place"):
            [outcome] = self.build(tmp_path / name, request_for(name[:3], library=tiled_library(8)))
            assert isinstance(outcome, Built), outcome
            artifacts.append(outcome.artifact.read_bytes())
        assert artifacts[0] == artifacts[1]

    def test_one_worker_reads_each_requests_own_library(self, request_for: RequestMaker, tmp_path: Path) -> None:
        libraries = [tiled_library(8), tiled_library(4), None, tiled_library(8)]
        requests = [request_for(f"r{n}", library=library) for n, library in enumerate(libraries)]
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            outcomes = [outcome for _, outcome in builder.build(requests)]
        digests = [outcome.artifact_digest for outcome in outcomes if isinstance(outcome, Built)]
        assert len(digests) == 4, outcomes
        assert digests[0] == digests[3]
        assert len(set(digests)) == 3

    @pytest.mark.parametrize("library", [None, tiled_library(8)])
    def test_artifacts_are_those_of_the_command_line_compiler(
        self, library: str | None, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        # So the library that stands for "none" changes nothing, and neither does the stop to look at the IR.
        [outcome] = self.build(tmp_path, request_for("ours", library=library))
        assert isinstance(outcome, Built), outcome
        # The file's name as given ends up in the artifact.
        (tmp_path / "module.mlir").write_bytes(request_for.module.read_bytes())
        library_file = None
        if library is not None:
            library_file = tmp_path / "library.mlir"
            library_file.write_text(library)
        argv = compile_argv(
            Path("module.mlir"), Path("plain.vmfb"), self.flags, library=library_file, compile_from="flow"
        )
        subprocess.run(argv, cwd=tmp_path, check=True)
        assert outcome.artifact.read_bytes() == (tmp_path / "plain.vmfb").read_bytes()

    def test_a_schedule_that_races_fails_although_the_compiler_succeeds(
        self, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        racing = config_library(
            "distribution = [16, 16, 0], vector_common_parallel = [8, 16, 4], vector_reduction = [0, 0, 0]",
            "Mmt4dTilingExpert",
        )
        [outcome] = self.build(tmp_path, request_for("race", library=racing))
        assert isinstance(outcome, BuildFailed), outcome
        assert outcome.log is not None
        assert "tiling is not thread safe" in outcome.log.read_text()

    def test_success_leaves_the_artifact_only(self, request_for: RequestMaker, tmp_path: Path) -> None:
        workdir = tmp_path / "work"
        request = request_for("good", library=MARKING_LIBRARY, entries=(ENTRY,))
        self.build(workdir, request, request_for("absent", entries=("absent",)))
        assert [path.name for path in workdir.iterdir()] == ["good.vmfb"]

    def test_a_timeout_leaves_the_command_and_its_library_only(self, request_for: RequestMaker, tmp_path: Path) -> None:
        workdir = tmp_path / "work"
        [outcome] = self.build(workdir, request_for("slow", library=MARKING_LIBRARY, timeout_s=0.01))
        assert isinstance(outcome, BuildTimeout), outcome
        assert [path.name for path in workdir.iterdir()] == ["slow.library.mlir"]
        assert f"--iree-codegen-transform-dialect-library={workdir / 'slow.library.mlir'}" in outcome.argv

    def test_the_memory_limit_is_named(self, request_for: RequestMaker, tmp_path: Path) -> None:
        request = request_for("huge", module_text="")
        os.truncate(request.module, 4 << 30)  # takes no space on disk
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=2 << 30) as builder:
            [(_, outcome)] = builder.build([request])
            [(_, after)] = builder.build([request_for("after")])
        assert isinstance(outcome, BuildFailed), outcome
        assert "2048 MiB" in outcome.message
        assert isinstance(after, Built), after

    def test_a_full_disk_ends_the_run_with_one_line(self, request_for: RequestMaker, tmp_path: Path) -> None:
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            outcomes = builder.build([request_for("good"), request_for("full")])
            next(outcomes)
            builder._file(request_for("full"), "vmfb.part").symlink_to("/dev/full")
            with pytest.raises(MlsearchError, match=r"No space left on device; .* --workdir$"):
                next(outcomes)

    def test_a_compiler_that_dies_of_a_full_disk_ends_the_run(
        self, request_for: RequestMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Told by its last words, or, where its log was on that disk, by the disk."""
        last_words = f"LLVM ERROR: IO failure on output stream: {os.strerror(errno.ENOSPC)}"
        for said, is_full in ((last_words, False), ("", True)):
            worker = (
                "import os, sys, json; request = json.loads(sys.stdin.readline());"
                f" open(request['log'], 'w').write({said!r}); os.kill(os.getpid(), 7)"
            )
            monkeypatch.setattr("mlsearch.builder.local._WORKER", [sys.executable, "-c", worker])
            monkeypatch.setattr(local, "is_full", lambda folder, is_full=is_full: is_full)
            with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
                outcomes = builder.build([request_for("full")])
                with pytest.raises(NoSpaceError, match=r"No space left on device; .* --workdir$"):
                    next(outcomes)

    def test_a_worker_that_cannot_start_ends_the_run(
        self, request_for: RequestMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("mlsearch.builder.local._WORKER", "mlsearch.builder.no_such_worker")
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            outcomes = builder.build([request_for("good")])
            with pytest.raises(MlsearchError, match=r"does not start.*no_such_worker"):
                next(outcomes)

    @pytest.mark.parametrize(("jobs", "memory_bytes"), [(0, None), (1, 1 << 20)])
    def test_limits_that_let_nothing_be_built_are_refused(
        self, jobs: int, memory_bytes: int | None, tmp_path: Path
    ) -> None:
        with pytest.raises(ValueError, match="at least"):
            LocalBuilder(tmp_path, jobs, memory_bytes)

    def test_a_worker_that_dies_while_idle_is_replaced(self, request_for: RequestMaker, tmp_path: Path) -> None:
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            [_] = builder.build([request_for("first")])
            [worker] = _children()
            os.kill(worker, signal.SIGKILL)
            assert _spoke(builder._children, 60.0)  # its pipe is closed: it is gone
            [(_, outcome)] = builder.build([request_for("second")])
        assert isinstance(outcome, Built), outcome

    def test_an_idle_worker_stays_and_an_abandoned_one_is_killed(
        self, request_for: RequestMaker, tmp_path: Path
    ) -> None:
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            [_] = builder.build([request_for("first")])
            [worker] = _children()
            [_] = builder.build([request_for("second")])
            assert _children() == [worker]
            for _ in builder.build([request_for("third"), request_for("fourth")]):
                break  # the worker has begun the fourth
            assert _children() == []

    def test_an_interrupt_leaves_no_worker_busy(
        self, request_for: RequestMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupted(busy: object) -> NoReturn:
            raise KeyboardInterrupt

        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            outcomes = builder.build([request_for("first"), request_for("second")])
            next(outcomes)
            assert len(_children()) == 1
            with monkeypatch.context() as patch:
                patch.setattr(local, "_next_settled", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    next(outcomes)
            assert _children() == []
            assert [request.key for request, _ in builder.build([request_for("third")])] == ["third"]

    def test_closing_ends_all_workers(self, request_for: RequestMaker, tmp_path: Path) -> None:
        builder = self.make_builder(tmp_path)
        outcomes = builder.build([request_for(f"r{n}") for n in range(4)])
        next(outcomes)
        assert len(_children()) == 2
        builder.close()
        assert _children() == []

    def test_the_time_limit_holds_while_nobody_looks(self, request_for: RequestMaker, tmp_path: Path) -> None:
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            outcomes = builder.build([request_for("warm"), request_for("slow", timeout_s=0.01)])
            next(outcomes)
            limit = time.monotonic() + 30
            while _children() and time.monotonic() < limit:
                time.sleep(0.02)
            assert _children() == []
            assert isinstance(next(outcomes)[1], BuildTimeout)

    def test_an_answer_that_waited_is_no_timeout(
        self, request_for: RequestMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with LocalBuilder(tmp_path, jobs=1, memory_bytes=None) as builder:
            outcomes = builder.build([request_for("warm"), request_for("next", timeout_s=60.0)])
            next(outcomes)
            [worker] = builder._children
            assert _spoke([worker], 60.0) == [worker]
            an_hour_later = SimpleNamespace(monotonic=lambda: time.monotonic() + 3600.0)
            monkeypatch.setattr(local, "time", an_hour_later)
            assert isinstance(next(outcomes)[1], Built)


def _children() -> list[int]:
    """Process ids of this process's living children."""
    listed = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in listed if not _is_zombie(pid)]


def _is_zombie(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].startswith("Z")
    except FileNotFoundError:
        return True

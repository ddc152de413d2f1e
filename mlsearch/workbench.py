"""What every stage of a run works with: target, builder, runner, and a clock that tells where the time goes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from mlsearch import __version__
from mlsearch.builder import Builder, LocalBuilder
from mlsearch.candidate import (
    BuildOutcome,
    BuildRequest,
    Built,
    CacheState,
    CompareOutcome,
    CompareRequest,
    OverLimits,
    Provenance,
    RunOutcome,
    RunRequest,
    Spilled,
    TimingPlan,
)
from mlsearch.cuda.statics import examine
from mlsearch.errors import MlsearchError
from mlsearch.events import Step, Watcher
from mlsearch.runner import LocalRunner, Runner
from mlsearch.runner.exclusive import exclusive
from mlsearch.runner.timing import timing_method
from mlsearch.scratch import scratch_folder
from mlsearch.summary import TimeSpent
from mlsearch.target import Target, compiler_version, host_cores, runtime_version


@dataclass
class Stopwatch:
    """Wall-clock seconds of a run, by what they were spent on."""

    started: float = field(default_factory=time.monotonic)
    compile_s: float = 0.0
    measure_s: float = 0.0

    @property
    def wall_s(self) -> float:
        return time.monotonic() - self.started

    def spent(self) -> TimeSpent:
        wall = self.wall_s
        return TimeSpent(wall, self.compile_s, self.measure_s, wall - self.compile_s - self.measure_s)


@dataclass(frozen=True)
class Workbench:
    target: Target
    workdir: Path
    builder: Builder
    runner: Runner
    stopwatch: Stopwatch
    watch: Watcher
    seed: int
    cache: CacheState
    keeps_files: bool
    """The user named the folder, so all artifacts stay."""
    scope: str = ""
    """Keeps the artifacts of one variant of the payload apart from those of another."""

    def build(self, requests: list[BuildRequest]) -> Iterator[tuple[BuildRequest, BuildOutcome]]:
        """Outcomes as they come; the time that the caller takes in between is not counted as compiling."""
        outcomes = self.builder.build([replace(request, key=self.scope + request.key) for request in requests])
        while True:
            with self.compiling():
                outcome = next(outcomes, None)
            if outcome is None:
                return
            request, how = outcome
            yield replace(request, key=request.key.removeprefix(self.scope)), how

    def build_one(self, request: BuildRequest) -> BuildOutcome:
        [(_, outcome)] = self.build([request])
        return outcome

    def unfit(self, built: Built) -> Spilled | OverLimits | None:
        """Why an artifact is not worth running, or can't be; None if it may run."""
        if self.target.chip is None:
            return None
        statics = examine(built.artifact.read_bytes(), self.target.chip, built.compile_s)
        return statics if isinstance(statics, Spilled | OverLimits) else None

    def run(self, request: RunRequest) -> RunOutcome:
        with self._device(), self.measuring():
            return self.runner.run(request)

    def compare(self, request: CompareRequest) -> CompareOutcome:
        with self._device(), self.measuring():
            return self.runner.compare(request)

    def _device(self) -> AbstractContextManager[None]:
        """Two runs on one machine take turns at measuring."""
        return exclusive(self.target.device_uri, lambda text: self.watch(Step(text)))

    @contextmanager
    def compiling(self) -> Iterator[None]:
        """Seconds in here count as compiling."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.stopwatch.compile_s += time.monotonic() - begin

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """Seconds in here count as measuring."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.stopwatch.measure_s += time.monotonic() - begin

    def plan(self, **changes: object) -> TimingPlan:
        """How this run measures, with some fields changed."""
        fields: dict[str, object] = {
            "seed": self.seed,
            "threads": self.target.threads,
            "cache": self.cache,
            "method": timing_method(self.target.device_uri),
        }
        return TimingPlan(**{**fields, **changes})  # type: ignore[arg-type]

    def provenance(self, workload: str) -> Provenance:
        return Provenance(
            workload=workload,
            target=self.target.fingerprint,
            compiler=compiler_version(),
            runtime=runtime_version(),
            mlsearch=__version__,
            seed=self.seed,
            threads=self.target.threads,
            when=utc_now(),
            cache=self.cache,
        )


def utc_now() -> str:
    """ISO 8601, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_RUNNER_SHARE = 75
"""Percent of the machine's memory that a runner may take. Not on GPUs, whose drivers reserve address space at will."""
_BUILDER_MEMORY_BYTES = 8 * 1024**3


@contextmanager
def open_workbench(
    target: Target,
    watch: Watcher,
    *,
    jobs: int | None = None,
    seed: int = 0,
    cache: CacheState = "warm",
    workdir: Path | None = None,
) -> Iterator[Workbench]:
    """A workbench with a local builder and runner. `jobs`: compile processes, one per core if None. `workdir`: keeps
    all files; None: a temporary folder that is gone in the end."""
    with ExitStack() as stack:
        stopwatch = Stopwatch()
        folder = stack.enter_context(_work_folder(workdir))
        builder = stack.enter_context(LocalBuilder(folder, jobs or host_cores(), _BUILDER_MEMORY_BYTES))
        runner = stack.enter_context(
            LocalRunner(
                target.device_uri,
                threads=target.threads,
                log_folder=folder,
                llc_bytes=target.hardware.llc_bytes,
                # A payload that is too large for the machine then fails in its own process, and takes no other along.
                memory_bytes=None if target.chip is not None else _RUNNER_SHARE * _physical_bytes() // 100,
            )
        )
        yield Workbench(target, folder, builder, runner, stopwatch, watch, seed, cache, workdir is not None)


@contextmanager
def _work_folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MlsearchError(f"--workdir {folder}: {error.strerror}") from None
        yield folder.resolve()
        return
    with scratch_folder() as temporary:
        yield temporary


def _physical_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

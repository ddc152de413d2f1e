"""Measures what a bundle holds, on the machine that has the device."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch.bundle.archive import Bundle, open_bundle
from mlsearch.bundle.manifest import Manifest, TaskEntry
from mlsearch.bundle.measured import ArtifactMeasured, ArtifactsCompared, Line, MeasuredFile, WinnerCompared
from mlsearch.bundle.site import Conditions, Site, busy_reason, conditions, this_site, utc_now
from mlsearch.candidate import (
    Compared,
    CompareOutcome,
    CompareRequest,
    Measured,
    RunOutcome,
    RunRequest,
    RunTimeout,
    TimingPlan,
    median,
    reason,
)
from mlsearch.errors import BundleError, RunnerError
from mlsearch.runner import LocalRunner, Runner
from mlsearch.runner.exclusive import exclusive
from mlsearch.runner.local import WORKER
from mlsearch.runner.timing import timing_method
from mlsearch.scratch import scratch_folder
from mlsearch.target import measured_by

Say = Callable[[str], None]

GIVE_UP_FACTOR = 5.0
"""A candidate whose first run takes so many times the best is timed once and let go."""
FINALISTS = 4
FEWEST_ROUNDS, MOST_ROUNDS = 9, 41
_COMPARISON_S = 6.0
"""Aim of each comparison, for tasks that are not slow."""
_RESERVED_SHARE = 0.2
"""Of a time limit, kept for the comparisons."""
_SLOWED = 3.0
"""A round takes longer than its samples: untimed calls in between, and the larger batches of the slope method."""


@dataclass(frozen=True)
class MeasureOptions:
    bundle: Path
    output: Path
    max_time_s: float | None = None
    """For this call; None: until everything is measured."""
    device: str | None = None
    """IREE's URI; None: that of the bundle's target."""
    even_if_busy: bool = False
    worker: str | Sequence[str] = WORKER
    """Module or command that serves as the runner's process."""


@dataclass(frozen=True)
class Progress:
    measured: int
    """Artifacts with an outcome, those of earlier calls included."""
    of: int
    """All artifacts of the bundle."""
    compared: int
    """Tasks whose fastest candidates went through paired rounds, as they stand now."""
    tasks: int

    @property
    def is_complete(self) -> bool:
        return self.measured == self.of and self.compared == self.tasks


def measure_bundle(options: MeasureOptions, say: Say) -> Progress:
    """Measure what is not in `options.output` yet. Whatever ends it, each complete measurement is in the file.

    Raises BundleError for a bundle or a file that can't be used, RunnerError where nothing can be measured: a busy
    device, no runtime, or untuned builds that don't run.
    """
    with open_bundle(options.bundle) as bundle:
        manifest, uri = bundle.manifest, options.device or bundle.manifest.target.device_uri
        if options.output.resolve() == options.bundle.resolve():
            raise BundleError(f"the measurements would overwrite the bundle {options.bundle}; choose another -o")
        if _driver(uri) != _driver(manifest.target.device_uri):
            raise BundleError(f"--device {uri}: the bundle is for {manifest.target.device_uri}")
        method = manifest.plan.method if options.device is None else timing_method(uri)
        site = this_site(uri, method)
        _refuse_another_architecture(manifest, site, say)
        if site.runtime != manifest.compiler:
            say(f"warning: built by IREE {manifest.compiler}, run by IREE {site.runtime}: it may not load")
        with (
            exclusive(uri, say),
            MeasuredFile.open(options.output, bundle, site) as file,
            scratch_folder() as folder,
            _local_runner(options, manifest, site, folder) as runner,
        ):
            _refuse_if_busy(options, uri, say)
            plan = replace(manifest.plan, method=method)
            session = Session(bundle, file, runner, plan, folder, say, time.monotonic)
            return session.run(options.max_time_s)


def _driver(uri: str) -> str:
    """Of a CPU the URI itself: one thread in the caller and a pool of them take other times for the same code."""
    return uri.partition(":")[0]


def _refuse_another_architecture(manifest: Manifest, site: Site, say: Say) -> None:
    """Another product of the same architecture runs the same code, in its own time."""
    if manifest.target.chip is None or site.chip is None:
        return
    belongs_to = measured_by(manifest.target, site.chip)
    if belongs_to.chip != manifest.target.chip:
        assert belongs_to.chip is not None
        say(f"built for {manifest.target.chip.name}; the times will be those of {belongs_to.chip.name}")


def _refuse_if_busy(options: MeasureOptions, uri: str, say: Say) -> None:
    reason = busy_reason(uri)
    if reason is None:
        return
    if not options.even_if_busy:
        raise RunnerError(f"this machine is busy: {reason}; wait, or run with --even-if-busy")
    say(f"warning: this machine is busy: {reason}")


def _local_runner(options: MeasureOptions, manifest: Manifest, site: Site, folder: Path) -> LocalRunner:
    return LocalRunner(
        site.device,
        threads=manifest.plan.threads,
        log_folder=folder,
        llc_bytes=site.hardware.llc_bytes,
        worker=options.worker,
    )


class Session:
    """Untuned builds first, then candidates of all tasks in turn, then the fastest of each task in paired rounds."""

    def __init__(
        self,
        bundle: Bundle,
        file: MeasuredFile,
        runner: Runner,
        plan: TimingPlan,
        folder: Path,
        say: Say,
        clock: Callable[[], float],
    ) -> None:
        """`clock` gives seconds."""
        self._bundle, self._file, self._runner = bundle, file, runner
        self._plan, self._folder, self._say, self._clock = plan, folder, say, clock
        self._known = file.measurements
        self._tasks = bundle.manifest.tasks
        self._deadline: float | None = None

    def run(self, max_time_s: float | None) -> Progress:
        """Raises RunnerError if no task's untuned build runs."""
        self._deadline = None if max_time_s is None else self._clock() + max_time_s
        ready = self._baselines()
        reserved_s = 0.0 if max_time_s is None else _RESERVED_SHARE * max_time_s
        for task, artifact in _in_turn(ready):
            if (task.id, artifact) in self._known.runs:
                continue
            left_s = self._left_s() - reserved_s
            if left_s <= 0:
                break
            self._measure(task, artifact, left_s)
        self._finals(ready)
        return self._progress()

    # -------------------------------------------------------------------------------------- stages

    def _baselines(self) -> list[TaskEntry]:
        """Tasks whose untuned build runs. One that doesn't is tried again by the next call."""
        ready, problems = [], []
        for task in self._tasks:
            if (task.id, task.untuned) in self._known.runs:
                ready.append(task)
                continue
            if self._left_s() <= 0:
                break
            artifact = self._bundle.extract(task.untuned, self._folder)
            plan = replace(self._plan, timeout_s=300.0, give_up_us=None, max_seconds=max(0.6, self._plan.max_seconds))
            try:
                outcome = self._runner.run(RunRequest(artifact, artifact, task.signature, plan))
            except RunnerError as error:
                problems.append(f"task {task.id} ({task.label}): {error}")
                self._say(f"left out: {problems[-1]}")
                continue
            if isinstance(outcome, Measured):
                self._append(ArtifactMeasured(task.id, task.untuned, outcome, utc_now(), self._conditions()))
                ready.append(task)
            else:
                problems.append(f"task {task.id} ({task.label}): {_told(outcome)}")
                self._say(f"left out: {problems[-1]}")
        if problems and not ready:
            raise RunnerError(f"no untuned build runs here: {problems[0]}")
        return ready

    def _measure(self, task: TaskEntry, artifact: str, left_s: float) -> None:
        best_us = min(self._times_us(task).values())
        slowest_s = 1e-6 * self._times_us(task)[task.untuned]
        # Two checked runs, a warm-up, and the samples up to the point of giving up.
        timeout_s = 10.0 + 20.0 * slowest_s
        # What ends at the limit must not end a moment later; it may be measured by the next call.
        allowed_s = min(timeout_s, left_s)
        plan = replace(self._plan, give_up_us=GIVE_UP_FACTOR * best_us, timeout_s=allowed_s)
        path = self._bundle.extract(artifact, self._folder)
        try:
            outcome = self._runner.run(RunRequest(path, self._untuned(task), task.signature, plan))
        finally:
            path.unlink(missing_ok=True)
        if isinstance(outcome, RunTimeout) and allowed_s < timeout_s:
            return
        self._append(ArtifactMeasured(task.id, artifact, outcome, utc_now(), self._conditions()))

    def _finals(self, ready: Sequence[TaskEntry]) -> None:
        """The fastest of each task against the untuned build; then the best of them once more, alone with it."""
        open_tasks = [task for task in ready if self._finalists(task) and not self._is_decided(task)]
        for position, task in enumerate(open_tasks):
            left_s = self._left_s() / (len(open_tasks) - position)
            if not self._is_compared(task):
                outcome = self._compare(task, self._finalists(task), left_s / 2)
                if outcome is None:
                    continue
                self._append(ArtifactsCompared(task.id, self._finalists(task), outcome, utc_now(), self._conditions()))
            winner = self._winner(task)
            if winner is not None and not self._is_decided(task):
                outcome = self._compare(task, (task.untuned, winner), left_s / 2)
                if outcome is not None:
                    pair = (task.untuned, winner)
                    self._append(WinnerCompared(task.id, pair, outcome, utc_now(), self._conditions()))

    def _compare(self, task: TaskEntry, artifacts: Sequence[str], left_s: float) -> CompareOutcome | None:
        """None if there is no time for enough rounds."""
        times_us = [self._times_us(task)[artifact] for artifact in artifacts]
        rounds = rounds_for(times_us, left_s)
        if rounds is None:
            self._say(f"no time left to compare the fastest of {task.id} in paired rounds")
            return None
        paths = (self._untuned(task), *(self._bundle.extract(each, self._folder) for each in artifacts[1:]))
        plan = replace(self._plan, timeout_s=60.0 + 1e-6 * 4 * sum(times_us) * (MOST_ROUNDS + 4))
        return self._runner.compare(CompareRequest(paths, task.signature, plan, rounds))

    # --------------------------------------------------------------------------------------- state

    def _times_us(self, task: TaskEntry) -> dict[str, float]:
        """Of the task's artifacts that ran with right numbers."""
        return {
            artifact: run.outcome.time_us
            for (owner, artifact), run in self._known.runs.items()
            if owner == task.id and isinstance(run.outcome, Measured)
        }

    def _finalists(self, task: TaskEntry) -> tuple[str, ...]:
        """The untuned build and the fastest candidates; empty if none ran."""
        times_us = self._times_us(task)
        fastest = sorted((time_us, artifact) for artifact, time_us in times_us.items() if artifact != task.untuned)
        chosen = tuple(artifact for _, artifact in fastest[:FINALISTS])
        return (task.untuned, *chosen) if chosen else ()

    def _is_compared(self, task: TaskEntry) -> bool:
        """Also if that failed: once more would end the same."""
        last = self._known.comparisons.get(task.id)
        return last is not None and set(last.artifacts) == set(self._finalists(task))

    def _winner(self, task: TaskEntry) -> str | None:
        """The fastest in the rounds of all whose numbers were always right; None if there is none."""
        line = self._known.comparisons.get(task.id)
        if line is None or not isinstance(line.outcome, Compared):
            return None
        rounds = zip(line.artifacts[1:], line.outcome.samples_us[1:], line.outcome.numerics[1:], strict=True)
        right = sorted(
            (median(samples), artifact)
            for artifact, samples, own in rounds
            if own.agrees and (task.id, artifact) not in self._known.wrong
        )
        return right[0][1] if right else None

    def _is_decided(self, task: TaskEntry) -> bool:
        if not self._is_compared(task):
            return False
        winner, last = self._winner(task), self._known.winners.get(task.id)
        return winner is None or (last is not None and last.artifacts == (task.untuned, winner))

    def _untuned(self, task: TaskEntry) -> Path:
        path = self._folder / f"{task.untuned}.vmfb"
        return path if path.exists() else self._bundle.extract(task.untuned, self._folder)

    def _left_s(self) -> float:
        return float("inf") if self._deadline is None else self._deadline - self._clock()

    def _append(self, line: Line) -> None:
        self._file.append(line)
        progress = self._progress()
        if not isinstance(line, ArtifactMeasured):
            self._say(f"{line.task}: compared {len(line.artifacts) - 1} with the untuned build: {_told(line.outcome)}")
        else:
            self._say(f"[{progress.measured}/{progress.of}] {line.task} {line.artifact[:8]}: {_told(line.outcome)}")

    def _conditions(self) -> Conditions:
        return conditions(self._known.site.device)

    def _progress(self) -> Progress:
        return Progress(
            measured=len(self._known.runs),
            of=sum(len(task.artifacts) for task in self._tasks),
            compared=sum(self._is_decided(task) or self._has_no_finals(task) for task in self._tasks),
            tasks=len(self._tasks),
        )

    def _has_no_finals(self, task: TaskEntry) -> bool:
        is_measured = all((task.id, artifact) in self._known.runs for artifact in task.artifacts)
        return is_measured and not self._finalists(task)


def _in_turn(tasks: Sequence[TaskEntry]) -> Iterator[tuple[TaskEntry, str]]:
    """The first artifact of each task, then the second of each: a search that is cut off knows as much of all."""
    for place in range(max((len(task.artifacts) for task in tasks), default=0)):
        for task in tasks:
            if place < len(task.artifacts):
                yield task, task.artifacts[place]


def rounds_for(times_us: Sequence[float], left_s: float) -> int | None:
    """Rounds of a comparison; None if too few fit into `left_s` to prove anything."""
    round_s = max(1e-9, 1e-6 * sum(times_us))
    wanted = int(min(MOST_ROUNDS, max(FEWEST_ROUNDS, _COMPARISON_S / round_s)))
    # Short calls are measured in batches of a fraction of a millisecond.
    cost_s = _SLOWED * max(round_s, 1e-3 * len(times_us))
    affordable = wanted if left_s == float("inf") else min(wanted, int(left_s / cost_s))
    return affordable if affordable >= FEWEST_ROUNDS else None


def _told(outcome: RunOutcome | CompareOutcome) -> str:
    """An outcome in a few words."""
    if isinstance(outcome, Measured):
        return f"{outcome.time_us:.1f} us"
    if isinstance(outcome, Compared):
        return f"{len(outcome.samples_us[0])} rounds"
    return f"{type(outcome).__name__}: {reason(outcome)}"

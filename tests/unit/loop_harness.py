"""A task with a small space, and a machine that only pretends to compile and run, for tests of the loop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from small_templates import load, template_text
from spec_time_functions import matmul, read
from test_space import FITS

from mlsearch.candidate import (
    BuildOutcome,
    BuildRequest,
    Built,
    Candidate,
    CompareOutcome,
    CompareRequest,
    RunOutcome,
    RunRequest,
    Signature,
    TensorSpec,
)
from mlsearch.events import Event
from mlsearch.records.store import Store
from mlsearch.space.space import Space, build_space
from mlsearch.spec import SpecEntry
from mlsearch.summary import Speedup
from mlsearch.target import resolve
from mlsearch.task import Task
from mlsearch.testing.builders import FakeBuilder
from mlsearch.testing.runners import AnsweringRunner, measured
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.trials import Baseline, Limits, SearchResult, TaskSearch, measure_baseline
from mlsearch.workbench import Stopwatch, Workbench

TARGET = resolve("llvm-cpu", 1)
BASELINE_US = 1000.0


def small_task(folder: Path, m: int = 8) -> tuple[Task, Space]:
    """A matmul and the 11 candidates of one template."""
    view = read(matmul(m, 8, 8))
    template = load(folder / "templates", template_text(asserts=FITS))
    shape = TensorSpec((8, 8), "f32")
    task = Task(
        id="t0",
        functions=("main_dispatch_0",),
        sites=1,
        view=view,
        late_view=None,
        module=folder / "t0.mlir",
        signature=Signature("task", (shape, shape), (shape,), (0,), 8),
        not_tunable=None,
    )
    return task, build_space(view, [template], TARGET)


class Machine:
    """Pretends to be builder and runner. What it answers can be changed per candidate."""

    def __init__(self, folder: Path, time_us: Callable[[str], float] | None = None) -> None:
        """`time_us` by the key of a build; by default twice as fast as the baseline."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.time_us = time_us or (lambda key: BASELINE_US / 2)
        self.build_answers: dict[str, BuildOutcome] = {}
        self.run_answers: dict[str, RunOutcome] = {}
        self.digests: dict[str, str] = {}
        self.compare_answers: list[Callable[[CompareRequest], CompareOutcome]] = []
        """Used up one by one, before comparisons are made of what single runs say."""
        self.before_run: Callable[[], None] = lambda: None
        self.events: list[Event] = []
        self.builder = FakeBuilder(self._build)
        self.runner = AnsweringRunner(self._run, self._compare)
        self._plain = AnsweringRunner(self._run)
        self.bench = Workbench(
            TARGET, folder, self.builder, self.runner, Stopwatch(), self.events.append, 0, "warm", False
        )

    @property
    def built(self) -> list[str]:
        return [request.key for request in self.builder.asked]

    @property
    def run(self) -> Counter[str]:
        return Counter(request.artifact.stem for request in self.runner.requests)

    def _build(self, request: BuildRequest) -> BuildOutcome:
        if request.key in self.build_answers:
            return self.build_answers[request.key]
        artifact = self.folder / f"{request.key}.vmfb"
        artifact.write_text(request.key)
        return Built(artifact, self.digests.get(request.key, request.key), 0.5)

    def _run(self, request: RunRequest) -> RunOutcome:
        self.before_run()
        key = request.artifact.stem
        assert request.artifact.exists(), f"{key} is gone"
        if key in self.run_answers:
            return self.run_answers[key]
        time_us = BASELINE_US if key.endswith("-untuned") else self.time_us(key)
        return measured(time_us, baseline_us=(BASELINE_US,))

    def _compare(self, request: CompareRequest) -> CompareOutcome:
        if self.compare_answers:
            return self.compare_answers.pop(0)(request)
        return self._plain.compare(request)


def options(folder: Path, **changes: object) -> TuneOptions:
    plain = TuneOptions(
        payload=folder / "payload.mlir",
        target="llvm-cpu",
        trials=None,
        max_time_s=None,
        budget="quick",
        seed=0,
        function=None,
        store=str(folder / "store.journal"),
        study=None,
        output=folder / "out.spec.mlir",
        threads=1,
        jobs=2,
        templates=None,
        workdir=None,
        sampler="random",
        surrogate=False,
        cache="warm",
        variants="default",
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def new_search(
    machine: Machine, task: Task, space: Space, folder: Path, **changes: object
) -> tuple[TaskSearch, Baseline]:
    store = Store.open(folder / "store.journal")
    baseline = measure_baseline(machine.bench, task)
    return TaskSearch(machine.bench, store, options(folder, **changes), task, space, baseline), baseline


def search(
    machine: Machine, task: Task, space: Space, folder: Path, trials: int | None = 100, **changes: object
) -> SearchResult:
    return new_search(machine, task, space, folder, **changes)[0].run(Limits(trials, None), 1, 1)


def key_of(candidate: Candidate) -> str:
    return f"t0-{candidate.key}"


def times_by_candidate(space: Space, default: float, fast: Mapping[int, float]) -> Callable[[str], float]:
    """Candidate number `i` of the space takes `fast[i]`, all others `default`."""
    table = {key_of(candidate): fast.get(i, default) for i, candidate in enumerate(space)}
    return lambda key: table[key]


def spec_entry(task: Task, space: Space, number: int, *, name: str = "e", tuned_us: float = 500.0) -> SpecEntry:
    candidate = list(space)[number]
    speedup = Speedup(BASELINE_US, tuned_us, BASELINE_US / tuned_us, (1.5, 2.5))
    return SpecEntry(task.id, task.label, task.functions, 1, candidate, speedup, space.entry(name, candidate))

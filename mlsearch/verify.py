"""Hold a spec to what it promises: applied, numerically right, faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mlsearch import spec as specs
from mlsearch import target as targets
from mlsearch.candidate import (
    BuildRequest,
    Built,
    Compared,
    CompareRequest,
    Measured,
    Numerics,
    RunRequest,
    WrongResult,
    reason,
)
from mlsearch.errors import RunnerError, TaskError
from mlsearch.events import Step, Watcher
from mlsearch.payload import Payload, load_payload
from mlsearch.statistics import paired_speedup
from mlsearch.summary import SAME_CODE_SPREAD, Speedup, WholePayload
from mlsearch.target import Target
from mlsearch.task import Task, cut
from mlsearch.tune.finals import SECONDS, pair_plan
from mlsearch.tune.rounds import rounds_for
from mlsearch.tune.trials import Baseline, measure_baseline
from mlsearch.tune.whole import compare_functions, never_run, runnable_signatures
from mlsearch.variant import variant_of
from mlsearch.workbench import Workbench, open_workbench

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class EntryCheck:
    name: str
    applied_to: tuple[str, ...]
    """Dispatch functions of the payload."""
    numerics: Numerics | None
    """Of the worst task that it applies to, with poisoned outputs. None: it could not be run."""
    speedup: Speedup | None
    """Of the slowest such task, in paired runs."""
    problem: str | None


@dataclass(frozen=True)
class Verification:
    payload: str
    spec: str
    entries: tuple[EntryCheck, ...]
    whole: WholePayload | None
    problems: tuple[str, ...]
    """All reasons not to trust the spec; empty if it holds."""
    notes: tuple[str, ...]
    """What could not be checked."""

    @property
    def ok(self) -> bool:
        return not self.problems

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def verify(
    payload: Path, spec: Path, target: str, threads: int, seed: int, function: str | None, watch: Watcher
) -> Verification:
    """Check a spec, also one that was written by hand, against the untuned build of a payload.

    Raises MlsearchError where payload or spec can't even be read or compiled, and where the device is not.
    """
    plain = targets.require_device(targets.resolve(target, threads))
    text = specs.read_spec(spec)
    variant = variant_of(text, str(spec))
    resolved = variant.on(plain)
    with open_workbench(resolved, watch, seed=seed) as bench:
        watch(Step("compiling the payload to dispatches"))
        loaded = load_payload(payload, resolved, bench.workdir, function, variant)
        tasks = cut(loaded, resolved, bench.workdir)
        watch(Step("looking where the spec is applied"))
        found = specs.application(text, str(spec), payload, None, resolved, bench.workdir, loaded.preprocessing)
        checks = [_check_entry(bench, name, text, found, tasks) for name in found.entries]
        whole: WholePayload | None = None
        whole_problems: tuple[str, ...] = ()
        notes: tuple[str, ...] = ()
        if found.entries or not variant.is_default:
            watch(Step("checking and timing the whole payload"))
            untuned = loaded if variant.is_default else load_payload(payload, plain, bench.workdir / "plain", function)
            builds = ((untuned, plain, None), (loaded, resolved, text))
            whole, whole_problems, notes = _check_whole(bench, builds, tasks)
            notes = tuple(dict.fromkeys((*notes, *never_run(untuned))))
        if not variant.is_default:
            # It rewrites the whole payload, which no check of single dispatches covers.
            whole_problems += tuple(f"variant '{variant.name}' is not checked everywhere: {note}" for note in notes)
            notes = ()
    problems = [f"entry '{check.name}': {check.problem}" for check in checks if check.problem]
    problems += [*whole_problems, *_whole_problems(whole)]
    return Verification(str(payload), str(spec), tuple(checks), whole, tuple(problems), notes)


def _check_entry(bench: Workbench, name: str, text: str, found: specs.Application, tasks: Sequence[Task]) -> EntryCheck:
    functions = found.functions.get(name, ())
    if not functions:
        return EntryCheck(name, (), None, None, "it is applied to nothing")
    numerics: Numerics | None = None
    speedup: Speedup | None = None
    for task in (task for task in tasks if set(task.functions) & set(functions)):
        bench.watch(Step(f"checking {name} on {task.id} ({task.label})"))
        checked = _check_task(bench, task, text)
        if isinstance(checked, str):
            return EntryCheck(name, functions, numerics, speedup, f"on {task.label}: {checked}")
        own_numerics, own_speedup = checked
        if numerics is None or own_numerics.max_rel_error > numerics.max_rel_error:
            numerics = own_numerics
        if not own_numerics.agrees:
            return EntryCheck(
                name, functions, own_numerics, own_speedup, f"on {task.label}: {reason(WrongResult(own_numerics))}"
            )
        if own_speedup is not None and (speedup is None or own_speedup.speedup < speedup.speedup):
            speedup = own_speedup
    checked_functions = {name for task in tasks for name in task.functions}
    unchecked = [function for function in functions if function not in checked_functions]
    if unchecked:
        return EntryCheck(name, functions, numerics, speedup, f"it is applied to {unchecked[0]}, which was not checked")
    if speedup is not None and speedup.is_slower:
        return EntryCheck(name, functions, numerics, speedup, f"it is slower than untuned (x{speedup.speedup:.3f})")
    return EntryCheck(name, functions, numerics, speedup, None)


def _check_task(bench: Workbench, task: Task, text: str) -> tuple[Numerics, Speedup | None] | str:
    """Numbers and speedup of one dispatch alone, or why there are none."""
    if task.module is None or task.signature is None:
        return f"it can't be run alone: {task.not_tunable}"
    try:
        baseline = measure_baseline(bench, task)
    except (RunnerError, TaskError) as error:
        return str(error)
    request = BuildRequest(
        key=f"{task.id}-with-spec",
        module=task.module,
        library=text,
        entries=(),
        flags=bench.target.compile_flags,
        timeout_s=_TIMEOUT_S,
    )
    built = bench.build_one(request)
    if not isinstance(built, Built):
        return f"it does not compile alone: {reason(built)}"
    if built.artifact_digest == baseline.artifact_digest:
        return "it matches, but changes nothing: the code is the untuned build's; check the names of what it sets"
    plan = bench.plan(timeout_s=60.0 + 100e-6 * baseline.time_us, max_samples=5)
    outcome = bench.run(RunRequest(built.artifact, baseline.artifact, task.signature, plan))
    if isinstance(outcome, WrongResult):
        return outcome.numerics, None
    if not isinstance(outcome, Measured):
        return f"it does not run: {reason(outcome)}"
    return _pair(bench, task, baseline, built, outcome)


def _pair(
    bench: Workbench, task: Task, baseline: Baseline, built: Built, outcome: Measured
) -> tuple[Numerics, Speedup | None] | str:
    assert task.signature is not None
    times_us = [baseline.time_us, outcome.time_us]
    compared = bench.compare(
        CompareRequest(
            (baseline.artifact, built.artifact),
            task.signature,
            pair_plan(bench, times_us),
            rounds_for(times_us, SECONDS),
        )
    )
    if not isinstance(compared, Compared):
        return f"it could not be compared: {reason(compared)}"
    return outcome.numerics, paired_speedup(*compared.samples_us)


def _check_whole(
    bench: Workbench, builds: Sequence[tuple[Payload, Target, str | None]], tasks: Sequence[Task]
) -> tuple[WholePayload | None, tuple[str, ...], tuple[str, ...]]:
    """The whole payload with the spec; problems where it breaks with the spec; notes on what could not be checked.

    `builds`: the plain payload without a library, then the spec's variant of it with the spec.
    """
    longest = sum(task.workload.reduction_length for task in tasks if task.workload is not None)
    plain = builds[0][0]
    signatures = runnable_signatures(plain, max(1, longest))
    if not signatures:
        return None, (), ()  # the notes say why
    artifacts = []
    for payload, target, library in builds:
        key = "payload-with-spec" if library else "payload-untuned"
        request = BuildRequest(key, payload.flow_module, library, (), target.compile_flags, _TIMEOUT_S)
        built = bench.build_one(request)
        if not isinstance(built, Built):
            told = (f"the whole payload does not compile{' with the spec' if library else ''}: {reason(built)}",)
            return (None, told, ()) if library else (None, (), told)
        artifacts.append(built.artifact)
    try:
        compared = compare_functions(bench, tuple(artifacts), signatures)
    except RunnerError as error:
        return None, (), (str(error),)
    if isinstance(compared, str):
        return None, (f"the whole payload does not run with the spec: {compared}",), ()
    speedup = paired_speedup(*compared.samples_us)
    whole = WholePayload(speedup.baseline_us, speedup.tuned_us, speedup.speedup, speedup.ci95, compared.numerics[1], ())
    return whole, (), ()


def _whole_problems(whole: WholePayload | None) -> list[str]:
    if whole is None:
        return []
    problems = []
    if not whole.numerics.agrees:
        problems.append(f"the whole payload's numbers are wrong (relative error {whole.numerics.max_rel_error:.2g})")
    if whole.speedup_ci95[1] < 1.0 - SAME_CODE_SPREAD:
        problems.append(f"the whole payload is slower than untuned (x{whole.speedup:.3f})")
    return problems

"""A whole tuning run: payload in, spec out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch import __version__, spec
from mlsearch import target as targets
from mlsearch.errors import MlsearchError, SpecError
from mlsearch.events import Finished, Step, TaskDone, TasksFound, Warn, Watcher, WholeDone
from mlsearch.files import write_atomically
from mlsearch.ir import library
from mlsearch.payload import Payload, load_payload
from mlsearch.records.store import Store
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import Template, templates_for
from mlsearch.spec import Application, SpecEntry
from mlsearch.statistics import drift
from mlsearch.summary import TaskSummary, TuneSummary
from mlsearch.target import compiler_version, runtime_version
from mlsearch.task import Task, cut
from mlsearch.toolchain import library_argument
from mlsearch.tune.finals import Winner, decide
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.summaries import sum_of_tasks, summarize_task
from mlsearch.tune.trials import Baseline, Limits, SearchResult, TaskSearch, measure_baseline
from mlsearch.tune.whole import Confirmed, confirm
from mlsearch.workbench import Workbench, open_workbench, utc_now

_DRIFT_WORTH_A_WORD = 0.25


@dataclass(frozen=True)
class Prepared:
    """A task that can be tuned."""

    task: Task
    space: Space
    baseline: Baseline

    @property
    def weight_us(self) -> float:
        """What it takes of the untuned payload's time."""
        return self.task.sites * self.baseline.time_us


@dataclass(frozen=True)
class Tuned:
    """A task after its search and its finals."""

    prepared: Prepared
    result: SearchResult
    winner: Winner | None
    note: str


def tune(options: TuneOptions, watch: Watcher) -> TuneSummary:
    """Tune a payload and write its spec to `options.output`.

    Ctrl-C ends the search; what was found until then still goes through the finals and into the spec. Raises
    MlsearchError where the run can't go on; all trials up to there are in the store.
    """
    target = targets.resolve(options.target, options.threads)
    targets.require_device(target)
    library_argument(options.output)  # now rather than when the spec is there and can't be used
    templates = templates_for(target, options.templates)
    watch(Step("opening the record store"))
    store = Store.open(options.store)
    if store.cut_bytes:
        watch(Warn(f"{store.location}: cut {store.cut_bytes} bytes of a record that a killed run left behind"))
    with open_workbench(
        target,
        watch,
        jobs=options.jobs,
        seed=options.seed,
        cache=options.cache,
        workdir=options.workdir,
    ) as bench:
        return _Run(bench, store, options, templates).tune()


class _Run:
    """The stages of one run, in order, and what they share."""

    def __init__(self, bench: Workbench, store: Store, options: TuneOptions, templates: Sequence[Template]) -> None:
        self._bench, self._store, self._options, self._templates = bench, store, options, templates
        self._watch = bench.watch
        self._interrupted = False

    def tune(self) -> TuneSummary:
        options, target = self._options, self._bench.target
        self._watch(Step("compiling the payload to dispatches"))
        with self._bench.compiling():
            payload = load_payload(options.payload, target, self._bench.workdir, options.function)
            self._watch(Step("cutting the payload into tasks"))
            tasks = cut(payload, target, self._bench.workdir)
        prepared, idle = self._prepare(tasks)
        fresh = {each.task.id: summarize_task(each.task, each.baseline, None, None) for each in prepared}
        self._watch(TasksFound(_in_order(tasks, {**fresh, **idle})))

        tuned = self._search_all(prepared)
        entries = [_entry(each) for each in tuned if each.winner and each.winner.speedup.is_faster]
        confirmed = self._confirm(payload, tasks, entries)
        confirmed, proof = self._prove(payload, confirmed)

        if self._interrupted and _entry_count(options.output) > len(confirmed.entries):
            # What an earlier run has proven does not give way to what this one came to.
            self._watch(Warn(f"{options.output} is left as it was: it holds more entries than were proven now"))
        else:
            self._watch(Step("writing the spec"))
            write_atomically(options.output, self._spec_text(confirmed))
        searched = {summary.id: summary for summary in _summaries(tuned, confirmed, proof)}
        for each in searched.values():
            self._watch(TaskDone(each))
        summary = self._summary(_in_order(tasks, {**fresh, **idle, **searched}), confirmed, _notes(payload, tuned))
        self._watch(Finished(summary))
        return summary

    def _prepare(self, tasks: Sequence[Task]) -> tuple[list[Prepared], dict[str, TaskSummary]]:
        """Tasks that can be tuned, the weightiest first, and summaries of the others with the reason."""
        prepared: list[Prepared] = []
        idle: dict[str, TaskSummary] = {}
        for task in tasks:
            self._watch(Step(f"measuring {task.id} ({task.label}) untuned"))
            space = space_of(task, self._templates, self._bench.target)
            try:
                if isinstance(space, str):
                    raise MlsearchError(space)
                if space.note:
                    self._watch(Warn(space.note))
                prepared.append(Prepared(task, space, measure_baseline(self._bench, task)))
            except MlsearchError as reason:
                idle[task.id] = summarize_task(task, None, None, None, not_tunable=str(reason))
        return sorted(prepared, key=lambda each: -each.weight_us), idle

    def _search_all(self, prepared: Sequence[Prepared]) -> list[Tuned]:
        """Search and decide task by task, until the user has enough."""
        tuned: list[Tuned] = []
        seconds_left = self._options.max_time_s
        for position, each in enumerate(prepared):
            if self._interrupted:
                break
            share = each.weight_us / sum(other.weight_us for other in prepared[position:])
            limits = Limits(self._options.trials_per_task, None if seconds_left is None else share * seconds_left)
            tuned.append(self._tune_one(each, limits, position + 1, len(prepared)))
            if seconds_left is not None:
                seconds_left = max(0.0, seconds_left - tuned[-1].result.searched_s)
        return tuned

    def _tune_one(self, each: Prepared, limits: Limits, position: int, of: int) -> Tuned:
        search = TaskSearch(self._bench, self._store, self._options, each.task, each.space, each.baseline)
        try:
            result = search.run(limits, position, of)
        except KeyboardInterrupt:
            self._interrupted = True
            result = search.result()
            self._watch(Warn("stopping: what was found so far still goes through the paired runs"))
        self._watch(Step(f"comparing the best candidates of {each.task.id} in paired runs"))
        try:
            winner = decide(self._bench, each.task, each.space, each.baseline, result.best)
        except KeyboardInterrupt:
            self._interrupted = True
            winner = "stopped before the paired runs"
        if isinstance(winner, str):
            return Tuned(each, result, None, winner)
        low, high = winner.speedup.ci95
        note = "" if winner.speedup.is_faster else f"not proven faster (95 % interval {low:.2f} to {high:.2f})"
        return Tuned(each, result, winner, note)

    def _confirm(self, payload: Payload, tasks: Sequence[Task], entries: Sequence[SpecEntry]) -> Confirmed:
        self._watch(Step("checking and timing the whole payload"))
        longest = sum(task.workload.reduction_length for task in tasks if task.workload is not None)
        try:
            confirmed = confirm(self._bench, payload, entries, max(1, longest))
        except KeyboardInterrupt:
            self._interrupted = True
            return Confirmed(tuple(entries), None, "stopped before the whole payload was built")
        self._interrupted |= confirmed.interrupted
        if confirmed.whole is not None:
            self._watch(WholeDone(confirmed.whole))
        for entry, reason in confirmed.dropped:
            self._watch(Warn(f"{entry.name} is left out of the spec: {reason}"))
        return confirmed

    def _prove(self, payload: Payload, confirmed: Confirmed) -> tuple[Confirmed, Application]:
        """Plain `iree-compile` on the user's own file, from its beginning: an entry that does not fire is dropped."""
        self._watch(Step("proving that the spec is applied"))
        with self._bench.compiling():
            proof = spec.application(
                self._spec_text(confirmed), "the spec", payload.path, None, self._bench.target, self._bench.workdir
            )
        for entry in confirmed.entries:
            elsewhere = set(proof.functions.get(entry.name, ())) - set(entry.functions)
            if elsewhere:
                self._watch(Warn(f"{entry.name} also fits {', '.join(sorted(elsewhere))}, where it was not measured"))
        for entry in [entry for entry in confirmed.entries if entry.name in proof.unused]:
            reason = "it fires on the task alone, but not when the payload is compiled from its beginning"
            self._watch(Warn(f"{entry.name} is left out of the spec: {reason}"))
            confirmed = replace(
                confirmed,
                whole=None,
                note=f"it was timed with {entry.name}, which is left out",
                entries=tuple(other for other in confirmed.entries if other is not entry),
                dropped=(*confirmed.dropped, (entry, reason)),
            )
        return confirmed, proof

    def _spec_text(self, confirmed: Confirmed) -> str:
        return spec.spec_text(
            confirmed.entries, self._options.payload, self._bench.target, utc_now(), _whole_line(confirmed)
        )

    def _summary(self, tasks: tuple[TaskSummary, ...], confirmed: Confirmed, notes: tuple[str, ...]) -> TuneSummary:
        target, whole = self._bench.target, confirmed.whole
        total = whole or sum_of_tasks(tasks)
        return TuneSummary(
            version=__version__,
            compiler=compiler_version(),
            runtime=runtime_version(),
            target=target.backend,
            target_fingerprint=target.fingerprint,
            hardware=target.hardware.name,
            threads=target.threads,
            payload=str(self._options.payload),
            spec=str(self._options.output),
            seed=self._options.seed,
            baseline_us=total.baseline_us if total else None,
            tuned_us=total.tuned_us if total else None,
            speedup=total.speedup if total else None,
            speedup_ci95=whole.speedup_ci95 if whole else None,
            whole_payload=whole,
            whole_payload_note=confirmed.note,
            tasks=tasks,
            time=self._bench.stopwatch.spent(),
            interrupted=self._interrupted,
            notes=notes,
        )


def _whole_line(confirmed: Confirmed) -> str:
    whole = confirmed.whole
    if whole is None:
        return f"not checked: {confirmed.note}"
    return (
        f"{whole.baseline_us:.1f} us -> {whole.tuned_us:.1f} us, {whole.speedup:.2f}x"
        f" (95 % interval {whole.speedup_ci95[0]:.2f} to {whole.speedup_ci95[1]:.2f}), numbers agree"
    )


def _entry_count(path: Path) -> int:
    """Entries of the spec at `path`; 0 if there is none that can be read."""
    try:
        return len(library.instrumented(spec.read_spec(path), str(path))[1])
    except SpecError:
        return 0


def _in_order(tasks: Sequence[Task], summaries: dict[str, TaskSummary]) -> tuple[TaskSummary, ...]:
    return tuple(summaries[task.id] for task in tasks)


def _entry(tuned: Tuned) -> SpecEntry:
    winner, task = tuned.winner, tuned.prepared.task
    assert winner is not None
    text = tuned.prepared.space.entry(task.entry_name, winner.candidate)
    return SpecEntry(task.id, task.label, task.functions, task.sites, winner.candidate, winner.speedup, text)


def _summaries(tuned: Sequence[Tuned], confirmed: Confirmed, proof: Application) -> list[TaskSummary]:
    kept = {entry.task for entry in confirmed.entries}
    reasons = {entry.task: reason for entry, reason in confirmed.dropped}
    return [
        summarize_task(
            each.prepared.task,
            each.prepared.baseline,
            each.result,
            each.winner,
            kept=each.prepared.task.id in kept,
            applied=proof,
            note=reasons.get(each.prepared.task.id, each.note),
        )
        for each in tuned
    ]


def _notes(payload: Payload, tuned: Sequence[Tuned]) -> tuple[str, ...]:
    notes = [
        f"function {function.name!r} is not part of the whole payload's time: {function.problem}"
        for function in payload.functions
        if function.problem
    ]
    for each in tuned:
        moved = drift(each.result.baseline_samples_us)
        if moved > _DRIFT_WORTH_A_WORD:
            notes.append(
                f"{each.prepared.task.id}: this machine's speed moved by {100 * moved:.0f} % during the search; "
                "the decision was made by paired runs, but times of single trials are less sure"
            )
    return tuple(notes)

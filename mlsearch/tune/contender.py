"""One variant of the payload on its way through a run: cut, measured, searched, decided, confirmed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

from mlsearch import spec, toolchain
from mlsearch.candidate import Candidate
from mlsearch.errors import MlsearchError, RunnerError, TaskError
from mlsearch.events import Event, Step, Warn, Watcher, of_variant
from mlsearch.payload import Payload, load_payload
from mlsearch.records.store import Store
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import Template
from mlsearch.spec import Application, SpecEntry
from mlsearch.statistics import drift
from mlsearch.summary import Speedup, TaskSummary
from mlsearch.task import Task, cut
from mlsearch.tune.finals import Winner, decide
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.summaries import summarize_task
from mlsearch.tune.trials import Baseline, Limits, SearchResult, TaskSearch, measure_baseline
from mlsearch.tune.whole import Confirmed, confirm
from mlsearch.variant import Variant
from mlsearch.workbench import Workbench, utc_now

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
    """A task after its search, and after its finals if it had any."""

    prepared: Prepared
    result: SearchResult
    winner: Winner | None = None
    note: str = "stopped before the paired runs"

    @property
    def gain_us(self) -> float:
        """What the search's own times promise for the whole payload, all sites together; 0 if nothing was faster."""
        best = self.result.best[:1]
        return self.prepared.task.sites * max(0.0, self.prepared.baseline.time_us - best[0].time_us) if best else 0.0


class Contender:
    """The stages of one variant, in order: load, cut, prepare, search as often as there is budget for, decide,
    confirm. Ctrl-C ends the search, the decision and the confirmation early and sets `interrupted`; before those it
    goes through."""

    def __init__(
        self, variant: Variant, bench: Workbench, store: Store, options: TuneOptions, templates: Sequence[Template]
    ) -> None:
        """`bench` is the run's own; the variant's flags, its folder, and its name in all that is told of it are seen
        to here."""
        self.variant = variant
        if not variant.is_default:
            bench = replace(
                bench,
                target=variant.on(bench.target),
                workdir=bench.workdir / variant.name,
                scope=f"{variant.name}-",
                watch=_naming(variant.name, bench.watch),
            )
        self.bench, self._store, self._options, self._templates = bench, store, options, templates
        self.payload: Payload
        self.tasks: tuple[Task, ...] = ()
        self.interrupted = False
        self._prepared: list[Prepared] = []
        self._searches: dict[str, TaskSearch] = {}
        self._idle: dict[str, TaskSummary] = {}
        self._tuned: dict[str, Tuned] = {}

    def load(self) -> None:
        """Compile the variant to dispatches. Raises PayloadError."""
        with self.bench.compiling():
            self.payload = load_payload(
                self._options.payload, self.bench.target, self.bench.workdir, self._options.function, self.variant
            )

    def cut(self) -> None:
        """Its dispatches become tasks. Raises MlsearchError."""
        self._step("cutting the payload into tasks")
        with self.bench.compiling():
            self.tasks = tuple(cut(self.payload, self.bench.target, self.bench.workdir))

    def prepare(self) -> None:
        """Measure the tasks that can be tuned, the weightiest first; others go with the reason. Raises
        MlsearchError if nothing can be built here."""
        for task in self.tasks:
            self._step(f"measuring {task.id} ({task.label}) untuned")
            space = space_of(task, self._templates, self.bench.target)
            if isinstance(space, str):
                self._idle[task.id] = summarize_task(task, None, None, None, not_tunable=space)
                continue
            if space.note:
                self.bench.watch(Warn(space.note))
            try:
                self._prepared.append(Prepared(task, space, measure_baseline(self.bench, task)))
            except (TaskError, RunnerError) as reason:
                self._idle[task.id] = summarize_task(task, None, None, None, not_tunable=str(reason))
        self._prepared.sort(key=lambda each: -each.weight_us)

    @property
    def reduction_length(self) -> int:
        """Of all tasks one after the other: what errors of the whole payload may add up over."""
        return max(1, sum(task.workload.reduction_length for task in self.tasks if task.workload is not None))

    @property
    def can_search(self) -> bool:
        """Some task of it can be tuned."""
        return bool(self._prepared)

    @property
    def is_searched(self) -> bool:
        """It has had a search, however short."""
        return bool(self._tuned)

    @property
    def has_trials(self) -> bool:
        """Its searches had the time for a candidate beside the untuned build."""
        return any(each.result.trials > 1 for each in self._tuned.values())

    @property
    def searched_s(self) -> float:
        """Spent on the search of all tasks, earlier runs included."""
        return sum(each.result.searched_s for each in self._tuned.values())

    @property
    def gain_us(self) -> float:
        """What the search's own times promise for the whole payload, without finals."""
        return sum(each.gain_us for each in self._in_turn())

    @property
    def untuned_us(self) -> float:
        """What the tasks that can be tuned take untuned, one after the other."""
        return sum(each.weight_us for each in self._prepared)

    @property
    def drafts(self) -> list[SpecEntry]:
        """The fastest of the search, as far as it was faster than the untuned build there. Nothing of it is proven."""
        return [_draft(each) for each in self._in_turn() if each.gain_us > 0]

    @property
    def entries(self) -> list[SpecEntry]:
        """The winners that are proven faster."""
        return [
            _entry(each, each.winner.candidate, each.winner.speedup)
            for each in self._in_turn()
            if each.winner and each.winner.speedup.is_faster
        ]

    @property
    def workloads(self) -> list[str]:
        """What the tasks compute, in program order."""
        return [task.workload.key if task.workload is not None else "" for task in self.tasks]

    # ------------------------------------------------------------------------------------- search

    def search(self, limits: Limits) -> None:
        """Search task by task, the weightiest first, until the limits are reached or the user has enough. With wider
        limits it goes on where it ended.

        `limits.trials` is meant per task; `limits.seconds` for all tasks, earlier searches included.
        """
        is_announced = False
        seconds_left = limits.seconds
        for position, each in enumerate(self._prepared):
            if self.interrupted:
                break
            share = each.weight_us / sum(other.weight_us for other in self._prepared[position:])
            own = Limits(limits.trials, None if seconds_left is None else share * seconds_left)
            search = self._search_of(each)
            if not (is_announced or search.has_reached(own)):
                self._step("searching schedules")
                is_announced = True
            result = self._run(search, own, position + 1)
            self._tuned[each.task.id] = Tuned(each, result)
            if seconds_left is not None:
                seconds_left = max(0.0, seconds_left - result.searched_s)

    def _search_of(self, each: Prepared) -> TaskSearch:
        if each.task.id not in self._searches:
            self._searches[each.task.id] = TaskSearch(
                self.bench, self._store, self._options, each.task, each.space, each.baseline
            )
        return self._searches[each.task.id]

    def _run(self, search: TaskSearch, limits: Limits, position: int) -> SearchResult:
        try:
            return search.run(limits, position, len(self._prepared))
        except KeyboardInterrupt:
            self.interrupted = True
            self.bench.watch(Warn("stopping: what was found so far still goes through the paired runs"))
            return search.result()

    # ----------------------------------------------------------------------------------- decision

    def decide(self) -> bool:
        """Each task's best candidates in paired runs; false if the user has stopped them."""
        for each in self._in_turn():
            try:
                self._tuned[each.prepared.task.id] = self._decided(each)
            except KeyboardInterrupt:
                self.interrupted = True
                return False
        return True

    def _decided(self, each: Tuned) -> Tuned:
        task = each.prepared.task
        self._step(f"comparing the best candidates of {task.id} in paired runs")
        winner = decide(self.bench, task, each.prepared.space, each.prepared.baseline, each.result.best)
        if isinstance(winner, str):
            return replace(each, winner=None, note=winner)
        low, high = winner.speedup.ci95
        note = "" if winner.speedup.is_faster else f"not proven faster (95 % interval {low:.2f} to {high:.2f})"
        return replace(each, winner=winner, note=note)

    def confirm(self) -> Confirmed:
        """The variant with all its entries against the variant without."""
        return self._confirmed(self.entries)

    def _confirmed(self, entries: Sequence[SpecEntry]) -> Confirmed:
        self._step("checking and timing the whole payload")
        try:
            confirmed = confirm(self.bench, self.payload, entries, self.reduction_length, self.untuned_us)
        except KeyboardInterrupt:
            self.interrupted = True
            return Confirmed(tuple(entries), None, "stopped before the whole payload was built")
        self.interrupted |= confirmed.interrupted
        for entry, reason in confirmed.dropped:
            self.bench.watch(Warn(f"{entry.name} is left out of the spec: {reason}"))
        return confirmed

    def prove(self, confirmed: Confirmed, text: str) -> tuple[Confirmed, Application]:
        """Plain `iree-compile` on the user's own file, from its beginning, with the spec's `text`: an entry that does
        not fire is dropped."""
        self._step("proving that the spec is applied")
        with self.bench.compiling():
            proof = spec.application(
                text,
                "the spec",
                self.payload.path,
                None,
                self.bench.target,
                self.bench.workdir,
                self.payload.preprocessing,
            )
        for entry in confirmed.entries:
            elsewhere = set(proof.functions.get(entry.name, ())) - set(entry.functions)
            if elsewhere:
                told = f"{entry.name} also fits {', '.join(sorted(elsewhere))}, where it was not measured"
                self.bench.watch(Warn(told))
        unfired = [entry for entry in confirmed.entries if entry.name in proof.unused]
        return self._without(confirmed, unfired) if unfired else confirmed, proof

    def _without(self, confirmed: Confirmed, unfired: Sequence[SpecEntry]) -> Confirmed:
        """What stays is confirmed anew, unless the time that is known is without these entries already."""
        for entry in unfired:
            self.bench.watch(Warn(f"{entry.name} is left out of the spec: {spec.NEVER_FIRES}"))
        rest = tuple(entry for entry in confirmed.entries if entry not in unfired)
        dropped = (*confirmed.dropped, *((entry, spec.NEVER_FIRES) for entry in unfired))
        if confirmed.whole is None or confirmed.is_shipped:
            left = replace(confirmed, entries=rest)
        else:
            left = self._confirmed(rest)
            dropped += left.dropped
        whole = left.whole and replace(left.whole, dropped=tuple(entry.name for entry, _ in dropped))
        return replace(left, whole=whole, dropped=dropped)

    def ship(self, confirmed: Confirmed, bench: Workbench) -> Path:
        """The payload built by plain `iree-compile` from the user's own file, with what the spec will hold. `bench` is
        the run's own. Raises MlsearchError."""
        draft = self.bench.workdir / "shipped.spec.mlir"
        draft.write_text(spec_file_text(self, confirmed, self.payload.path, bench, utc_now()))
        output = self.bench.workdir / "shipped.vmfb"
        argv = toolchain.compile_argv(
            self.payload.path,
            output,
            self.bench.target.compile_flags,
            library=draft if confirmed.entries else None,
            preprocessing=self.payload.preprocessing,
        )
        with self.bench.compiling():
            done = toolchain.run(argv)
        if done.returncode or not output.is_file():
            raise MlsearchError(f"variant {self.variant.name} does not compile from the beginning: {done.headline}")
        return output

    # ---------------------------------------------------------------------------------- summaries

    def found(self) -> tuple[TaskSummary, ...]:
        """All tasks before their search, in program order."""
        fresh = {each.task.id: summarize_task(each.task, each.baseline, None, None) for each in self._prepared}
        return tuple({**fresh, **self._idle}[task.id] for task in self.tasks)

    def searched(self, confirmed: Confirmed, proof: Application) -> tuple[TaskSummary, ...]:
        """The tasks that were searched, with what became of them, in the order of the search."""
        kept = {entry.task for entry in confirmed.entries}
        reasons = {entry.task: reason for entry, reason in confirmed.dropped}
        return tuple(
            summarize_task(
                each.prepared.task,
                each.prepared.baseline,
                each.result,
                each.winner,
                kept=each.prepared.task.id in kept,
                applied=proof,
                note=reasons.get(each.prepared.task.id, each.note),
            )
            for each in self._in_turn()
        )

    def notes(self) -> tuple[str, ...]:
        notes = [
            f"function {function.name!r} is not part of the whole payload's time: {function.problem}"
            for function in self.payload.functions
            if function.problem
        ]
        for each in self._in_turn():
            moved = drift(each.result.baseline_samples_us)
            if moved > _DRIFT_WORTH_A_WORD:
                notes.append(
                    f"{each.prepared.task.id}: this machine's speed moved by {100 * moved:.0f} % during the search; "
                    "the decision was made by paired runs, but times of single trials are less sure"
                )
        return tuple(notes)

    def _in_turn(self) -> list[Tuned]:
        return [self._tuned[each.task.id] for each in self._prepared if each.task.id in self._tuned]

    def _step(self, text: str) -> None:
        self.bench.watch(Step(text))


def _naming(variant: str, watch: Watcher) -> Watcher:
    def tell(event: Event) -> None:
        watch(of_variant(event, variant))

    return tell


def spec_file_text(contender: Contender, confirmed: Confirmed, payload: Path, bench: Workbench, when: str) -> str:
    """The spec of a contender; `bench` is the run's own, whose target is without the variant's flags."""
    return spec.spec_text(confirmed.entries, payload, bench.target, when, _whole_line(confirmed), contender.variant)


def _whole_line(confirmed: Confirmed) -> str:
    whole = confirmed.whole
    if whole is None:
        return f"not checked: {confirmed.note}"
    return (
        f"{whole.baseline_us:.1f} us -> {whole.tuned_us:.1f} us, {whole.speedup:.2f}x"
        f" (95 % interval {whole.speedup_ci95[0]:.2f} to {whole.speedup_ci95[1]:.2f}), numbers agree"
    )


def _entry(tuned: Tuned, candidate: Candidate, speedup: Speedup) -> SpecEntry:
    task = tuned.prepared.task
    text = tuned.prepared.space.entry(task.entry_name, candidate)
    return SpecEntry(task.id, task.label, task.functions, task.sites, candidate, speedup, text)


def _draft(tuned: Tuned) -> SpecEntry:
    """Of the fastest candidate, with an interval that claims nothing."""
    best, untuned_us = tuned.result.best[0], tuned.prepared.baseline.time_us
    unproven = Speedup(untuned_us, best.time_us, untuned_us / best.time_us, (0.0, inf))
    return _entry(tuned, best.candidate, unproven)

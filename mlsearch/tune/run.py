"""A whole tuning run: payload in, spec out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mlsearch import __version__
from mlsearch import target as targets
from mlsearch.errors import MlsearchError
from mlsearch.events import Finished, Step, TaskDone, TasksFound, Warn, Watcher, WholeDone, warning_once
from mlsearch.files import write_atomically
from mlsearch.records.store import Store
from mlsearch.space.template import Template, templates_for
from mlsearch.summary import TaskSummary, TuneSummary
from mlsearch.target import compiler_version, runtime_version
from mlsearch.toolchain import library_argument
from mlsearch.tune.contender import Contender, spec_file_text
from mlsearch.tune.contest import Contest, Verdict
from mlsearch.tune.earlier import EarlierSpec
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.summaries import sum_of_tasks
from mlsearch.tune.trials import Limits
from mlsearch.tune.whole import Confirmed, never_run
from mlsearch.variant import DEFAULT, Variant, variants_for
from mlsearch.workbench import Workbench, open_workbench, utc_now


def tune(options: TuneOptions, watch: Watcher) -> TuneSummary:
    """Tune a payload and write its spec to `options.output`.

    Ctrl-C ends the search; what was found until then still goes through the finals and into the spec. Raises
    MlsearchError where the run can't go on; all trials up to there are in the store.
    """
    watch = warning_once(watch)
    target = targets.require_device(targets.resolve(options.target, options.threads))
    library_argument(options.output)  # now rather than when the spec is there and can't be used
    templates = templates_for(target, options.templates)
    variants = variants_for(target, options.templates, options.variants)
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
        return _Run(bench, store, options, templates, variants).tune()


class _Run:
    """The stages of one run, in order, and what they share."""

    def __init__(
        self,
        bench: Workbench,
        store: Store,
        options: TuneOptions,
        templates: Sequence[Template],
        variants: Sequence[Variant],
    ) -> None:
        self._bench, self._store, self._options = bench, store, options
        self._templates, self._variants = templates, variants
        self._watch = bench.watch

    def tune(self) -> TuneSummary:
        self._watch(Step("compiling the payload to dispatches"))
        default = self._enter(DEFAULT)
        default.load()
        default.cut()
        default.prepare()
        self._watch(TasksFound(default.found()))
        verdict = self._search(default)
        contender, confirmed = verdict.contender, verdict.confirmed
        confirmed, proof = contender.prove(confirmed, self._spec_text(contender, confirmed))
        if confirmed.whole is not None:
            self._watch(WholeDone(confirmed.whole))
        interrupted = default.interrupted or contender.interrupted or verdict.interrupted
        earlier_spec, interrupted = self._write(contender, confirmed, interrupted)
        searched = {summary.id: summary for summary in contender.searched(confirmed, proof)}
        for each in searched.values():
            contender.bench.watch(TaskDone(each))
        tasks = tuple(searched.get(found.id, found) for found in contender.found())
        summary = self._summary(replace(verdict, confirmed=confirmed), tasks, interrupted)
        summary = replace(summary, earlier_spec=earlier_spec)
        self._watch(Finished(summary))
        return summary

    def _enter(self, variant: Variant) -> Contender:
        return Contender(variant, self._bench, self._store, self._options, self._templates)

    def _search(self, default: Contender) -> Verdict:
        limits = Limits(self._options.trials_per_task, self._options.max_time_s)
        others = [variant for variant in self._variants if not variant.is_default]
        unseen = never_run(default.payload)
        if others and not unseen:
            return Contest(self._bench, default, limits).run(others, self._enter)
        if others:
            # What can't be run as a whole can't be compared as a whole, and a variant rewrites all of it.
            self._watch(Warn(f"variants are left alone, their numbers could not be checked everywhere: {unseen[0]}"))
        default.search(limits)
        default.decide()
        return Verdict(default, default.confirm(), ())

    def _write(self, contender: Contender, confirmed: Confirmed, interrupted: bool) -> tuple[str, bool]:
        """Why an earlier run's spec is left as it was, empty if it was not, and whether the user has stopped the run by
        now. What was proven does not give way to less."""
        output = self._options.output
        earlier = EarlierSpec.at(output)
        stays = ""
        if earlier is not None:
            stays, interrupted = self._why_it_stays(earlier, contender, confirmed, interrupted)
        if stays:
            self._watch(Warn(f"{output} is left as it was: {stays}"))
        else:
            self._watch(Step("writing the spec"))
            write_atomically(output, self._spec_text(contender, confirmed))
        return stays, interrupted

    def _why_it_stays(
        self, earlier: EarlierSpec, contender: Contender, confirmed: Confirmed, interrupted: bool
    ) -> tuple[str, bool]:
        if not interrupted:
            self._watch(Step("comparing with the spec of an earlier run"))
            try:
                lead = earlier.lead(contender, confirmed, self._bench)
            except KeyboardInterrupt:
                interrupted = True
            except MlsearchError as error:
                self._watch(Warn(f"{earlier.path} can't be compared with what was found now: {error}"))
            else:
                if lead is None or not lead.is_faster:
                    return "", False
                return f"it is {lead.speedup:.2f}x faster than what was found now", False
        now = len(confirmed.entries) + (not contender.variant.is_default)
        return "it holds more than was proven now" if earlier.holds > now else "", interrupted

    def _spec_text(self, contender: Contender, confirmed: Confirmed) -> str:
        return spec_file_text(contender, confirmed, self._options.payload, self._bench, utc_now())

    def _summary(self, verdict: Verdict, tasks: tuple[TaskSummary, ...], interrupted: bool) -> TuneSummary:
        target, confirmed = self._bench.target, verdict.confirmed
        whole = confirmed.whole
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
            variant=verdict.contender.variant.name,
            variants=verdict.variants,
            tasks=tasks,
            time=self._bench.stopwatch.spent(),
            interrupted=interrupted,
            notes=verdict.contender.notes(),
        )

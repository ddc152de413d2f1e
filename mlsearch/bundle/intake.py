"""What was measured elsewhere, as ordinary records in the studies that `mlsearch tune` goes on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch import target as targets
from mlsearch.bundle.decision import Decided, Paired, decided, paired_with_untuned
from mlsearch.bundle.manifest import CandidateEntry, Manifest, TaskEntry
from mlsearch.bundle.measured import ArtifactMeasured, Measurements, read_measured
from mlsearch.bundle.proven import ProvenSpec, write_spec
from mlsearch.candidate import (
    BuildFailed,
    BuildTimeout,
    CacheState,
    Candidate,
    NotApplied,
    OverLimits,
    Provenance,
    Record,
    Spilled,
    Unmeasured,
)
from mlsearch.cuda.chips import find_chip
from mlsearch.cuda.device import chip_called
from mlsearch.errors import BundleError, TargetMismatchError
from mlsearch.events import Step, Watcher
from mlsearch.payload import load_payload
from mlsearch.records import codec
from mlsearch.records.store import Store
from mlsearch.search.base import Proposer
from mlsearch.search.make import make_proposer
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import Template, templates_for
from mlsearch.target import Target, compiler_version
from mlsearch.task import Task, cut
from mlsearch.tune.trials import study_name
from mlsearch.workbench import open_workbench

_OF_THE_COMPILER = (BuildFailed, BuildTimeout, NotApplied, Spilled, OverLimits)


@dataclass(frozen=True)
class IntakeOptions:
    payload: Path
    measured: Path
    target: str | None
    """Its name, as it was given to the export; None: what the file says."""
    function: str | None
    store: str
    study: str | None
    """As in `TuneOptions`."""
    templates: Path | None
    output: Path | None = None
    """Where to write a spec of what is proven."""


@dataclass(frozen=True)
class TakenTask:
    id: str
    """As in the payload here."""
    label: str
    study: str
    added: int
    known: int
    """Candidates that the study held already."""
    missing: int
    """Candidates of the bundle that were not measured."""
    outcomes: dict[str, int]
    """Of those added."""
    carried_over: int
    """Candidates that don't compile or spill, from the study that the bundle was exported from where that is
    another."""
    paired: tuple[Paired, ...]
    """Fastest first; empty if it didn't come to that."""
    decided: Decided | str
    """The one that was then paired alone, or why there is none."""


@dataclass(frozen=True)
class Taken:
    tasks: tuple[TakenTask, ...]
    measured_on: str
    target: str | None
    """What to call the target whose studies the times are in; None: another machine's CPU, which has no name here."""
    exported_for: str
    """What the bundle was exported for."""
    cache: CacheState
    threads: int
    spec: ProvenSpec | None


def take_in(options: IntakeOptions, watch: Watcher) -> Taken:
    """Add a record for each candidate that was measured, to the studies of the device that measured. Done again, it
    adds nothing. With `output`, write a spec of what is proven.

    Raises BundleError, before anything is added, for a damaged file, another compiler, target or architecture, or for a
    task or candidate that the payload and the templates do not have here. Other MlsearchErrors are those of the
    payload, of the store, and of the spec, which is written when all records are there.
    """
    measurements = read_measured(options.measured)
    manifest = measurements.manifest
    if not measurements.runs:
        raise BundleError(f"nothing in {options.measured} is measured yet; run its bundle again to go on")
    if manifest.compiler != compiler_version():
        raise BundleError(
            f"{options.measured} was built by iree-base-compiler {manifest.compiler}, here is {compiler_version()}: "
            "schedules and times don't carry over"
        )
    try:
        exported = _exported_target(manifest, options.target)
        target = _measured_target(exported, measurements)
    except BundleError as error:
        raise BundleError(f"{options.measured} can't be taken in: {error}") from None
    # Another CPU's facts would make another space than the one that the candidates are from; a GPU's is what goes on.
    here = exported if target.chip is None else target
    templates = templates_for(here, options.templates)
    with open_workbench(here, watch) as bench:
        watch(Step("cutting the payload into tasks"))
        tasks = cut(load_payload(options.payload, here, bench.workdir, options.function), here, bench.workdir)
        try:
            incoming = [_match(entry, tasks, templates, here) for entry in manifest.tasks]
        except BundleError as error:
            raise BundleError(f"{options.measured} does not fit {options.payload}: {error}") from None
        store = Store.open(options.store)
        watch(Step("adding records"))
        intake = _Intake(store, options, measurements, exported, target)
        matched = list(zip(manifest.tasks, incoming, strict=True))
        taken = [intake.add(entry, task, space) for entry, (task, space) in matched]
        spec = None
        if options.output is not None:
            watch(Step("proving that the spec is applied"))
            verdicts = [(task, space, each.decided) for (_, (task, space)), each in zip(matched, taken, strict=True)]
            site = measurements.site.text
            spec = write_spec(options.output, options.payload, target, verdicts, site, bench.workdir)
    name = None if not _is_named(exported, target) else _name_of(target)
    return Taken(
        tasks=tuple(taken),
        measured_on=measurements.site.text,
        target=name,
        exported_for=_name_of(exported),
        cache=manifest.plan.cache,
        threads=manifest.plan.threads,
        spec=spec,
    )


def _exported_target(manifest: Manifest, name: str | None) -> Target:
    """The bundle's target as this machine knows it: compile flags are never taken out of a file.

    Raises BundleError if it is not the one that the user names, or was described to the compiler in another way.
    """
    if name is None:
        chip = manifest.target.chip
        name = manifest.target.backend if chip is None else f"cuda:{chip.name}"
    target = targets.resolve(name, manifest.plan.threads)
    if target.compile_flags != manifest.target.compile_flags:
        raise BundleError(
            f"it was exported for {_name_of(manifest.target)}, and built with other flags than those of {name} here"
        )
    return target


def _name_of(target: Target) -> str:
    return target.backend if target.chip is None else f"cuda:{target.chip.name}"


def _is_named(exported: Target, measured: Target) -> bool:
    """Whether `--target` can say it here: any GPU can be named, of CPUs only this machine's."""
    return measured.chip is not None or measured.fingerprint == exported.fingerprint


def _measured_target(exported: Target, measurements: Measurements) -> Target:
    """What the times belong to: the GPU that measured, or for a bundle of this machine's CPU the one that was there.

    Raises BundleError for a GPU of another architecture.
    """
    manifest, site = measurements.manifest, measurements.site
    if exported.chip is None:
        return replace(exported, hardware=site.hardware if manifest.host_bound else manifest.target.hardware)
    wanted = exported.chip.architecture.name
    # Runners before `Site.chip` tell the product's name only.
    chip = site.chip or chip_called(site.device_name, wanted.rstrip("a"), exported.chip.multiprocessors)
    if site.chip is not None and find_chip(site.chip.name) != site.chip:
        raise BundleError(f"it was measured on {site.chip.name}, which is another chip here")
    try:
        return targets.measured_by(exported, chip)
    except TargetMismatchError as error:
        raise BundleError(f"where it was measured, {error}") from None


def _match(
    entry: TaskEntry, tasks: Sequence[Task], templates: Sequence[Template], target: Target
) -> tuple[Task, Space]:
    """The payload's task, with a space that has all of the entry's candidates."""
    for task in tasks:
        if task.workload is None or task.workload.key != entry.workload or task.signature != entry.signature:
            continue
        space = space_of(task, templates, target)
        if isinstance(space, str):
            raise BundleError(f"task {entry.id} ({entry.label}) can't be tuned here: {space}")
        for each in entry.candidates:
            if not _holds(space, each.candidate):
                knobs = " ".join(f"{name}={value}" for name, value in each.candidate.assignment)
                raise BundleError(
                    f"task {entry.id} ({entry.label}) has no candidate {each.candidate.template} {knobs} here; the "
                    "template may have changed since"
                )
        return task, space
    raise BundleError(f"it has no task like {entry.id} ({entry.label}, workload {entry.workload})")


def _holds(space: Space, candidate: Candidate) -> bool:
    part = space.parts.get(candidate.template)
    if part is None or part.template.digest != candidate.template_digest:
        return False
    try:
        return space.repair(space.params(candidate)) == candidate
    except (KeyError, ValueError):
        return False


class _Intake:
    """Records for the studies of the target that the times belong to."""

    def __init__(
        self, store: Store, options: IntakeOptions, measurements: Measurements, exported: Target, target: Target
    ) -> None:
        self._store, self._options, self._measurements = store, options, measurements
        self._exported, self._target = exported, target
        self._cache = measurements.manifest.plan.cache

    def add(self, entry: TaskEntry, task: Task, space: Space) -> TakenTask:
        measurements, target = self._measurements, self._target
        study = self._store.study(
            study_name(target, self._options.study, task, space, self._cache),
            identity={"workload": entry.workload, "target": target.fingerprint},
            notes={"label": entry.label, "compiler": measurements.manifest.compiler},
        )
        proposer = make_proposer("random", space, study, measurements.manifest.plan.seed)
        held = {
            stored.record.candidate.key
            for stored in self._store.records(study=study.study_name)
            if not isinstance(stored.record.outcome, Unmeasured)
        }
        outcomes: Counter[str] = Counter()
        known = missing = 0
        untuned = CandidateEntry(Candidate.untuned(), entry.untuned, entry.untuned_compile_s, None)
        for each in (untuned, *entry.candidates):
            run = measurements.runs.get((entry.id, each.artifact))
            if run is None:
                missing += 1
            elif each.candidate.key in held:
                known += 1
            else:
                record = self._record(entry, each, run)
                proposer.add_finished(each.candidate, record.time_us, codec.to_attributes(record))
                outcomes[record.outcome_name] += 1
        return TakenTask(
            id=task.id,
            label=entry.label,
            study=study.study_name,
            added=sum(outcomes.values()),
            known=known,
            missing=missing,
            outcomes=dict(outcomes),
            carried_over=self._carry_over(proposer, held, task, space),
            paired=paired_with_untuned(measurements, entry),
            decided=decided(measurements, entry),
        )

    def _carry_over(self, proposer: Proposer, held: set[str], task: Task, space: Space) -> int:
        """What the compiler alone has told of candidates holds for every product of an architecture."""
        if self._exported.fingerprint == self._target.fingerprint:
            return 0
        name = study_name(self._exported, self._options.study, task, space, self._cache)
        if name not in self._store.study_names():
            return 0
        count = 0
        for stored in list(self._store.records(study=name)):
            record = stored.record
            if record.candidate.key in held or not isinstance(record.outcome, _OF_THE_COMPILER):
                continue
            held.add(record.candidate.key)
            record = replace(record, provenance=replace(record.provenance, target=self._target.fingerprint))
            proposer.add_finished(record.candidate, None, codec.to_attributes(record))
            count += 1
        return count

    def _record(self, entry: TaskEntry, each: CandidateEntry, run: ArtifactMeasured) -> Record:
        manifest, site = self._measurements.manifest, self._measurements.site
        provenance = Provenance(
            workload=entry.workload,
            target=self._target.fingerprint,
            compiler=manifest.compiler,
            runtime=site.runtime,
            mlsearch=manifest.mlsearch,
            seed=manifest.plan.seed,
            threads=manifest.plan.threads,
            when=run.when,
            cache=self._cache,
            measured_on=site.text,
        )
        return Record(each.candidate, run.outcome, each.compile_s, each.artifact, provenance, each.predicted)

"""What was measured elsewhere, as ordinary records in the studies that `mlsearch tune` goes on with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch import target as targets
from mlsearch.bundle.manifest import CandidateEntry, TaskEntry
from mlsearch.bundle.measured import ArtifactMeasured, Measurements, read_measured
from mlsearch.candidate import Candidate, Compared, Provenance, Record
from mlsearch.errors import BundleError
from mlsearch.events import Step, Watcher
from mlsearch.payload import load_payload
from mlsearch.records import codec
from mlsearch.records.store import Store
from mlsearch.search.make import make_proposer
from mlsearch.space.space import Space, space_of
from mlsearch.space.template import Template, templates_for
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup
from mlsearch.target import Target, compiler_version
from mlsearch.task import Task, cut
from mlsearch.tune.trials import study_name
from mlsearch.workbench import open_workbench


@dataclass(frozen=True)
class IntakeOptions:
    payload: Path
    measured: Path
    target: str
    """Its name, as it was given to the export."""
    function: str | None
    store: str
    study: str | None
    """As in `TuneOptions`."""
    templates: Path | None


@dataclass(frozen=True)
class Paired:
    """A candidate against the untuned build, in the paired rounds of the other machine."""

    candidate: Candidate
    speedup: Speedup
    agrees: bool
    """Its numbers were right in these rounds, too."""


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
    paired: tuple[Paired, ...]
    """Fastest first; empty if it didn't come to that."""


@dataclass(frozen=True)
class Taken:
    tasks: tuple[TakenTask, ...]
    measured_on: str
    is_same_target: bool
    """Times are comparable to those that are measured here, so `tune` goes on with the same studies."""


def take_in(options: IntakeOptions, watch: Watcher) -> Taken:
    """Add a record for each candidate that was measured; all of them or, on an error, none. Again adds nothing.

    Raises BundleError for a damaged file, another compiler, or a task or candidate that the payload and the templates
    do not have here.
    """
    measurements = read_measured(options.measured)
    manifest = measurements.manifest
    if manifest.compiler != compiler_version():
        raise BundleError(
            f"{options.measured} was built by iree-base-compiler {manifest.compiler}, here is {compiler_version()}: "
            "schedules and times don't carry over"
        )
    target = targets.resolve(options.target, manifest.plan.threads)
    measured_target = _measured_target(measurements)
    templates = templates_for(target, options.templates)
    with open_workbench(target, watch) as bench:
        watch(Step("cutting the payload into tasks"))
        tasks = cut(load_payload(options.payload, target, bench.workdir, options.function), target, bench.workdir)
    try:
        incoming = [_match(entry, tasks, templates, target) for entry in manifest.tasks]
    except BundleError as error:
        raise BundleError(f"{options.measured} does not fit {options.payload}: {error}") from None
    store = Store.open(options.store)
    watch(Step("adding records"))
    taken = [
        _add(store, options, measurements, measured_target, entry, task, space)
        for entry, (task, space) in zip(manifest.tasks, incoming, strict=True)
    ]
    same = measured_target.fingerprint == target.fingerprint
    return Taken(tuple(taken), measurements.site.text, same)


def _measured_target(measurements: Measurements) -> Target:
    """The bundle's target, with the hardware that was really there where it was that of a machine."""
    manifest, site = measurements.manifest, measurements.site
    if not manifest.host_bound:
        return manifest.target
    return replace(manifest.target, hardware=site.hardware)


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


def _add(
    store: Store,
    options: IntakeOptions,
    measurements: Measurements,
    target: Target,
    entry: TaskEntry,
    task: Task,
    space: Space,
) -> TakenTask:
    study = store.study(
        study_name(target, options.study, task, space),
        identity={"workload": entry.workload, "target": target.fingerprint},
        notes={"label": entry.label, "compiler": measurements.manifest.compiler},
    )
    proposer = make_proposer("random", space, study, measurements.manifest.plan.seed)
    held = {stored.record.candidate.key for stored in store.records(study=study.study_name)}
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
            record = _record(measurements, target, entry, each, run)
            proposer.add_finished(each.candidate, record.time_us, codec.to_attributes(record))
            outcomes[record.outcome_name] += 1
    added = sum(outcomes.values())
    paired = _paired(measurements, entry)
    return TakenTask(task.id, entry.label, study.study_name, added, known, missing, dict(outcomes), paired)


def _record(
    measurements: Measurements, target: Target, entry: TaskEntry, each: CandidateEntry, run: ArtifactMeasured
) -> Record:
    manifest = measurements.manifest
    provenance = Provenance(
        workload=entry.workload,
        target=target.fingerprint,
        compiler=manifest.compiler,
        runtime=measurements.site.runtime,
        mlsearch=manifest.mlsearch,
        seed=manifest.plan.seed,
        threads=manifest.plan.threads,
        when=run.when,
        measured_on=measurements.site.text,
    )
    return Record(each.candidate, run.outcome, each.compile_s, each.artifact, provenance, each.predicted)


def _paired(measurements: Measurements, entry: TaskEntry) -> tuple[Paired, ...]:
    line = measurements.comparisons.get(entry.id)
    if line is None or not isinstance(line.outcome, Compared):
        return ()
    by_artifact = {each.artifact: each.candidate for each in reversed(entry.candidates)}
    baseline_us, *others = line.outcome.samples_us
    paired = [
        Paired(by_artifact[artifact], paired_speedup(baseline_us, samples_us), numerics.agrees)
        for artifact, samples_us, numerics in zip(line.artifacts[1:], others, line.outcome.numerics[1:], strict=True)
        if artifact in by_artifact
    ]
    return tuple(sorted(paired, key=lambda each: -each.speedup.speedup))

"""Candidates that were built for a device that isn't here, as a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from mlsearch.bundle.archive import BundledTask, open_bundle, write_bundle
from mlsearch.bundle.export import bundled_candidates
from mlsearch.candidate import Built, TimingPlan
from mlsearch.errors import BundleError
from mlsearch.runner.timing import timing_method
from mlsearch.target import Target
from mlsearch.tune.ahead import ArtifactKeeper, BuiltTask
from mlsearch.tune.options import TuneOptions
from mlsearch.tune.unmeasured import FindArtifact

SUFFIX = ".bundle"


def write_ahead_bundle(options: TuneOptions, target: Target, built: Sequence[BuiltTask]) -> Path:
    """A bundle beside `options.output`: the fastest known candidates, then those that wait, in the order of their
    ranking. Raises BundleError."""
    path = bundle_path(options)
    plan = TimingPlan(options.seed, target.threads, options.cache, method=timing_method(target.device_uri))
    write_bundle(path, target, [_bundled(each) for each in built], plan)
    return path


def earlier_bundle(options: TuneOptions) -> ArtifactKeeper:
    """The bundle of an earlier run at the same place, whose artifacts need not be built again."""
    held: dict[str, Path] = {}

    def keeper(folder: Path) -> FindArtifact:
        if not held:
            # None there, or not one that can be trusted: they are built again instead.
            with suppress(BundleError), open_bundle(bundle_path(options)) as bundle:
                names = [member for member in bundle.manifest.members if member.name.startswith("artifacts/")]
                held.update({member.sha256: bundle.extract(member.sha256, folder) for member in names})
        return held.get

    return keeper


def bundle_path(options: TuneOptions) -> Path:
    return options.output.with_suffix(SUFFIX)


def _bundled(built: BuiltTask) -> BundledTask:
    task = built.task
    assert task.workload is not None and task.signature is not None
    untuned = built.untuned.waiting
    assert untuned.artifact is not None
    return BundledTask(
        task.id,
        task.workload.key,
        task.workload.label,
        task.signature,
        Built(untuned.artifact, untuned.artifact_digest, untuned.compile_s),
        bundled_candidates([each.waiting for each in (*built.carried, *built.ranked)]),
    )

"""Candidates that were built for a device that isn't here, as a bundle."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mlsearch.bundle.archive import BundledCandidate, BundledTask, write_bundle
from mlsearch.candidate import Built, TimingPlan
from mlsearch.runner.timing import timing_method
from mlsearch.target import Target
from mlsearch.tune.ahead import BuiltCandidate, BuiltTask
from mlsearch.tune.options import TuneOptions

SUFFIX = ".bundle"


def write_ahead_bundle(options: TuneOptions, target: Target, built: Sequence[BuiltTask]) -> Path:
    """A bundle beside `options.output`, candidates in the order of their ranking. Raises BundleError."""
    path = options.output.with_suffix(SUFFIX)
    plan = TimingPlan(options.seed, target.threads, options.cache, method=timing_method(target.device_uri))
    write_bundle(path, target, [_bundled(each) for each in built], plan)
    return path


def _bundled(built: BuiltTask) -> BundledTask:
    task = built.task
    assert task.workload is not None and task.signature is not None
    return BundledTask(
        task.id,
        task.workload.key,
        task.workload.label,
        task.signature,
        _artifact(built.untuned),
        tuple(BundledCandidate(each.candidate, _artifact(each)) for each in built.ranked),
    )


def _artifact(built: BuiltCandidate) -> Built:
    return Built(built.artifact, built.artifact_digest, built.compile_s)

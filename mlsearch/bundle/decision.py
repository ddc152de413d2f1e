"""What the paired rounds of another machine say of a task: who was fast, and whether the fastest is proven so."""

from __future__ import annotations

from dataclasses import dataclass

from mlsearch.bundle.manifest import TaskEntry
from mlsearch.bundle.measured import Measurements
from mlsearch.candidate import Candidate, Compared, Measured, median
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup
from mlsearch.tune.finals import TOO_BUSY


@dataclass(frozen=True)
class Paired:
    """A candidate against the untuned build, in the paired rounds of the other machine."""

    candidate: Candidate
    speedup: Speedup
    agrees: bool
    """Its numbers were right in these rounds, too."""


@dataclass(frozen=True)
class Decided:
    """The candidate that the paired rounds of a task picked, and how it did alone against the untuned build."""

    candidate: Candidate
    speedup: Speedup
    objection: str
    """Why it is not proven faster; empty if it is."""


def paired_with_untuned(measurements: Measurements, entry: TaskEntry) -> tuple[Paired, ...]:
    """The candidates in the rounds of all, fastest first; empty if it didn't come to that."""
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


def decided(measurements: Measurements, entry: TaskEntry) -> Decided | str:
    """By the rule of `tune.finals`: the one that the rounds of all picked, in rounds alone with the untuned build; or
    why there is none."""
    if not any(isinstance(run.outcome, Measured) for (task, _), run in measurements.runs.items() if task == entry.id):
        return "nothing of it was measured"
    line = measurements.winners.get(entry.id)
    if line is None:
        return "its fastest candidate was not paired with the untuned build; run the bundle again to go on"
    if not isinstance(line.outcome, Compared):
        return "its fastest candidate could not be paired with the untuned build"
    candidate = next(each.candidate for each in entry.candidates if each.artifact == line.artifacts[1])
    speedup = paired_speedup(*line.outcome.samples_us)
    return Decided(candidate, speedup, _objection(measurements, entry, line.artifacts[1], line.outcome, speedup))


def _objection(
    measurements: Measurements, entry: TaskEntry, artifact: str, compared: Compared, speedup: Speedup
) -> str:
    """See `Decided.objection`. `artifact`: the winner's; `compared`: its rounds alone with the untuned build."""
    if not compared.numerics[1].agrees:
        return "the winner's numbers are wrong in its last rounds"
    if (entry.id, artifact) in measurements.wrong:
        return "the winner's numbers were wrong in one of its runs"
    if (entry.id, entry.untuned) in measurements.wrong:
        return "the untuned build's numbers are not the same in each run, so that nothing can be held against them"
    run = measurements.runs.get((entry.id, artifact))
    if run is None or not isinstance(run.outcome, Measured):
        return "the winner has no time of its own"
    alone = measurements.runs.get((entry.id, entry.untuned))
    now_us = median(compared.samples_us[0])
    if alone is not None and isinstance(alone.outcome, Measured) and now_us > TOO_BUSY * min(alone.outcome.samples_us):
        return "the machine was too busy to tell"
    if not speedup.is_faster:
        return f"not proven faster (95 % interval {speedup.ci95[0]:.2f} to {speedup.ci95[1]:.2f})"
    return ""

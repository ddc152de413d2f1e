"""The best candidates of a task against the untuned build, in paired, interleaved runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsearch.candidate import (
    BuildRequest,
    Built,
    Candidate,
    Compared,
    CompareRequest,
    Numerics,
    TimingPlan,
    median,
    reason,
)
from mlsearch.space.space import Space
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup
from mlsearch.task import Task
from mlsearch.tune.rounds import MOST, OBVIOUS, rounds_for, rounds_to_decide
from mlsearch.tune.trials import Baseline, Found, build_request, compile_limit_s
from mlsearch.workbench import Workbench

FINALISTS = 4
SECONDS = 6.0
"""Aim of each of the two comparisons, for tasks that are not slow."""
TOO_BUSY = 2.0
"""Beyond this, other work on the machine decides how two programs compare, more than their code does."""


@dataclass(frozen=True)
class Winner:
    """The candidate that paired runs chose. Whether it is faster is for its speedup's interval to say."""

    candidate: Candidate
    artifact: Path
    speedup: Speedup
    numerics: Numerics


def decide(bench: Workbench, task: Task, space: Space, baseline: Baseline, best: tuple[Found, ...]) -> Winner | str:
    """The winner, or in words why there is none.

    One comparison picks the winner, a second one with it alone says how much faster it is: the one that was picked for
    being fast in the first would look too good in it.
    """
    assert task.signature is not None
    if not best:
        return "no candidate was measured"
    if best[0].time_us > OBVIOUS * baseline.time_us:
        return f"no candidate came near the untuned build: the best took {best[0].time_us / baseline.time_us:.1f}x"
    near = tuple(found for found in best[:FINALISTS] if found.time_us <= OBVIOUS * best[0].time_us)
    finalists = _with_artifacts(bench, task, space, baseline, near)
    if not finalists:
        return "none of the best candidates could be built again"
    times_us = [baseline.time_us, *(found.time_us for found, _ in finalists)]
    artifacts = (baseline.artifact, *(artifact for _, artifact in finalists))
    compared = bench.compare(
        CompareRequest(artifacts, task.signature, pair_plan(bench, times_us), rounds_for(times_us, SECONDS))
    )
    if not isinstance(compared, Compared):
        return f"the finalists could not be compared: {reason(compared)}"
    ranking = sorted(
        (median(samples), index)
        for index, (samples, numerics) in enumerate(zip(compared.samples_us[1:], compared.numerics[1:], strict=True))
        if numerics.agrees
    )
    if not ranking:
        return "the finalists' numbers are wrong in a second run"
    found, artifact = finalists[ranking[0][1]]
    pair_us = [baseline.time_us, found.time_us]
    rounds = rounds_to_decide(pair_us, SECONDS)
    final = bench.compare(
        CompareRequest((baseline.artifact, artifact), task.signature, pair_plan(bench, pair_us), rounds)
    )
    if not isinstance(final, Compared):
        return f"the winner could not be compared: {reason(final)}"
    if not final.numerics[1].agrees:
        return "the winner's numbers are wrong in a third run"
    usual_us, now_us = min(baseline.measured.samples_us), median(final.samples_us[0])
    if now_us > TOO_BUSY * usual_us:
        return (
            f"the machine is too busy to tell: the untuned build takes {now_us / usual_us:.1f} times what it took"
            " at its best; run the same command again when it is idle"
        )
    return Winner(found.candidate, artifact, paired_speedup(*final.samples_us), final.numerics[1])


def _with_artifacts(
    bench: Workbench, task: Task, space: Space, baseline: Baseline, best: tuple[Found, ...]
) -> list[tuple[Found, Path]]:
    """Finalists with what to run; those of an earlier run of the search are built again."""
    requests = {
        found.candidate.key: build_request(bench, task, space, found.candidate, compile_limit_s(baseline))
        for found in best
        if found.artifact is None or not found.artifact.exists()
    }
    buildable = [request for request in requests.values() if isinstance(request, BuildRequest)]
    rebuilt = {
        request.key: outcome.artifact for request, outcome in bench.build(buildable) if isinstance(outcome, Built)
    }
    ready = []
    for found in best:
        request = requests.get(found.candidate.key)
        artifact = found.artifact
        if request is not None:
            artifact = rebuilt.get(request.key) if isinstance(request, BuildRequest) else None
        if artifact is not None:
            ready.append((found, artifact))
    return ready


def pair_plan(bench: Workbench, times_us: list[float]) -> TimingPlan:
    return bench.plan(timeout_s=60.0 + 1e-6 * 4 * sum(times_us) * (MOST + 4))

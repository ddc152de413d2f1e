"""How many trials a search needs to come within 5 % of the best known, with and without the surrogate.

    tools/bench_surrogate.py replay PAYLOAD.mlir RECORDS.jsonl   # nothing is compiled or measured again
    tools/bench_surrogate.py live PAYLOAD.mlir --trials 64       # runs `mlsearch tune` for each seed

`replay` searches among the recorded candidates only (`mlsearch records export`); 200 or more per task say
something. Without `--no-priors` the templates' own suggestions come first, and often end the contest at once.
Live times count relative to the run's median baseline, since a machine's speed drifts from run to run.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import optuna

from mlsearch.candidate import Candidate, KnobValue, Measured, Record
from mlsearch.payload import load_payload
from mlsearch.records.exchange import import_records
from mlsearch.records.store import Store
from mlsearch.search.base import KeepFirst
from mlsearch.search.make import make_proposer
from mlsearch.space.space import Space, build_space
from mlsearch.space.template import built_in_folder, load_templates
from mlsearch.surrogate.features import FeatureExtractor, options_in
from mlsearch.surrogate.gate import Gate
from mlsearch.surrogate.trees import TreeSurrogate
from mlsearch.target import Target, resolve
from mlsearch.task import cut

NEAR_BEST = 1.05
Curve = list[float]
"""Time of each trial in order; infinite where there is none."""


def curve_of(records: Sequence[Record]) -> Curve:
    """Times relative to the median of all baseline samples of the run."""
    measured = [record.outcome for record in records if isinstance(record.outcome, Measured)]
    baseline = statistics.median([sample for outcome in measured for sample in outcome.baseline_us] or [1.0])
    return [(record.time_us or float("inf")) / baseline for record in records]


@dataclass
class RecordedSpace:
    """A space of nothing but the candidates whose outcome is known."""

    space: Space
    records: Mapping[str, Record]
    with_priors: bool

    def __post_init__(self) -> None:
        self._all = [record.candidate for record in self.records.values()]
        self._params = [self.space.params(candidate) for candidate in self._all]
        self.size, self.distributions = len(self._all), self.space.distributions

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._all)

    def sample(self, rng: np.random.Generator, count: int) -> list[Candidate]:
        return [self._all[i] for i in rng.permutation(self.size)[:count]]

    def neighbours(self, candidate: Candidate, rng: np.random.Generator, count: int) -> list[Candidate]:
        params = self.params(candidate)
        order = sorted(rng.permutation(self.size), key=lambda i: self._distance(i, params))
        return [self._all[i] for i in order[1 : count + 1]]

    def repair(self, params: Mapping[str, KnobValue]) -> Candidate | None:
        """The recorded candidate that shares the most parameters."""
        return self._all[min(range(self.size), key=lambda i: self._distance(i, params))]

    def priors(self) -> list[Candidate]:
        priors = self.space.priors() if self.with_priors else []
        return [candidate for candidate in priors if candidate.key in self.records]

    def params(self, candidate: Candidate) -> dict[str, KnobValue]:
        return self.space.params(candidate)

    def _distance(self, index: int, params: Mapping[str, KnobValue]) -> int:
        return sum(params.get(name) != value for name, value in self._params[index].items())


def replay(recorded: RecordedSpace, target: Target, seed: int, trials: int, *, with_gate: bool) -> Curve:
    space = recorded.space
    options = options_in(space.tiling(candidate) for candidate in recorded)
    workload = space.view.workload
    extractor = FeatureExtractor(workload, target.hardware, threads=target.threads, options=options)
    gate = Gate(space.tiling, extractor, TreeSurrogate(seed), seed=seed)
    study = optuna.create_study(direction="minimize")
    proposer = make_proposer("tpe", recorded, study, seed, gate if with_gate else KeepFirst())
    curve: Curve = []
    while len(curve) < trials and (batch := proposer.ask(min(4, trials - len(curve)))):
        for asked in batch:
            record = replace(recorded.records[asked.candidate.key], predicted=asked.predicted)
            gate.observe(record)
            proposer.tell(asked, record.time_us, {})
            curve.append(record.time_us or float("inf"))
        if with_gate:
            gate.refit()
    return curve


def replay_all(arguments: argparse.Namespace, workdir: Path) -> Iterator[tuple[str, bool, Curve]]:
    target = resolve("llvm-cpu", arguments.threads)
    store = Store.open(workdir / "replayed.journal")
    with arguments.records.open() as stream:
        import_records(store, stream)
    templates = load_templates(built_in_folder(), "cpu")
    for task in cut(load_payload(arguments.payload, target, workdir), target, workdir):
        if task.view is None:
            continue
        space = build_space(task.view, templates, target)
        digests = {part.template.digest for part in space.parts.values()}
        found = [stored.record for stored in store.records(workload=task.view.workload.key)]
        records = {r.candidate.key: r for r in found if r.candidate.template_digest in digests}
        recorded, trials = RecordedSpace(space, records, not arguments.no_priors), min(arguments.trials, len(records))
        print(f"{task.label}: {len(records)} recorded candidates", file=sys.stderr)
        for seed in range(arguments.seeds if records else 0):
            for with_gate in (False, True):
                yield task.label, with_gate, replay(recorded, target, seed, trials, with_gate=with_gate)


def live_all(arguments: argparse.Namespace, workdir: Path) -> Iterator[tuple[str, bool, Curve]]:
    tune = [sys.executable, "-m", "mlsearch.cli.main", "tune", str(arguments.payload), "--quiet"]
    tune += ["--trials", str(arguments.trials), "--threads", str(arguments.threads)]
    for seed in range(arguments.seeds):
        for switch in ("off", "on"):
            path = workdir / f"{seed}_{switch}"
            files = ["--store", f"{path}.journal", "--json", f"{path}.json", "-o", f"{path}.mlir"]
            subprocess.run([*tune, "--seed", str(seed), "--surrogate", switch, *files], check=True)
            runs: dict[str, list[Record]] = {}
            for stored in Store.open(f"{path}.journal").records():
                if not stored.record.candidate.is_untuned:
                    runs.setdefault(stored.record.provenance.workload, []).append(stored.record)
            for workload, records in runs.items():
                yield workload, switch == "on", curve_of(records)


def report(runs: list[tuple[str, bool, Curve]], trials: int) -> None:
    for task in dict.fromkeys(task for task, _, _ in runs):
        best = min(min(curve) for name, _, curve in runs if name == task)
        for with_gate in (False, True):
            curves = [curve for name, gated, curve in runs if name == task and gated == with_gate]
            hits = [[i for i, t in enumerate(curve, start=1) if t <= NEAR_BEST * best] for curve in curves]
            counts = ", ".join(str(hit[0]) if hit else f">{trials}" for hit in hits)
            mean = statistics.mean(hit[0] if hit else trials for hit in hits)
            found = statistics.mean(min(curve) / best for curve in curves)
            label = f"{task} {'with' if with_gate else 'without'} surrogate"
            print(f"{label}: {counts} trials to within 5 %, mean {mean:.1f}; ends at {found:.3f}x the best")


def main() -> None:
    parser = argparse.ArgumentParser(description="Trials to the best known, with and without the surrogate")
    parser.add_argument("mode", choices=["replay", "live"])
    parser.add_argument("payload", type=Path)
    parser.add_argument("records", type=Path, nargs="?", help="for replay: exported JSON lines")
    parser.add_argument("--no-priors", action="store_true", help="for replay: start from random candidates")
    parser.add_argument("--trials", type=int, default=128)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.mode == "replay" and arguments.records is None:
        parser.error("replay needs RECORDS.jsonl, see `mlsearch records export`")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        run = replay_all if arguments.mode == "replay" else live_all
        report(list(run(arguments, Path(folder))), arguments.trials)


if __name__ == "__main__":
    main()

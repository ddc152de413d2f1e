"""What a tuning run found, as values that a report prints and `--json` writes. Times in microseconds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mlsearch.candidate import KnobValue, Numerics

SAME_CODE_SPREAD = 0.02
"""Two copies of one artifact, loaded side by side, differ by up to so much in paired runs: where code and buffers
happen to lie is part of a time, and no number of rounds averages it out (docs/decisions/0007-same-code-spread.md)."""


@dataclass(frozen=True)
class Speedup:
    """Baseline time over tuned time, from paired, interleaved runs."""

    baseline_us: float
    tuned_us: float
    speedup: float
    """Median of the per-round ratios."""
    ci95: tuple[float, float]
    """95 % interval of the median ratio."""

    @property
    def is_faster(self) -> bool:
        """The interval excludes "no faster", and what two copies of the same code would show."""
        return self.ci95[0] > 1.0 + SAME_CODE_SPREAD

    @property
    def is_slower(self) -> bool:
        """The same for "no slower"."""
        return self.ci95[1] < 1.0 - SAME_CODE_SPREAD


@dataclass(frozen=True)
class TaskSummary:
    id: str
    """Short name, unique in the payload: `t0`, `t1`, ..."""
    workload: str
    """Key of the workload."""
    label: str
    op_kind: str
    dims: dict[str, int]
    element_types: tuple[str, ...]
    fused: tuple[str, ...]
    sites: int
    """How many dispatch sites run it: its weight."""
    flops: int
    bytes: int
    not_tunable: str | None
    """Why nothing is tuned here, or None."""
    baseline_us: float | None
    best_us: float | None
    """Median time of the chosen schedule in the paired runs; the baseline's if none was better."""
    speedup: float | None
    speedup_ci95: tuple[float, float] | None
    gflops: float | None
    """Of the chosen schedule, in 10^9 operations per second."""
    applied: bool | None
    """The entry was found in the configured IR of the whole payload. None: no entry was wanted."""
    numerics: Numerics | None
    template: str | None
    assignment: dict[str, KnobValue] | None
    outcomes: dict[str, int]
    """Count of each outcome type, pruned and rejected candidates included."""
    trials: int
    note: str = ""
    """E.g. why a faster schedule is not in the spec."""


@dataclass(frozen=True)
class WholePayload:
    """All functions of the payload, run one after the other on random inputs."""

    baseline_us: float
    tuned_us: float
    speedup: float
    speedup_ci95: tuple[float, float]
    numerics: Numerics
    """The worst over all functions and outputs."""
    dropped: tuple[str, ...]
    """Entries that helped in isolation but not here."""


@dataclass(frozen=True)
class TimeSpent:
    """Wall-clock seconds of a run. `driver_s` is what was neither compiling nor measuring."""

    wall_s: float
    compile_s: float
    measure_s: float
    driver_s: float


DEFAULT_VARIANT = "default"
"""Name of the payload as it is."""


@dataclass(frozen=True)
class VariantSummary:
    """A variant of the payload, and how it fared."""

    name: str
    flags: tuple[str, ...]
    rewrites: bool
    """A script changes the payload before dispatches form."""
    untuned_speedup: float | None
    """Of the whole payload over the default variant, both untuned."""
    speedup: float | None
    """The same with the schedules that were found for it; by the times of its trials if it was not near the best."""
    dropped: str | None
    """Why it was not followed further."""


@dataclass(frozen=True)
class TuneSummary:
    version: str
    compiler: str
    runtime: str
    target: str
    target_fingerprint: str
    hardware: str
    threads: int
    payload: str
    spec: str
    seed: int
    baseline_us: float | None
    """Whole payload, or the sum over tasks where the payload as a whole could not be run."""
    tuned_us: float | None
    speedup: float | None
    speedup_ci95: tuple[float, float] | None
    whole_payload: WholePayload | None
    """Against the default variant, untuned."""
    whole_payload_note: str
    """Why `whole_payload` is None."""
    variant: str
    """Name of the payload's variant that the spec is for; `tasks` are its tasks."""
    variants: tuple[VariantSummary, ...]
    """All that were looked at, the default first; empty where there is no other."""
    tasks: tuple[TaskSummary, ...]
    time: TimeSpent
    interrupted: bool
    notes: tuple[str, ...] = ()
    """E.g. that the machine's speed drifted while measuring."""
    earlier_spec: str = ""
    """Why the spec of an earlier run was left in place of what this one has found; empty where it was not."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

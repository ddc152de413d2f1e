"""The frozen values that pass between the stages of a search, and nothing else.

    proposer --Candidate--> builder --BuildOutcome--> runner --RunOutcome--> Record --> proposer, surrogate

Times are in microseconds where a name ends in `_us` and in seconds where it ends in `_s`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mlsearch.code_features import StaticFeatures

KnobValue = int | str
"""A knob's value: an integer, or for a choice among attributes the printed attribute."""

CacheState = Literal["warm", "cold"]

TimingMethod = Literal["wall", "slope"]
"""`wall`: a sample is the mean time of a batch of calls. `slope`: it is what a larger batch takes longer than a smaller
one, per call, so that what a batch costs once (waking a device, waiting for it) is not part of it."""

UNTUNED = "untuned"
"""The template id of the candidate that leaves everything to IREE: trial 0 of every study."""


@dataclass(frozen=True)
class Candidate:
    """A template and one value for each of its knobs."""

    template: str
    """Template id, e.g. `cpu/contraction_double_tiling`."""
    template_digest: str
    """Digest of the template's text: the same knobs in a changed template are another candidate."""
    assignment: tuple[tuple[str, KnobValue], ...]
    """(knob, value), sorted by knob name."""

    @staticmethod
    def of(template: str, template_digest: str, assignment: Mapping[str, KnobValue]) -> Candidate:
        return Candidate(template, template_digest, tuple(sorted(assignment.items())))

    @staticmethod
    def untuned() -> Candidate:
        return Candidate(UNTUNED, "", ())

    @property
    def is_untuned(self) -> bool:
        return self.template == UNTUNED

    @property
    def knobs(self) -> dict[str, KnobValue]:
        return dict(self.assignment)

    @property
    def key(self) -> str:
        """Content hash, 16 hex digits."""
        return digest([self.template, self.template_digest, list(self.assignment)])


@dataclass(frozen=True)
class Choice:
    """A candidate that the gate lets through to the builder."""

    candidate: Candidate
    predicted: float | None
    """The surrogate's score when it was chosen (lower is faster); None if it had none."""


def digest(value: object) -> str:
    """16 hex digits of SHA-256 over the canonical JSON of `value`."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------------------- building


@dataclass(frozen=True)
class BuildRequest:
    """One module to compile, with a transform library or (`library=None`) untuned."""

    key: str
    """Names the files of this build; unique among the builds in one work folder."""
    module: Path
    """MLIR at IREE's flow phase."""
    library: str | None
    """Text of a transform library whose entry is `@__kernel_config`."""
    entries: tuple[str, ...]
    """Entry names that must be found in the configured IR, else the outcome is `NotApplied`."""
    flags: tuple[str, ...]
    """`iree-compile` flags of the target."""
    timeout_s: float


@dataclass(frozen=True)
class Built:
    artifact: Path
    """The `.vmfb`."""
    artifact_digest: str
    """SHA-256 of the artifact: equal artifacts are not timed twice."""
    compile_s: float


@dataclass(frozen=True)
class BuildFailed:
    stage: str
    """`parse`, `library` (it didn't load), `compile` or `crash` (the compiler process died)."""
    message: str
    """First lines of what the compiler said."""
    log: Path | None
    """All of what it said."""
    argv: tuple[str, ...]
    """A command that shows the failure again."""
    compile_s: float


@dataclass(frozen=True)
class BuildTimeout:
    timeout_s: float
    argv: tuple[str, ...]


@dataclass(frozen=True)
class NotApplied:
    """It compiled, but the configured IR does not show the entries: the schedule isn't the one asked for."""

    missing: tuple[str, ...]
    compile_s: float


BuildOutcome = Built | BuildFailed | BuildTimeout | NotApplied

# ----------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class TensorSpec:
    """A tensor at a module's boundary."""

    shape: tuple[int, ...]
    element_type: str
    """As MLIR prints it: `f32`, `bf16`, `i8`, ..."""


@dataclass(frozen=True)
class Signature:
    """How to call a function of an artifact."""

    function: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    out_buffers: tuple[int, ...]
    """Indices into `outputs` whose storage the caller passes after the inputs, in this order, so that it can be
    poisoned before the call. Empty for a whole payload."""
    reduction_length: int
    """The longest reduction behind an output element; sets the tolerance together with the element type."""
    batch: int = 0
    """Runs in one call of the artifact's other function, see `batch_function`, which takes all arguments so many times
    over: for timing by slope. 0: there is none."""
    indices: bool = True
    """Integer inputs of 32 and 64 bits may be indices, so only 0 and 1 are safe. False: they are plain numbers."""


def batch_function(function: str) -> str:
    """Name of the function that does in one call what many calls of `function` do."""
    return f"{function}_batch"


@dataclass(frozen=True)
class TimingPlan:
    """How to measure. Part of each record's provenance."""

    seed: int
    threads: int
    cache: CacheState = "warm"
    """`cold` flushes the last-level cache before each sample."""
    warmup: int = 2
    min_samples: int = 5
    max_samples: int = 60
    relative_ci: float = 0.02
    """Enough samples are taken once the 95 % interval of the median is within this share of it."""
    max_seconds: float = 0.4
    """Stop sampling after this long even if the interval is still wide (never below `min_samples`)."""
    give_up_us: float | None = None
    """A candidate whose first timed run takes longer is not timed further."""
    timeout_s: float = 30.0
    """The process is killed after this long."""
    method: TimingMethod = "wall"
    """How warm samples are taken; cold ones are single calls by the wall clock."""


@dataclass(frozen=True)
class RunRequest:
    """Check one artifact against the baseline's outputs, then time it, with baseline samples in between."""

    artifact: Path
    baseline: Path
    signature: Signature
    plan: TimingPlan


@dataclass(frozen=True)
class Numerics:
    """How far the outputs are from those of the untuned build, over all output elements."""

    agrees: bool
    max_abs_error: float
    max_rel_error: float
    """Largest error relative to the scale of the expected output."""
    tolerance: float
    """Bound on `max_rel_error`."""
    unwritten: int
    """Elements that still hold the poison."""
    elements: int


@dataclass(frozen=True)
class Measured:
    samples_us: tuple[float, ...]
    """All samples, in the order taken."""
    baseline_us: tuple[float, ...]
    """Samples of the baseline taken in between."""
    numerics: Numerics
    cut_short: bool
    """The first run was beyond `give_up_us`, so there is one sample only."""

    @property
    def time_us(self) -> float:
        """Median of the samples."""
        return median(self.samples_us)


@dataclass(frozen=True)
class WrongResult:
    numerics: Numerics


@dataclass(frozen=True)
class RunFailed:
    message: str
    log: Path | None


@dataclass(frozen=True)
class RunTimeout:
    timeout_s: float


RunOutcome = Measured | WrongResult | RunFailed | RunTimeout


@dataclass(frozen=True)
class CompareRequest:
    """Time several artifacts against each other in interleaved rounds: one sample of each per round."""

    artifacts: tuple[Path, ...]
    """The first is the baseline."""
    signature: Signature
    plan: TimingPlan
    rounds: int


@dataclass(frozen=True)
class Compared:
    samples_us: tuple[tuple[float, ...], ...]
    """`samples_us[i][r]`: artifact `i` in round `r`."""
    numerics: tuple[Numerics, ...]
    """Artifact `i` against the first one."""


CompareOutcome = Compared | RunFailed | RunTimeout

# ----------------------------------------------------------------------------- what a trial ends in


@dataclass(frozen=True)
class Rejected:
    """A constraint forbids the assignment; `violations` in the template's own words."""

    violations: tuple[str, ...]


@dataclass(frozen=True)
class Pruned:
    """The surrogate let others through instead."""

    predicted: float


@dataclass(frozen=True)
class Spilled:
    """It compiled, but its registers do not hold what it needs: GPU code that goes to memory for that is not timed."""

    spilled_bytes: int
    """Stores and loads, static."""
    registers: int
    """Per thread."""
    compile_s: float


@dataclass(frozen=True)
class OverLimits:
    """It compiled, but the chip can't launch it."""

    message: str
    """Which limit, and by how much."""
    compile_s: float


@dataclass(frozen=True)
class Unmeasured:
    """It compiled, and the device may run it, but the device is elsewhere."""

    features: StaticFeatures | None
    """What its code tells; None for a CPU, and for an artifact without a kernel."""
    compile_s: float


TrialOutcome = (
    Rejected
    | Pruned
    | BuildFailed
    | BuildTimeout
    | NotApplied
    | Spilled
    | OverLimits
    | Unmeasured
    | RunFailed
    | RunTimeout
    | WrongResult
    | Measured
)

OUTCOMES: tuple[str, ...] = (
    "Rejected",
    "Pruned",
    "BuildFailed",
    "BuildTimeout",
    "NotApplied",
    "Spilled",
    "OverLimits",
    "Unmeasured",
    "RunFailed",
    "RunTimeout",
    "WrongResult",
    "Measured",
)
"""Names of the outcome types, in the order a report lists them."""


@dataclass(frozen=True)
class Provenance:
    """Where a record comes from: what has to be equal for a time to be comparable."""

    workload: str
    target: str
    """Fingerprint of the target."""
    compiler: str
    runtime: str
    mlsearch: str
    seed: int
    threads: int
    when: str
    """UTC, ISO 8601."""
    cache: CacheState = "warm"
    """Whether the data was in the CPU's caches when it was timed."""
    measured_on: str | None = None
    """Machine, device and timing method, for people, where another process than the one that searched measured it."""


@dataclass(frozen=True)
class Record:
    """One trial, complete: what was tried, how it ended, under which circumstances."""

    candidate: Candidate
    outcome: TrialOutcome
    compile_s: float
    artifact_digest: str | None
    provenance: Provenance
    predicted: float | None = field(default=None)
    """The surrogate's score at the time of asking (lower is faster), if it had one."""

    @property
    def outcome_name(self) -> str:
        return type(self.outcome).__name__

    @property
    def time_us(self) -> float | None:
        return self.outcome.time_us if isinstance(self.outcome, Measured) else None


def median(samples: tuple[float, ...]) -> float:
    ordered = sorted(samples)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def reason(failure: BuildFailed | BuildTimeout | NotApplied | RunFailed | RunTimeout | WrongResult) -> str:
    """Why there is no artifact or no time, on one line for people."""
    match failure:
        case BuildFailed(message=message) | RunFailed(message=message):
            return message.strip().partition("\n")[0]
        case BuildTimeout(timeout_s=limit) | RunTimeout(timeout_s=limit):
            return f"no result within {limit:.0f} s"
        case NotApplied(missing=missing):
            return f"IREE did not keep the configuration of {', '.join(missing)}"
        case WrongResult(numerics=numerics):
            if numerics.unwritten:
                return f"{numerics.unwritten} of {numerics.elements} output elements stay unwritten"
            return f"wrong numbers (relative error {numerics.max_rel_error:.2g}, tolerance {numerics.tolerance:.2g})"

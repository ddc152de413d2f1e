"""What a running search tells whoever watches it. A report turns these into lines or a live view."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from mlsearch.summary import TaskSummary, TuneSummary, VariantSummary, WholePayload


@dataclass(frozen=True)
class Step:
    """A stage outside of the trials has begun, e.g. `cutting the payload into tasks`."""

    text: str


@dataclass(frozen=True)
class TasksFound:
    """The payload is cut. Tasks that can't be tuned are among them, with the reason."""

    tasks: tuple[TaskSummary, ...]


@dataclass(frozen=True)
class TaskStarted:
    task: str
    label: str
    position: int
    """1-based among the tasks that are tuned."""
    of: int
    baseline_us: float
    planned: int | None
    """Trials that this task may still use; None if time alone is the limit."""
    done: int
    """Trials found in the store from an earlier run."""
    space_size: int
    variant: str = ""
    """Of the payload, whose tasks have ids of their own; empty for the payload as it is."""


@dataclass(frozen=True)
class TrialDone:
    task: str
    number: int
    """Counts from 0 within the study."""
    outcome: str
    time_us: float | None
    best_us: float
    """Best so far, the baseline included."""
    baseline_us: float
    assignment: str
    """For people: `tile_m=8 tile_n=32 ...`."""
    reused: bool
    """Answered from the store or from an equal artifact, not measured again."""
    seconds_left: float | None
    """Estimated time left for this task."""
    variant: str = ""
    """As in `TaskStarted`."""


@dataclass(frozen=True)
class CandidateBuilt:
    """A candidate is compiled, and nothing else happens to it here."""

    task: str
    number: int
    """From 1."""
    of: int | None
    """None: as many as time allows."""
    outcome: str
    compile_s: float
    assignment: str


@dataclass(frozen=True)
class SurrogateState:
    task: str
    active: bool
    rank_skill: float
    """Rank correlation between predicted and measured times, within the study."""
    variant: str = ""
    """As in `TaskStarted`."""


@dataclass(frozen=True)
class TaskDone:
    summary: TaskSummary
    variant: str = ""
    """As in `TaskStarted`."""


@dataclass(frozen=True)
class WholeDone:
    whole: WholePayload


@dataclass(frozen=True)
class VariantDone:
    """A stage of a variant of the payload is over."""

    summary: VariantSummary


@dataclass(frozen=True)
class Warn:
    """Something the user should know, e.g. that the machine's speed drifted."""

    text: str


@dataclass(frozen=True)
class Finished:
    summary: TuneSummary


Event = (
    Step
    | TasksFound
    | TaskStarted
    | TrialDone
    | CandidateBuilt
    | SurrogateState
    | TaskDone
    | WholeDone
    | VariantDone
    | Warn
    | Finished
)

Watcher = Callable[[Event], None]

_OF_VARIANT = re.compile(r"^variant \S+: ")


def of_variant(event: Event, name: str) -> Event:
    """The event with the name of the payload's variant that it is about."""
    match event:
        case Step(text):
            return Step(f"variant {name}: {text}")
        case Warn(text):
            return Warn(f"variant {name}: {text}")
        case TaskStarted() | TrialDone() | SurrogateState() | TaskDone():
            return replace(event, variant=name)
        case _:
            return event


def warning_once(watch: Watcher) -> Watcher:
    """A watcher that passes a warning on the first time only, whichever variant of the payload it is about: what is
    wrong with a template is wrong with it for each of them."""
    told: set[str] = set()

    def passed_on(event: Event) -> None:
        if isinstance(event, Warn):
            text = _OF_VARIANT.sub("", event.text)
            if text in told:
                return
            told.add(text)
        watch(event)

    return passed_on

"""How far a run has come: a value that each event moves on. Both reports draw from it, so they agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from mlsearch import events
from mlsearch.candidate import UNTUNED
from mlsearch.report.text import count_text, variant_prefix
from mlsearch.summary import TaskSummary

_RECENT_TRIALS = 5


@dataclass(frozen=True)
class RunHeader:
    """What is being worked on, as the report's first line says it."""

    command: str
    """What is done to the payload, e.g. `tune`."""
    payload: str
    target: str
    threads: int | None
    """None where nothing is run."""


@dataclass(frozen=True)
class TaskProgress:
    started: events.TaskStarted
    trials: int
    """Trials done, those found in the store included."""
    best_us: float
    outcomes: Mapping[str, int]
    recent: tuple[events.TrialDone, ...] = ()
    """The last few trials, oldest first."""
    surrogate: events.SurrogateState | None = None
    seconds_left: float | None = None

    @property
    def planned(self) -> int | None:
        """Trials that the task comes to if nothing stops it; None if time alone is the limit."""
        if self.started.planned is None:
            return None
        return max(self.trials, self.started.done + self.started.planned)


@dataclass(frozen=True)
class Progress:
    activity: str
    """What is going on, to be read after "still"."""
    since_s: float
    """When that began, on the reporter's clock."""
    task: TaskProgress | None = None
    """The task whose trials are going on."""
    finished: tuple[TaskSummary, ...] = field(default=())


def advance(progress: Progress, event: events.Event, now_s: float) -> Progress:
    """The progress after `event`, which came at `now_s`."""
    match event:
        case events.Step(text):
            return replace(progress, activity=text, since_s=now_s)
        case events.TaskStarted():
            task = TaskProgress(event, event.done, event.baseline_us, MappingProxyType({}))
            activity = f"{variant_prefix(event.variant)}tuning {event.task}"
            return replace(progress, activity=activity, since_s=now_s, task=task)
        case events.TrialDone() if progress.task is not None:
            task = _after_trial(progress.task, event)
            planned = f" of {task.planned}" if task.planned else ""
            done = f"{count_text(task.trials, 'trial')}{planned} done"
            activity = f"{variant_prefix(event.variant)}tuning {event.task}: {done}"
            return replace(progress, activity=activity, since_s=now_s, task=task)
        case events.CandidateBuilt():
            of = "" if event.of is None else f" of {event.of}"
            activity = f"building for {event.task}: {event.number}{of} done"
            return replace(progress, activity=activity, since_s=now_s)
        case events.SurrogateState() if progress.task is not None:
            return replace(progress, task=replace(progress.task, surrogate=event))
        case events.TaskDone(summary):
            return replace(
                progress,
                activity=f"{variant_prefix(event.variant)}after task {summary.id}",
                since_s=now_s,
                task=None,
                finished=(*progress.finished, summary),
            )
        case events.Finished():
            return replace(progress, activity="writing the report", since_s=now_s, task=None)
        case _:
            return progress


def has_winner(task: TaskSummary) -> bool:
    """A schedule that beats the untuned build was chosen for `task`."""
    return task.template is not None and task.template != UNTUNED


def _after_trial(task: TaskProgress, trial: events.TrialDone) -> TaskProgress:
    outcomes = dict(task.outcomes)
    outcomes[trial.outcome] = outcomes.get(trial.outcome, 0) + 1
    return replace(
        task,
        trials=task.trials + 1,
        best_us=trial.best_us,
        outcomes=MappingProxyType(outcomes),
        recent=(*task.recent, trial)[-_RECENT_TRIALS:],
        seconds_left=trial.seconds_left,
    )

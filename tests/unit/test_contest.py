"""Variants against one another, on a machine that only pretends: the payload is cut by the real compiler."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from loop_harness import BASELINE_US
from test_task_search import WRONG
from test_tune_run import Run, never_firing
from test_variant import folder_with

from mlsearch.candidate import (
    BuildFailed,
    BuildOutcome,
    BuildRequest,
    Built,
    Compared,
    CompareOutcome,
    CompareRequest,
    Numerics,
    RunOutcome,
    RunRequest,
    WrongResult,
)
from mlsearch.errors import MlsearchError, NoSpaceError, RunnerError
from mlsearch.events import Step, TaskStarted, VariantDone
from mlsearch.summary import TuneSummary, VariantSummary
from mlsearch.testing.runners import RIGHT, measured
from mlsearch.tune.contender import Contender
from mlsearch.tune.contest import leaders_of, left_s, looked_speedup, promised_us
from mlsearch.variant import Variant, variant_of

FLAGS = 'module attributes {mlsearch.flags = ["--iree-opt-generalize-matmul"]} {}'


class Contested(Run):
    """`mine` is a variant that takes the payload `variant_us`, untuned and tuned."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        folder_with(folder, mine=FLAGS)
        self.variant_us = 100.0
        self.trial_gain = 0.95
        """Time of the variant's candidates, in untuned times of its task."""
        self.wrong: set[str] = set()
        self.right_of: dict[str, Numerics] = {}
        """Numbers of a build, where they are others than `RIGHT`."""
        self.machine.runner._answer_compare = self._compare  # type: ignore[method-assign]

    def tune(self, **changes: object) -> TuneSummary:
        self.machine.run_answers["mine-t0-untuned"] = measured(self.variant_us)
        return super().tune(**{"templates": self.folder, "variants": "mine", "trials": 4, **changes})

    def variants(self) -> dict[str, VariantSummary]:
        return {each.name: each for each in self.summary.variants}

    def told(self, name: str, field: str) -> list[float]:
        """What was said of a variant, in turn."""
        said = [event.summary for event in self.events if isinstance(event, VariantDone)]
        values = [getattr(each, field) for each in said if each.name == name]
        return [value for value in values if value is not None]

    def steps(self, text: str) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Step) and text in event.text]

    def together(self) -> list[CompareRequest]:
        """Comparisons of what the short searches have found: with neither untuned build."""
        untuned = {self._untuned_payload, f"mine-{self._untuned_payload}"}
        payloads = [request for request in self.machine.runner.comparisons if "payload-" in request.artifacts[0].stem]
        return [request for request in payloads if not untuned & {artifact.stem for artifact in request.artifacts}]

    def searches(self) -> int:
        return len([event for event in self.events if isinstance(event, TaskStarted)])

    def _time_us(self, key: str) -> float:
        if key.startswith("mine-payload-") or key == "shipped":
            return self.variant_us
        if key.startswith("mine-"):
            return self.variant_us if key.endswith("-untuned") else self.trial_gain * self.variant_us
        return super()._time_us(key)

    def _compare(self, request: CompareRequest) -> CompareOutcome:
        keys = [artifact.stem for artifact in request.artifacts]
        times = [BASELINE_US if key == "t0-untuned" else self._time_us(key) for key in keys]
        samples = tuple((time_us,) * request.rounds for time_us in times)
        return Compared(samples, tuple(WRONG if key in self.wrong else self.right_of.get(key, RIGHT) for key in keys))


@pytest.fixture
def contest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contested:
    return Contested(tmp_path, monkeypatch)


def test_the_variant_that_is_faster_as_a_whole_gives_the_spec(contest: Contested) -> None:
    summary = contest.tune()
    assert summary.variant == "mine"
    assert summary.speedup == BASELINE_US / 100.0
    assert variant_of(contest.spec, "spec").flags == ("--iree-opt-generalize-matmul",)
    assert contest.variants()["default"].dropped is not None
    assert contest.variants()["mine"].untuned_speedup == 10.0


def test_the_numbers_that_are_told_are_those_against_the_payload_as_it_is(contest: Contested) -> None:
    contest.right_of["shipped"] = replace(RIGHT, max_rel_error=3e-7)
    summary = contest.tune()
    assert summary.whole_payload is not None
    assert summary.whole_payload.numerics.max_rel_error == 3e-7


def test_a_leader_that_loses_in_the_end_says_to_whom(contest: Contested) -> None:
    contest.variant_us = 350.0  # the default takes 400 with its schedules, and goes on beside it
    contest.tune()
    assert contest.variants()["default"].dropped == "in the end mine is faster"
    assert contest.told("default", "speedup")[-1] == BASELINE_US / 400.0  # as confirmed; its trial promised 500
    assert contest.variants()["mine"].dropped is None


def test_a_variants_search_is_announced_by_its_name(contest: Contested) -> None:
    contest.tune()
    said = [event.text for event in contest.events if isinstance(event, Step)]
    assert said.index("searching schedules") < said.index("variant mine: searching schedules")


def test_a_variant_that_is_no_faster_gives_way_to_the_payload_as_it_is(contest: Contested) -> None:
    contest.variant_us = contest.payload_us
    summary = contest.tune()
    assert summary.variant == "default"
    assert "mlsearch.variant" not in contest.spec
    assert summary.speedup == BASELINE_US / contest.payload_us


def test_a_variant_with_other_numbers_is_out(contest: Contested) -> None:
    contest.wrong.add(f"mine-{contest._untuned_payload}")
    assert contest.tune().variant == "default"
    assert "its numbers differ from the default's" in str(contest.variants()["mine"].dropped)


def test_a_variant_that_is_wrong_only_when_built_from_the_beginning_is_out(contest: Contested) -> None:
    contest.wrong.add("shipped")
    assert contest.tune().variant == "default"


@pytest.mark.parametrize("variant_us", [350.0, 100.0])  # near the default with its schedules, which takes 400; far
@pytest.mark.parametrize("shipped_us", [BASELINE_US, 800.0])
def test_a_variant_that_is_slow_only_when_built_from_the_beginning_is_out(
    contest: Contested, monkeypatch: pytest.MonkeyPatch, variant_us: float, shipped_us: float
) -> None:
    contest.variant_us, usual = variant_us, contest._time_us
    monkeypatch.setattr(contest, "_time_us", lambda key: shipped_us if key == "shipped" else usual(key))
    assert contest.tune().variant == "default"
    assert contest.summary.speedup == BASELINE_US / contest.payload_us
    # However the default stood after the short search: the end is what is told.
    assert contest.variants()["default"].dropped is None
    assert contest.variants()["mine"].dropped == "in the end not surely faster than the default"
    assert contest.told("mine", "speedup")[-1] == BASELINE_US / variant_us  # as confirmed, not as promised


def test_the_time_of_a_variant_as_shipped_stays_when_an_entry_did_not_fire_in_it(
    contest: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_firing(monkeypatch)
    summary = contest.tune()
    assert summary.variant == "mine"
    assert summary.whole_payload is not None
    assert (summary.whole_payload.speedup, len(summary.whole_payload.dropped)) == (BASELINE_US / 100.0, 1)


def test_a_variant_that_stops_running_with_its_schedules_keeps_its_untuned_speedup(
    contest: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest.variant_us, usual = 350.0, contest.machine._run

    def failing(request: RunRequest) -> RunOutcome:
        if request.artifact.stem.startswith("mine-payload-"):
            raise RunnerError("the run process is gone")
        return usual(request)

    monkeypatch.setattr(contest.machine.runner, "_answer", failing)
    contest.tune()
    assert contest.spec
    assert contest.variants()["mine"].speedup is not None
    assert contest.told("mine", "speedup")[0] == BASELINE_US / 350.0


def test_a_variant_that_goes_wrong_with_its_schedules_keeps_its_untuned_speedup(
    contest: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest.variant_us, usual = 350.0, contest.machine._run

    def wrong(request: RunRequest) -> RunOutcome:
        return WrongResult(WRONG) if request.artifact.stem.startswith("mine-payload-") else usual(request)

    monkeypatch.setattr(contest.machine.runner, "_answer", wrong)
    contest.tune()
    assert contest.told("mine", "speedup")[0] == BASELINE_US / 350.0


def test_a_variant_that_does_not_compile_is_an_outcome(contest: Contested) -> None:
    contest.machine.build_answers[f"mine-{contest._untuned_payload}"] = BuildFailed("compile", "no way", None, (), 0.1)
    assert contest.tune().variant == "default"
    assert "no way" in str(contest.variants()["mine"].dropped)


@pytest.mark.parametrize("stage", ["load", "cut"])
def test_a_full_disk_is_no_fault_of_a_variant(contest: Contested, monkeypatch: pytest.MonkeyPatch, stage: str) -> None:
    real = getattr(Contender, stage)

    def on_a_full_disk(contender: Contender) -> None:
        if not contender.variant.is_default:
            raise NoSpaceError("no space left on device")
        real(contender)

    monkeypatch.setattr(Contender, stage, on_a_full_disk)
    with pytest.raises(NoSpaceError):
        contest.tune()


def test_a_variant_that_changes_nothing_is_not_searched(contest: Contested) -> None:
    def same(request: BuildRequest) -> BuildOutcome:
        built = contest.machine._build(request)
        if isinstance(built, Built) and "payload-" in request.key:
            built.artifact.write_text("same")
        return built

    contest.machine.builder._answers = same
    contest.tune()
    assert contest.variants()["mine"].dropped == "the same code as default"
    assert contest.searches() == 1


def test_an_interrupt_leaves_a_proven_variant_without_schedules_in_place(
    contest: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    contest.tune(trials=1)
    before = contest.spec
    assert variant_of(before, "spec").name == "mine"

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mlsearch.tune.contender.decide", interrupted)
    monkeypatch.setattr("mlsearch.tune.contest.Contest._best", interrupted)
    assert contest.tune(trials=4).interrupted
    assert contest.spec == before


def test_an_interrupt_in_the_finals_of_one_contender_ends_those_of_all(
    contest: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    contest.variant_us = 350.0  # both would have finals
    monkeypatch.setattr("mlsearch.tune.contender.decide", interrupted)
    assert contest.tune(trials=4).interrupted
    assert len(contest.steps("comparing the best candidates")) == 1
    assert contest.spec


def test_same_dispatches_at_the_same_speed_are_not_searched_again(contest: Contested) -> None:
    (contest.folder / "preprocessing/cpu/mine.mlir").write_text(
        'module attributes {mlsearch.flags = ["--iree-opt-const-eval"]} {}'
    )
    contest.variant_us = BASELINE_US
    contest.tune()
    assert contest.variants()["mine"].dropped == "the same dispatches, and as fast as the default"


def test_a_budget_of_no_more_than_the_short_search_ends_with_it(contest: Contested) -> None:
    contest.tune(trials=4)
    assert contest.searches() == 2


def test_heats_that_took_too_long_leave_the_leaders_their_share() -> None:
    assert left_s(30.0, searched_s=12.0, leaders_s=4.0) == 18.0
    assert left_s(30.0, searched_s=33.0, leaders_s=8.0) == 10.0
    # Another run of the same command has nothing left.
    assert left_s(30.0, searched_s=43.0, leaders_s=18.0) == 0.0


def trials_of(contest: Contested, name: str) -> int:
    prefix = "" if name == "default" else f"{name}-"
    return 1 + len([key for key in contest.machine.built if key.startswith(f"{prefix}t0-") and "untuned" not in key])


@pytest.mark.parametrize(
    ("variant_us", "default_goes_on", "variant_goes_on"),
    [(450.0, True, False), (350.0, True, True), (100.0, False, True)],
)
def test_the_whole_budget_is_for_the_leader_and_a_default_near_it(
    contest: Contested, monkeypatch: pytest.MonkeyPatch, variant_us: float, default_goes_on: bool, variant_goes_on: bool
) -> None:
    monkeypatch.setattr("mlsearch.tune.contest.SHORT_TRIALS", 4)
    monkeypatch.setattr("mlsearch.tune.contest._HEATS", (2, 4))
    contest.variant_us = variant_us  # the default takes 400 with its schedules
    contest.tune(trials=8)
    assert (trials_of(contest, "default") == 8) == default_goes_on
    assert (trials_of(contest, "mine") == 8) == variant_goes_on


@pytest.mark.parametrize(("variant_us", "trials"), [(1100.0, 2), (900.0, 4)])  # the default takes 500 by its trials
def test_a_variant_that_is_hopeless_after_a_heat_is_not_searched_further(
    contest: Contested, monkeypatch: pytest.MonkeyPatch, variant_us: float, trials: int
) -> None:
    monkeypatch.setattr("mlsearch.tune.contest._HEATS", (2, 4))
    contest.variant_us = variant_us
    contest.tune(trials=6)
    assert trials_of(contest, "mine") == trials
    assert "after a short search" in str(contest.variants()["mine"].dropped)


def test_a_default_that_is_hopeless_is_searched_all_the_same_because_the_winner_must_beat_it(
    contest: Contested, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mlsearch.tune.contest._HEATS", (2, 4))
    contest.variant_us = 50.0
    contest.tune(trials=6)
    assert trials_of(contest, "default") == 4
    assert "comparing the best candidates of t0 in paired runs" in contest.steps("paired runs")


def test_a_heat_that_would_outlast_the_time_is_left_out(contest: Contested, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlsearch.tune.contest._HEATS", (2, 4))
    contest.variant_us = 600.0  # near enough to stay, too far to lead

    def slow_build(request: BuildRequest) -> BuildOutcome:
        if "mine-t0-" in request.key:
            time.sleep(0.6)
        return contest.machine._build(request)

    contest.machine.builder._answers = slow_build
    contest.tune(trials=6, max_time_s=1.1 / 0.4)
    assert trials_of(contest, "mine") == 2
    assert contest.steps("variant mine: searching schedules") == ["variant mine: searching schedules"]


def test_a_variant_that_had_no_time_to_be_searched_says_so(contest: Contested) -> None:
    contest.variant_us = 2.0 * BASELINE_US
    contest.tune(max_time_s=1e-6)
    assert trials_of(contest, "mine") == 1
    assert contest.variants()["mine"].dropped == "0.50x without a search, where default has 1.00x"


def test_only_those_who_may_win_have_finals(contest: Contested) -> None:
    contest.variant_us = 900.0
    contest.tune()
    assert contest.steps("comparing the best candidates") == ["comparing the best candidates of t0 in paired runs"]


def test_those_near_each_other_are_ranked_together_without_the_untuned_payload(contest: Contested) -> None:
    contest.variant_us = 350.0
    contest.tune()
    request = contest.together()[0]
    assert {artifact.stem.partition("payload-")[0] for artifact in request.artifacts} == {"", "mine-"}
    # By the trials the variant has 332 and the default 500; in rounds of both it is 350 and 400.
    standing = {name: contest.told(name, "speedup")[0] for name in ("mine", "default")}
    assert standing["mine"] / standing["default"] == pytest.approx(400 / 350)
    # The scale is the payload's own: what the tasks of a rewritten one promise is no measurement.
    assert standing["default"] == pytest.approx(BASELINE_US / 500)


def test_who_is_far_behind_by_the_trials_is_not_timed_as_a_whole(contest: Contested) -> None:
    contest.variant_us = 900.0
    contest.tune()
    assert contest.told("mine", "speedup")[0] == pytest.approx(BASELINE_US / (0.95 * 900.0))
    assert not any(
        artifact.stem.startswith("mine-payload-") and artifact.stem != f"mine-{contest._untuned_payload}"
        for request in contest.machine.runner.comparisons
        for artifact in request.artifacts
    )


def test_a_variant_of_a_slow_payload_with_the_same_dispatches_gets_no_more_than_a_look(contest: Contested) -> None:
    (contest.folder / "preprocessing/cpu/mine.mlir").write_text(
        'module attributes {mlsearch.flags = ["--iree-opt-const-eval"]} {}'
    )
    contest.machine.run_answers["t0-untuned"] = measured(1e6)
    contest.variant_us = 1.1 * BASELINE_US
    contest.tune()
    assert contest.variants()["mine"].dropped == "the same dispatches, and as fast as the default"
    looks = [
        request.rounds
        for request in contest.machine.runner.comparisons
        if [artifact.stem for artifact in request.artifacts]
        == [contest._untuned_payload, f"mine-{contest._untuned_payload}"]
    ]
    assert looks == [1]


def test_a_variant_of_a_slow_payload_that_looks_a_fifth_faster_takes_part(contest: Contested) -> None:
    (contest.folder / "preprocessing/cpu/mine.mlir").write_text(
        'module attributes {mlsearch.flags = ["--iree-opt-const-eval"]} {}'
    )
    contest.machine.run_answers["t0-untuned"] = measured(1e6)
    contest.variant_us = BASELINE_US / 1.2
    contest.tune()
    assert trials_of(contest, "mine") > 1


@pytest.mark.parametrize(
    ("whole_us", "tasks_us", "gain_us", "promised"),
    [
        (1000.0, 0.0, 0.0, 1000.0),  # nothing can be tuned
        (1000.0, 1000.0, 975.0, 25.0),
        (1080.0, 1000.0, 975.0, 25.0),  # what the whole takes beyond its tasks is within the noise
        (2000.0, 1000.0, 975.0, 825.0),
        (500.0, 1000.0, 500.0, 250.0),  # together, the tasks take half of what they take alone
        (500.0, 1000.0, 0.0, 500.0),
    ],
)
def test_what_trials_promise_for_the_whole_payload(
    whole_us: float, tasks_us: float, gain_us: float, promised: float
) -> None:
    assert promised_us(whole_us, tasks_us, gain_us) == pytest.approx(promised)


def test_a_look_goes_by_the_shortest_times_and_claims_nothing() -> None:
    looked = looked_speedup([45.0, 90.0, 46.0], [2.6, 2.5, 1.0])
    assert looked.speedup == 45.0
    assert not (looked.is_faster or looked.is_slower)


def test_enough_rounds_are_paired() -> None:
    looked = looked_speedup([45.0] * 5 + [90.0], [1.0] * 5 + [2.0])
    assert looked.speedup == 45.0
    assert looked.is_faster


@dataclass(frozen=True)
class Stands:
    variant: Variant
    can_search: bool


def standing(**each: tuple[float, bool]) -> list[tuple[float, Any]]:
    """Speedup, and whether something can be searched, by the variant's name."""
    return [
        (speedup, Stands(Variant(name, () if name == "default" else ("x",)), can_search))
        for name, (speedup, can_search) in each.items()
    ]


@pytest.mark.parametrize(
    ("stand", "leaders"),
    [
        (standing(default=(2.0, True), a=(2.03, True)), ["default"]),
        (standing(default=(2.0, True), a=(2.1, True), b=(2.05, True)), ["a", "default"]),
        (standing(default=(1.0, True), a=(2.1, True), b=(2.05, True)), ["a"]),
        (standing(default=(1.9, True), a=(2.1, False), b=(2.0, True), c=(1.95, True)), ["a", "default"]),
        (standing(default=(1.0, True), a=(2.1, False), b=(1.5, True)), ["a", "b"]),
        (standing(default=(2.0, False), a=(2.1, False), b=(1.5, False)), ["a", "default"]),
    ],
)
def test_who_goes_on_after_the_short_search(stand: list[tuple[float, Any]], leaders: list[str]) -> None:
    assert [each.variant.name for each in leaders_of(stand)] == leaders


def test_ctrl_c_in_the_short_search_ends_with_what_there_is(contest: Contested) -> None:
    contest.interrupt_after = 3
    summary = contest.tune()
    assert summary.interrupted
    assert contest.spec


def test_an_unknown_variant_is_an_error_before_anything_is_compiled(contest: Contested) -> None:
    with pytest.raises(MlsearchError, match="there is no variant 'yours'"):
        contest.tune(variants="yours")
    assert contest.machine.built == []

"""The order of measurements, the time limit, and going on; no program runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import bundles
import pytest

from mlsearch.bundle.archive import open_bundle, write_bundle
from mlsearch.bundle.measure import MOST_ROUNDS, MeasureOptions, Progress, Session, measure_bundle, rounds_for
from mlsearch.bundle.measured import MeasuredFile, read_measured
from mlsearch.bundle.standalone import closing_line
from mlsearch.candidate import Compared, CompareOutcome, CompareRequest, RunFailed, RunOutcome, RunRequest, RunTimeout
from mlsearch.cuda.chips import find_chip
from mlsearch.errors import BundleError, MlsearchError, RunnerError
from mlsearch.target import resolve
from mlsearch.testing.runners import AnsweringRunner, measured

TIMES_US = {"untuned": 100.0, "a": 90.0, "b": 80.0, "c": 120.0}


class Lab:
    """Runs sessions with a runner whose answers follow from an artifact's content, on a clock of its own."""

    def __init__(self, tmp_path: Path, *names: str, contents: tuple[str, ...] = ("a", "b", "c")) -> None:
        tasks = [bundles.task(tmp_path / "built", name, contents) for name in names or ("t0",)]
        self.bundle = bundles.bundle(tmp_path, *tasks)
        self.output = tmp_path / "measured"
        self.folder = tmp_path / "work"
        self.folder.mkdir()
        self.now_s = 0.0
        self.cost_s = 1.0
        self.ran: list[str] = []
        self.compared: list[list[str]] = []
        self.requests: list[RunRequest] = []
        self.said: list[str] = []
        self.wrong_when_compared: set[str] = set()

    def session(
        self,
        max_time_s: float | None = None,
        answer: Callable[[str, RunRequest], RunOutcome] = lambda name, request: measured(TIMES_US[name[3:]]),
    ) -> Progress:
        def answer_run(request: RunRequest) -> RunOutcome:
            name = request.artifact.read_text()
            self.ran.append(name)
            self.requests.append(request)
            self.now_s += min(self.cost_s, request.plan.timeout_s)
            if self.cost_s > request.plan.timeout_s:
                return RunTimeout(request.plan.timeout_s)
            return answer(name, request)

        def answer_compare(request: CompareRequest) -> CompareOutcome:
            names = [path.read_text() for path in request.artifacts]
            self.compared.append(names)
            # Side by side, "c" is the fastest; in single runs it was not.
            times_us = {"c": 70.0, "a": 75.0}
            compared = AnsweringRunner(lambda run: measured(times_us.get(run.artifact.read_text()[3:], 80.0)))
            wrong = tuple(name in self.wrong_when_compared for name in names)
            return replace_numerics(compared.compare(request), wrong)

        with (
            open_bundle(self.bundle) as bundle,
            MeasuredFile.open(self.output, bundle, bundles.site()) as file,
        ):
            runner = AnsweringRunner(answer_run, answer_compare)
            session = Session(bundle, file, runner, bundles.PLAN, self.folder, self.said.append, lambda: self.now_s)
            return session.run(max_time_s)


def replace_numerics(outcome: CompareOutcome, wrong: tuple[bool, ...]) -> CompareOutcome:
    assert isinstance(outcome, Compared)
    pairs = zip(outcome.numerics, wrong, strict=True)
    return replace(outcome, numerics=tuple(replace(own, agrees=own.agrees and not bad) for own, bad in pairs))


def test_the_best_in_the_rounds_of_all_with_right_numbers_is_paired_alone(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.wrong_when_compared = {"t0-c"}
    assert lab.session().is_complete
    assert lab.compared[-1] == ["t0-untuned", "t0-a"]
    read = read_measured(lab.output)
    assert read.winners["t0"].artifacts[1] == read.comparisons["t0"].artifacts[2]


def test_no_winner_is_paired_where_all_compute_wrong_numbers_in_the_rounds_of_all(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.wrong_when_compared = {"t0-a", "t0-b", "t0-c"}
    assert lab.session().is_complete
    assert len(lab.compared) == 1
    assert read_measured(lab.output).winners == {}


def test_a_bundle_for_another_architecture_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = bundles.task(tmp_path / "built")
    write_bundle(tmp_path / "bundle", resolve("cuda:sm_80", 1), [task], bundles.PLAN)
    here = bundles.site(device="cuda", device_name="NVIDIA H200", chip=find_chip("h200"))
    monkeypatch.setattr("mlsearch.bundle.measure.this_site", lambda device, method: here)
    with pytest.raises(MlsearchError, match=r"the GPU is h200 \(sm_90\), not sm_80"):
        measure_bundle(MeasureOptions(tmp_path / "bundle", tmp_path / "measured"), lambda line: None)
    assert not (tmp_path / "measured").exists()


def test_all_tasks_advance_in_turn_the_untuned_builds_first(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "t0", "t1")
    progress = lab.session()
    assert lab.ran == ["t0-untuned", "t1-untuned", "t0-a", "t1-a", "t0-b", "t1-b", "t0-c", "t1-c"]
    assert lab.compared == [
        ["t0-untuned", "t0-b", "t0-a", "t0-c"],
        ["t0-untuned", "t0-c"],
        ["t1-untuned", "t1-b", "t1-a", "t1-c"],
        ["t1-untuned", "t1-c"],
    ]
    assert progress == Progress(measured=8, of=8, compared=2, tasks=2)


def test_a_complete_file_is_not_measured_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.session()
    lab.ran.clear()
    lab.compared.clear()
    assert lab.session().is_complete
    assert (lab.ran, lab.compared) == ([], [])


def test_what_ends_badly_is_an_outcome_and_the_others_go_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    bad = {"t0-a": RunFailed("it crashed", None), "t0-b": RunTimeout(12.0)}
    progress = lab.session(answer=lambda name, request: bad.get(name) or measured(TIMES_US[name[3:]]))
    outcomes = [type(run.outcome).__name__ for run in read_measured(lab.output).runs.values()]
    assert outcomes == ["Measured", "RunFailed", "RunTimeout", "Measured"]
    # Alone, then once more: what the rounds of all picked is decided by others.
    assert lab.compared == [["t0-untuned", "t0-c"], ["t0-untuned", "t0-c"]]
    assert progress.is_complete


def test_a_task_where_all_fails_is_complete_without_a_comparison(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    failed = RunFailed("no", None)
    progress = lab.session(answer=lambda name, request: measured(9.0) if name == "t0-untuned" else failed)
    assert lab.compared == []
    assert progress.is_complete


def test_the_time_limit_is_kept_with_time_left_for_the_comparison(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    progress = lab.session(max_time_s=4.0)
    # The third candidate is cut off where the time for the comparison begins.
    assert lab.ran == ["t0-untuned", "t0-a", "t0-b", "t0-c"]
    assert lab.now_s == pytest.approx(3.2)
    assert lab.compared == [["t0-untuned", "t0-b", "t0-a"], ["t0-untuned", "t0-a"]]
    assert progress == Progress(measured=3, of=4, compared=1, tasks=1)


def test_the_next_call_goes_on_and_compares_anew(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.session(max_time_s=2.5)
    lab.ran.clear()
    lab.compared.clear()
    assert lab.session().is_complete
    assert lab.ran == ["t0-b", "t0-c"]
    assert lab.compared == [["t0-untuned", "t0-b", "t0-a", "t0-c"], ["t0-untuned", "t0-c"]]


def test_what_the_limit_cuts_off_is_no_outcome(tmp_path: Path) -> None:
    lab = Lab(tmp_path)

    def hang(name: str, request: RunRequest) -> RunOutcome:
        return measured(100.0) if name == "t0-untuned" else RunTimeout(request.plan.timeout_s)

    lab.cost_s = 8.0
    progress = lab.session(max_time_s=12.0, answer=hang)
    assert lab.requests[-1].plan.timeout_s == pytest.approx(1.6)
    assert (progress.measured, lab.now_s) == (1, pytest.approx(9.6))
    lab.session(answer=hang)
    assert len(read_measured(lab.output).runs) == 4


def test_a_slow_candidate_is_given_up_after_a_multiple_of_the_best(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.session()
    limits = [request.plan.give_up_us for request in lab.requests]
    assert limits == [None, 500.0, 450.0, 400.0]


def test_a_task_whose_untuned_build_fails_is_left_out_and_tried_again(tmp_path: Path) -> None:
    lab = Lab(tmp_path, "t0", "t1")

    def broken(name: str, request: RunRequest) -> RunOutcome:
        if name == "t0-untuned":
            raise RunnerError("no such instruction")
        return measured(TIMES_US[name[3:]])

    progress = lab.session(answer=broken)
    assert (progress.measured, progress.is_complete) == (4, False)
    assert any("left out: task t0 (label-t0): no such instruction" in line for line in lab.said)
    assert lab.session().is_complete


def test_no_untuned_build_that_runs_is_an_error(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    with pytest.raises(RunnerError, match=r"no untuned build runs here.*label-t0.*RunFailed: no device"):
        lab.session(answer=lambda name, request: RunFailed("no device", None))


def test_artifacts_do_not_pile_up_in_the_work_folder(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.session(answer=lambda name, request: measured(9.0) if name == "t0-untuned" else RunTimeout(1.0))
    assert [path.read_text() for path in lab.folder.iterdir()] == ["t0-untuned"]


def test_rounds_fit_into_what_is_left() -> None:
    assert rounds_for([1e6, 1e6], float("inf")) == 9
    assert rounds_for([10.0, 10.0], float("inf")) == MOST_ROUNDS
    assert rounds_for([1e6, 1e6], 30.0) is None
    assert rounds_for([1e5, 1e5], 10.0) == 16
    assert rounds_for([1e5, 1e5], 0.0) is None


def test_a_busy_machine_is_refused_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlsearch.bundle.measure.busy_reason", lambda device: "someone plays chess")
    path = bundles.bundle(tmp_path)
    said: list[str] = []
    with pytest.raises(RunnerError, match=r"busy: someone plays chess; .*--even-if-busy"):
        measure_bundle(MeasureOptions(path, tmp_path / "m"), said.append)
    # No artifact of this bundle loads, so it ends right after the check.
    with pytest.raises(RunnerError, match="no untuned build runs here"):
        measure_bundle(MeasureOptions(path, tmp_path / "m", even_if_busy=True), said.append)
    assert any("warning: this machine is busy" in line for line in said)


@pytest.mark.parametrize(
    ("progress", "told"),
    [
        (Progress(8, 8, 2, 2), "all 8 artifacts are measured: m"),
        (Progress(3, 8, 0, 2), "3 of 8 artifacts are measured in m; the same command goes on"),
        (
            Progress(8, 8, 1, 2),
            "8 of 8 artifacts are measured in m, but the fastest of 1 of 2 tasks only are compared in pairs; "
            "the same command goes on",
        ),
    ],
)
def test_the_last_line_says_what_is_still_to_do(progress: Progress, told: str) -> None:
    assert closing_line(progress, Path("m")) == told


def test_the_bundle_is_not_overwritten(tmp_path: Path) -> None:
    path = bundles.bundle(tmp_path)
    with pytest.raises(BundleError, match="would overwrite the bundle"):
        measure_bundle(MeasureOptions(path, path), print)


def test_who_computed_wrong_numbers_once_is_no_winner_later(tmp_path: Path) -> None:
    lab = Lab(tmp_path)
    lab.wrong_when_compared = {"t0-a"}
    lab.session(max_time_s=2.5)
    assert lab.compared == [["t0-untuned", "t0-a"]]
    lab.wrong_when_compared = {"t0-c"}
    assert lab.session().is_complete
    assert lab.compared[-1] == ["t0-untuned", "t0-b"]


@pytest.mark.parametrize("device", ["local-task", "cuda://0"])
def test_a_device_that_the_bundle_was_not_built_for_is_refused(tmp_path: Path, device: str) -> None:
    options = MeasureOptions(bundles.bundle(tmp_path), tmp_path / "m", device=device)
    with pytest.raises(BundleError, match=f"--device {device}: the bundle is for local-sync"):
        measure_bundle(options, print)

"""What every runner has to do. Subclass `RunnerContract` in a pytest module and give it its two fixtures."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mlsearch.candidate import (
    Compared,
    CompareRequest,
    Measured,
    RunFailed,
    RunRequest,
    RunTimeout,
    Signature,
    TensorSpec,
    TimingPlan,
    WrongResult,
    median,
)
from mlsearch.errors import RunnerError
from mlsearch.runner.base import Runner
from mlsearch.statistics import paired_speedup


@dataclass(frozen=True)
class ContractArtifacts:
    """Builds of functions with one signature: a matmul into one out buffer, and what can go wrong with it."""

    signature: Signature
    baseline: Path
    reassociated: Path
    """Right, summed in another order."""
    short_reduction: Path
    """Leaves out one reduction step."""
    half_written: Path
    """Writes half of the output's elements."""
    crashing: Path
    """Dies of SIGSEGV."""
    hanging: Path
    """Never returns."""
    slow: Path
    """Right, takes milliseconds where the others take microseconds."""


PLAN = TimingPlan(seed=7, threads=1, max_seconds=0.1)


class RunnerContract:
    @pytest.fixture
    def runner(self) -> Runner:
        raise NotImplementedError("override with a runner; may be of class scope, and has to be closed")

    @pytest.fixture
    def artifacts(self) -> ContractArtifacts:
        raise NotImplementedError("override with builds for the runner's device")

    def test_a_right_artifact_is_measured_with_all_its_samples(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        outcome = run(runner, artifacts, artifacts.baseline)
        assert isinstance(outcome, Measured)
        assert PLAN.min_samples <= len(outcome.samples_us) <= PLAN.max_samples
        assert all(sample > 0 for sample in outcome.samples_us)
        assert outcome.time_us == median(outcome.samples_us)
        assert outcome.numerics.agrees
        assert outcome.numerics.elements == 24 * 40
        assert not outcome.cut_short

    def test_as_many_samples_are_taken_as_the_plan_says(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        plan = replace(PLAN, min_samples=9, max_samples=9)
        outcome = run(runner, artifacts, artifacts.baseline, plan)
        assert isinstance(outcome, Measured)
        assert len(outcome.samples_us) == 9

    def test_the_baseline_is_timed_between_candidates(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        # Rationed, but one in eight requests at least.
        outcomes = [run(runner, artifacts, artifacts.reassociated) for _ in range(8)]
        assert any(isinstance(outcome, Measured) and outcome.baseline_us for outcome in outcomes)

    def test_sums_in_another_order_agree(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        outcome = run(runner, artifacts, artifacts.reassociated)
        assert isinstance(outcome, Measured)
        assert 0 < outcome.numerics.max_rel_error <= outcome.numerics.tolerance

    def test_one_missing_reduction_step_is_a_wrong_result(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        outcome = run(runner, artifacts, artifacts.short_reduction)
        assert isinstance(outcome, WrongResult)
        assert outcome.numerics.max_rel_error > outcome.numerics.tolerance
        assert outcome.numerics.unwritten == 0

    def test_half_an_output_is_a_wrong_result_even_after_a_right_one(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        assert isinstance(run(runner, artifacts, artifacts.baseline), Measured)
        outcome = run(runner, artifacts, artifacts.half_written)
        assert isinstance(outcome, WrongResult)
        assert outcome.numerics.unwritten == 24 * 40 // 2

    def test_a_crash_is_a_failure_with_its_signal_and_the_next_request_works(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        outcome = run(runner, artifacts, artifacts.crashing)
        assert isinstance(outcome, RunFailed)
        assert "SIGSEGV" in outcome.message
        assert isinstance(run(runner, artifacts, artifacts.baseline), Measured)

    def test_a_hang_is_a_timeout_and_the_next_request_works(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        outcome = run(runner, artifacts, artifacts.hanging, replace(PLAN, timeout_s=0.5))
        assert outcome == RunTimeout(0.5)
        assert isinstance(run(runner, artifacts, artifacts.baseline), Measured)

    def test_a_slow_artifact_is_timed_once_and_let_go(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        outcome = run(runner, artifacts, artifacts.slow, replace(PLAN, give_up_us=1000.0))
        assert isinstance(outcome, Measured)
        assert outcome.cut_short
        assert len(outcome.samples_us) == 1
        assert outcome.numerics.agrees

    def test_a_missing_artifact_is_a_failure(
        self, runner: Runner, artifacts: ContractArtifacts, tmp_path: Path
    ) -> None:
        assert isinstance(run(runner, artifacts, tmp_path / "missing.vmfb"), RunFailed)

    def test_what_is_no_artifact_is_a_failure(
        self, runner: Runner, artifacts: ContractArtifacts, tmp_path: Path
    ) -> None:
        (tmp_path / "broken.vmfb").write_bytes(b"not a flatbuffer")
        assert isinstance(run(runner, artifacts, tmp_path / "broken.vmfb"), RunFailed)

    def test_an_unknown_element_type_is_a_failure_that_names_it(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        inputs = (TensorSpec((24, 137), "complex<f32>"), artifacts.signature.inputs[1])
        request = RunRequest(artifacts.baseline, artifacts.baseline, replace(artifacts.signature, inputs=inputs), PLAN)
        outcome = runner.run(request)
        assert isinstance(outcome, RunFailed)
        assert "complex<f32>" in outcome.message

    def test_an_untuned_build_that_cannot_be_called_is_an_error(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        signature = replace(artifacts.signature, function="nowhere")
        with pytest.raises(RunnerError, match="nowhere"):
            runner.run(RunRequest(artifacts.baseline, artifacts.baseline, signature, PLAN))

    def test_a_comparison_has_one_sample_of_each_artifact_per_round(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        outcome = compare(runner, artifacts, (artifacts.baseline, artifacts.reassociated), rounds=7)
        assert isinstance(outcome, Compared)
        assert [len(samples) for samples in outcome.samples_us] == [7, 7]
        assert [numerics.agrees for numerics in outcome.numerics] == [True, True]

    def test_a_comparison_tells_wrong_artifacts_and_times_them(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        paths = (artifacts.baseline, artifacts.half_written, artifacts.baseline, artifacts.short_reduction)
        outcome = compare(runner, artifacts, paths, rounds=2)
        assert isinstance(outcome, Compared)
        assert [numerics.agrees for numerics in outcome.numerics] == [True, False, True, False]
        assert [len(samples) for samples in outcome.samples_us] == [2, 2, 2, 2]

    def test_the_baseline_is_not_faster_than_itself(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        outcome = compare(runner, artifacts, (artifacts.baseline, artifacts.baseline), rounds=30)
        assert isinstance(outcome, Compared)
        speedup = paired_speedup(*outcome.samples_us)
        # By its nature a 95 % interval misses the truth now and then; it does not miss it by far.
        assert speedup.ci95[0] < 1.1
        assert speedup.ci95[1] > 0.9

    def test_a_comparison_orders_fast_and_slow(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        outcome = compare(runner, artifacts, (artifacts.slow, artifacts.baseline), rounds=8)
        assert isinstance(outcome, Compared)
        assert paired_speedup(*outcome.samples_us).is_faster

    def test_a_comparison_with_a_crash_fails_and_with_a_hang_times_out(
        self, runner: Runner, artifacts: ContractArtifacts
    ) -> None:
        crashed = compare(runner, artifacts, (artifacts.baseline, artifacts.crashing), rounds=2)
        assert isinstance(crashed, RunFailed)
        plan = replace(PLAN, timeout_s=0.5)
        hung = compare(runner, artifacts, (artifacts.baseline, artifacts.hanging), rounds=2, plan=plan)
        assert isinstance(hung, RunTimeout)

    def test_closing_twice_is_harmless(self, runner: Runner, artifacts: ContractArtifacts) -> None:
        assert isinstance(run(runner, artifacts, artifacts.baseline), Measured)
        runner.close()
        runner.close()


def run(
    runner: Runner, artifacts: ContractArtifacts, artifact: Path, plan: TimingPlan = PLAN
) -> Measured | WrongResult | RunFailed | RunTimeout:
    return runner.run(RunRequest(artifact, artifacts.baseline, artifacts.signature, plan))


def compare(
    runner: Runner,
    artifacts: ContractArtifacts,
    paths: tuple[Path, ...],
    rounds: int,
    plan: TimingPlan = PLAN,
) -> Compared | RunFailed | RunTimeout:
    return runner.compare(CompareRequest(paths, artifacts.signature, plan, rounds))

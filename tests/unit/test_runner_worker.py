from __future__ import annotations

import json
import subprocess
import sys
from math import inf
from pathlib import Path

import pytest

from mlsearch.candidate import (
    Compared,
    CompareRequest,
    Measured,
    Numerics,
    RunFailed,
    RunRequest,
    Signature,
    TensorSpec,
    TimingPlan,
    WrongResult,
)
from mlsearch.runner import messages
from mlsearch.testing.runners import RIGHT, AnsweringRunner, measured

SIGNATURE = Signature('f$async "x"', (TensorSpec((), "f32"),), (TensorSpec((2, 3), "i1"),), (0,), 9, 3, indices=False)
PLAN = TimingPlan(seed=3, threads=2, cache="cold", give_up_us=12.5)
WRONG = Numerics(False, inf, inf, 1e-5, 4, 9)
LOG = Path("log")


def test_requests_survive_the_pipe() -> None:
    run = RunRequest(Path("a.vmfb"), Path("b.vmfb"), SIGNATURE, PLAN)
    compare = CompareRequest((Path("a"), Path("b")), SIGNATURE, PLAN, 12)
    assert messages.decode_run(json.loads(json.dumps(messages.encode_run(run)))) == run
    assert messages.decode_compare(json.loads(json.dumps(messages.encode_compare(compare)))) == compare


@pytest.mark.parametrize(
    "outcome",
    [
        Measured((1.5, 2.0), (3.0,), RIGHT, cut_short=True),
        WrongResult(WRONG),
        Compared(((1.0, 2.0), (3.0, 4.0)), (RIGHT, WRONG)),
        RunFailed("it broke", LOG),
    ],
)
def test_outcomes_survive_the_pipe(outcome: messages.WorkerOutcome) -> None:
    assert messages.decode_outcome(json.loads(json.dumps(messages.encode_outcome(outcome))), LOG) == outcome


def test_an_unknown_outcome_is_refused() -> None:
    with pytest.raises(ValueError, match="Nonsense"):
        messages.decode_outcome({"outcome": "Nonsense"}, LOG)


def test_the_worker_imports_nothing_that_a_bare_machine_lacks() -> None:
    program = "import sys, mlsearch.runner.worker; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = loaded.stdout.split()
    packages = {name.partition(".")[0] for name in modules} - sys.stdlib_module_names
    third_party = {name for name in packages if not name.startswith("_")} - {
        "sitecustomize",
        "cython_runtime",
    }
    assert third_party <= {"numpy", "ml_dtypes", "iree", "mlsearch"}
    assert not any(name.startswith("iree.compiler") for name in modules)


def test_a_fake_runner_compares_by_its_own_answers() -> None:
    runner = AnsweringRunner(lambda request: measured(float(request.artifact.stem)))
    outcome = runner.compare(CompareRequest((Path("20.vmfb"), Path("10.vmfb")), SIGNATURE, PLAN, 2))
    assert outcome == Compared(((20.0, 20.0), (10.0, 10.0)), (RIGHT, RIGHT))
    assert len(runner.comparisons) == 1
    assert runner.requests == []


def test_a_fake_comparison_of_what_does_not_run_fails() -> None:
    runner = AnsweringRunner(lambda request: RunFailed("no", None))
    outcome = runner.compare(CompareRequest((Path("a.vmfb"),), SIGNATURE, PLAN, 2))
    assert isinstance(outcome, RunFailed)
    with runner:
        assert not runner.is_closed
    assert runner.is_closed

"""Values that the tests of the reports and the command line show."""

from __future__ import annotations

from mlsearch import events
from mlsearch.candidate import Numerics
from mlsearch.report import RunHeader
from mlsearch.summary import TaskSummary, TimeSpent, TuneSummary, WholePayload

HEADER = RunHeader("tune", "samples/matmul.mlir", "llvm-cpu", 1)
AGREES = Numerics(True, 1e-6, 2e-7, 1e-4, 0, 100_147)
HALF_WRITTEN = Numerics(False, 0.0, 0.0, 1e-4, 50_000, 100_147)


def task(**changes: object) -> TaskSummary:
    values: dict[str, object] = {
        "id": "t0",
        "workload": "0123456789abcdef",
        "label": "matmul_731x1023x137_f32",
        "op_kind": "matmul",
        "dims": {"m": 731, "n": 1023, "k": 137},
        "element_types": ("f32", "f32", "f32"),
        "fused": ("fill",),
        "sites": 2,
        "flops": 204_900_000,
        "bytes": 3_955_000,
        "not_tunable": None,
        "baseline_us": 199_000.0,
        "best_us": 4330.0,
        "speedup": 45.96,
        "speedup_ci95": (45.1, 46.9),
        "gflops": 47.3,
        "applied": True,
        "numerics": AGREES,
        "template": "cpu/contraction_double_tiling",
        "assignment": {"tile_m": 8, "tile_n": 32},
        "outcomes": {"Measured": 60, "BuildFailed": 3, "WrongResult": 1, "Pruned": 500},
        "trials": 64,
    }
    return TaskSummary(**{**values, **changes})  # type: ignore[arg-type]


def stuck_task() -> TaskSummary:
    """A task that can't be tuned."""
    nothing = dict.fromkeys(
        ("baseline_us", "best_us", "speedup", "speedup_ci95", "gflops", "applied", "numerics", "template")
    )
    return task(id="t1", label="softmax_?x1024_f32", not_tunable="dynamic dims", outcomes={}, trials=0, **nothing)


def unimproved_task() -> TaskSummary:
    return task(best_us=199_000.0, speedup=None, speedup_ci95=None, applied=None, template=None, assignment=None)


def summary(**changes: object) -> TuneSummary:
    values: dict[str, object] = {
        "version": "0.1.0",
        "compiler": "3.13.0",
        "runtime": "3.13.0",
        "target": "llvm-cpu",
        "target_fingerprint": "f" * 16,
        "hardware": "a CPU",
        "threads": 1,
        "payload": "samples/matmul.mlir",
        "spec": "matmul.spec.mlir",
        "seed": 0,
        "baseline_us": 199_000.0,
        "tuned_us": 4400.0,
        "speedup": 45.2,
        "speedup_ci95": (44.0, 46.0),
        "whole_payload": WholePayload(199_500.0, 4410.0, 45.2, (44.0, 46.0), AGREES, ()),
        "whole_payload_note": "",
        "variant": "default",
        "variants": (),
        "tasks": (task(), stuck_task()),
        "time": TimeSpent(100.0, 55.0, 40.0, 5.0),
        "interrupted": False,
    }
    return TuneSummary(**{**values, **changes})  # type: ignore[arg-type]


def trial(number: int, time_us: float | None, best_us: float, **changes: object) -> events.TrialDone:
    outcome = "BuildFailed" if time_us is None else "Measured"
    values: dict[str, object] = {
        "assignment": f"tile_m=8 tile_n={number}",
        "reused": False,
        "seconds_left": 35.0,
    }
    values |= changes
    return events.TrialDone("t0", number, outcome, time_us, best_us, 199_000.0, **values)  # type: ignore[arg-type]


def run_of_events() -> list[events.Event]:
    """One run from its start to its end, each kind of event at least once."""
    return [
        events.Step("compiling the untuned payload"),
        events.TasksFound((task(), stuck_task())),
        events.TaskStarted("t0", "matmul_731x1023x137_f32", 1, 1, 199_000.0, 64, 12, 123_456),
        trial(12, 5000.0, 5000.0),
        trial(13, None, 5000.0),
        trial(14, 4330.0, 4330.0, reused=True),
        events.SurrogateState("t0", True, 0.71),
        events.Warn("the machine's speed drifted by 30 %"),
        events.TaskDone(task()),
        events.WholeDone(WholePayload(199_500.0, 4410.0, 45.2, (44.0, 46.0), AGREES, ())),
        events.Finished(summary()),
    ]

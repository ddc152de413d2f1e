"""The tables at the end of a command."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest
from report_values import AGREES, HALF_WRITTEN, stuck_task, summary, task, unimproved_task

from mlsearch.report import open_console
from mlsearch.report.inspection import print_inspection, print_space
from mlsearch.report.tables import print_summary
from mlsearch.report.verification import complaints, print_verification
from mlsearch.summary import Speedup, TimeSpent, WholePayload

COMMAND = (
    "iree-compile",
    "a b.mlir",
    "-o",
    "a.vmfb",
    "--iree-codegen-transform-dialect-library=matmul.spec.mlir",
)


def printed(show: Any, *values: Any) -> str:
    """As in a pipe: 80 columns, no colours."""
    stream = io.StringIO()
    show(open_console(stream), *values)
    return stream.getvalue()


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def row(text: str, first: str) -> list[str]:
    return next(line for line in text.splitlines() if line.startswith(first)).split()


def test_a_tuned_task_shows_its_gain_and_its_proof() -> None:
    text = printed(print_summary, summary(), COMMAND)
    assert row(text, "t0") == (
        ["t0", "matmul_731x1023x137_f32", "2", "199", "ms", "4.33", "ms", "46.0x", "[45.1,", "46.9]"]
    )
    proof = [line for line in text.splitlines() if line.startswith("t0")][1]
    assert proof.split()[:6] == ["t0", "47.3", "yes", "agrees", "64", "4"]


def test_the_end_names_spec_command_and_time() -> None:
    text = printed(print_summary, summary(), COMMAND)
    assert "spec: matmul.spec.mlir\n" in text
    assert "  iree-compile 'a b.mlir' -o a.vmfb --iree-codegen-transform-dialect-library=matmul.spec.mlir\n" in text
    assert "time: 1 min 40 s (compiling 55 %, measuring 40 %, driver 5 %)" in text
    assert "whole payload: 200 ms untuned, 4.41 ms tuned, 45.2x [44.0, 46.0], numerics: agrees" in text


def test_a_file_has_each_name_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS")
    long = "batch_matmul_12x128x64x128_with_a_name_that_goes_on_and_on_and_on_and_on_f32"
    assert f" {long} " in printed(print_summary, summary(tasks=(task(label=long),)), COMMAND)


def test_a_variant_that_is_faster_without_schedules_is_an_improvement() -> None:
    text = printed(print_summary, summary(variant="data_tiling", tasks=(unimproved_task(),)), COMMAND)
    assert text.startswith("tasks of variant data_tiling\n")
    assert "spec: matmul.spec.mlir, for variant data_tiling\n" in text
    assert "  iree-compile 'a b.mlir'" in text
    assert "no improvement" not in text


def test_numbers_are_right_aligned() -> None:
    tasks = (task(), task(id="t1", sites=120, baseline_us=5.0, best_us=1.25, speedup=4.0))
    lines = [line for line in printed(print_summary, summary(tasks=tasks), COMMAND).splitlines() if line[:1] == "t"]
    first, second = lines[0], lines[1]
    assert first.index("199 ms") + len("199 ms") == second.index("5.00 µs") + len("5.00 µs")
    assert first.index("46.0x") + len("46.0x") == second.index("4.00x") + len("4.00x")


def test_no_improvement_is_said_plainly_and_no_command_is_offered() -> None:
    text = printed(print_summary, summary(tasks=(unimproved_task(),)), COMMAND)
    assert "no improvement found; the spec matmul.spec.mlir is empty" in text
    assert "none" in row(text, "t0")
    assert "iree-compile" not in text


def test_a_task_that_cannot_be_tuned_is_listed_with_the_reason() -> None:
    assert "not tuned: t1 softmax_?x1024_f32: dynamic dims" in printed(print_summary, summary(), COMMAND)


def test_a_run_without_tunable_tasks_prints_no_empty_table() -> None:
    text = printed(print_summary, summary(tasks=(stuck_task(),), whole_payload=None), COMMAND)
    assert text.startswith("not tuned: t1")


def test_notes_warnings_and_dropped_entries_are_told() -> None:
    whole = WholePayload(10.0, 10.0, 1.0, (0.9, 1.1), HALF_WRITTEN, ("entry_a",))
    notes = ("the machine's speed drifted",)
    tasks = (task(note="the interval reaches 1"),)
    text = printed(print_summary, summary(whole_payload=whole, notes=notes, tasks=tasks), COMMAND)
    assert "note: the machine's speed drifted" in text
    assert "note on t0: the interval reaches 1" in text
    assert "dropped, because they don't help there: entry_a" in text
    assert "numerics: 50000 of 100147 unwritten" in text


def test_a_payload_that_was_not_measured_says_why() -> None:
    text = printed(print_summary, summary(whole_payload=None, whole_payload_note="async inputs"), COMMAND)
    assert "whole payload: not measured: async inputs" in text


def test_tables_fit_eighty_columns_and_lose_nothing() -> None:
    long = "batch_matmul_12x128x64x128_with_a_name_that_goes_on_and_on_f32"
    text = printed(print_summary, summary(tasks=(task(label=long), task(id="t1"))), COMMAND)
    table = text[: text.index("whole payload")].splitlines()
    assert max(map(len, table)) <= 80
    assert "…" not in text
    assert "199 ms" in text


def test_tables_have_no_control_codes_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b" not in printed(print_summary, summary(), COMMAND)


def test_markup_in_names_is_literal() -> None:
    text = printed(print_summary, summary(tasks=(task(label="[bold]x[/]"),), spec="[red].mlir"), COMMAND)
    assert "[bold]x[/]" in text
    assert "spec: [red].mlir" in text


def test_a_run_that_took_no_time_does_not_divide_by_it() -> None:
    assert "time: 0 s" in printed(print_summary, summary(time=TimeSpent(0.0, 0.0, 0.0, 0.0)), COMMAND)


def inspected(**changes: object) -> SimpleNamespace:
    values: dict[str, object] = {
        "id": "t0",
        "label": "matmul_731x1023x137_f32",
        "workload": "k",
        "op_kind": "matmul",
        "dims": {"m": 731, "n": 1023, "k": 137},
        "element_types": ("f32", "f32", "f32"),
        "fused": ("fill", "elementwise(addf,erf)"),
        "flops": 204_900_000,
        "bytes": 3_955_000,
        "sites": 2,
        "share": 0.97,
        "baseline_us": 199_000.0,
        "templates": ("cpu/contraction_double_tiling",),
        "space_size": 123_456,
        "not_tunable": None,
    }
    return SimpleNamespace(**{**values, **changes})


def test_inspect_lists_what_a_task_computes_and_what_could_be_tuned() -> None:
    text = printed(print_inspection, SimpleNamespace(tasks=(inspected(),)))
    assert row(text, "t0") == ["t0", "matmul_731x1023x137_f32", "2", "97", "%", "199", "ms", "123456"]
    for part in (
        "matmul m=731 n=1023 k=137 f32\n",
        "205 MFLOP, 3.96 MB",
        "fused: fill, elementwise(addf,erf)",
        "templates: cpu/contraction_double_tiling",
    ):
        assert part in "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    assert max(map(len, text.splitlines())) <= 80


def test_inspect_says_why_a_task_cannot_be_tuned() -> None:
    stuck = inspected(not_tunable="dynamic dims", share=None, baseline_us=None, space_size=0)
    text = printed(print_inspection, SimpleNamespace(tasks=(stuck,)))
    assert "can't be tuned: dynamic dims" in text
    assert row(text, "t0")[-1] == "none"


def test_inspect_of_an_empty_payload_says_so() -> None:
    assert "no dispatch" in printed(print_inspection, SimpleNamespace(tasks=()))


def test_space_lists_knobs_constraints_and_counts() -> None:
    knob = SimpleNamespace(name="tile_m", values=(1, 2, 4, 8), default=8)
    template = SimpleNamespace(
        id="cpu/x",
        path="transforms/cpu/x.mlir",
        knobs=(knob,),
        constraints=("m % tile_m [fits]",),
        valid=3,
        total=4,
        derived={"threads": "(warps * 32)"},
    )
    space = SimpleNamespace(task="t0", label="matmul_4_f32", size=3, templates=(template,))
    text = printed(print_space, space)
    assert "t0 matmul_4_f32: 3 candidates" in text
    assert row(text, "tile_m") == ["tile_m", "1", "2", "4", "8", "8"]
    assert "constraint: m % tile_m [fits]" in text
    assert "3 of 4 assignments valid" in text


def entry(name: str, problem: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(
        name=name,
        applied_to=("main$async_dispatch_0",),
        numerics=AGREES,
        speedup=Speedup(10.0, 5.0, 2.0, (1.9, 2.1)),
        problem=problem,
    )


def test_verify_shows_each_entry() -> None:
    checked = SimpleNamespace(entries=(entry("matmul_a"),), whole=None, ok=True, notes=(), problems=())
    text = printed(print_verification, checked)
    assert row(text, "matmul_a") == [
        "matmul_a",
        "main$async_dispatch_0",
        "agrees",
        "2.00x",
        "[1.90,",
        "2.10]",
    ]
    assert "verified: every entry is applied" in text


def test_verify_claims_nothing_of_entries_that_are_not_there() -> None:
    checked = SimpleNamespace(entries=(), whole=None, ok=True, notes=(), problems=())
    text = printed(print_verification, checked)
    assert text.splitlines() == ["the spec has no entries", "nothing was verified"]


def test_complaints_name_the_entry_and_tell_each_problem_once() -> None:
    checked = SimpleNamespace(
        entries=(entry("a"), entry("b", "applied nowhere")),
        problems=("entry 'b': applied nowhere", "the payload as a whole is slower"),
    )
    assert complaints(checked) == (  # type: ignore[arg-type]
        "entry 'b': applied nowhere",
        "the payload as a whole is slower",
    )


def test_a_reader_that_left_is_for_the_command_line_to_meet() -> None:
    class Closed(io.StringIO):
        def flush(self) -> None:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        open_console(Closed()).print("x")


def test_inspect_claims_no_amounts_of_a_task_that_cannot_be_read() -> None:
    stuck = inspected(
        workload="", op_kind="unknown", dims={}, element_types=(), flops=0, bytes=0, not_tunable="dynamic"
    )
    text = printed(print_inspection, SimpleNamespace(tasks=(stuck,)))
    assert "unknown" not in text
    assert "FLOP" not in text


def test_a_spec_that_was_left_in_place_is_not_given_this_runs_command() -> None:
    text = printed(print_summary, summary(earlier_spec="it is 2.00x faster than what was found now"), COMMAND)
    assert "spec: matmul.spec.mlir, left as it was, its header says how to use it: it is 2.00x faster" in text
    assert "iree-compile" not in text

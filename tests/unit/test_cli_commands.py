"""`inspect`, `space`, `compile` and `verify` with stand-ins for the library."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_fakes import install
from click.testing import CliRunner, Result
from test_report_tables import entry, inspected

from mlsearch import target
from mlsearch.cli.main import command_line
from mlsearch.cuda.chips import Chip
from mlsearch.errors import NoDeviceError, SpecError


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("payload.mlir").write_text("module {}")
    Path("spec.mlir").write_text("module {}")


def run(line: str) -> Result:
    return CliRunner().invoke(command_line, line.split(), prog_name="mlsearch")


def told(**values: Any) -> SimpleNamespace:
    return SimpleNamespace(**values, to_json=lambda: {"told": True})


def test_inspect_asks_for_the_payload_and_keeps_stdout_for_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def inspect_payload(*arguments: Any) -> Any:
        asked.append(arguments[:5])
        return told(tasks=(inspected(),))

    install(monkeypatch, "mlsearch.inspection", inspect_payload=inspect_payload)
    result = run("inspect payload.mlir --threads 2 --variant o3")
    assert asked == [(Path("payload.mlir"), "llvm-cpu", 2, None, "o3")]
    assert result.stdout.startswith("id ")
    assert result.stderr == "mlsearch inspect payload.mlir for llvm-cpu, 2 threads\n"
    assert json.loads(run("inspect payload.mlir --json -").stdout) == {"told": True}


def test_space_asks_for_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def describe_space(*arguments: Any) -> Any:
        asked.append(arguments)
        return told(task="t3", label="matmul", size=5, templates=())

    install(monkeypatch, "mlsearch.inspection", describe_space=describe_space)
    assert run("space payload.mlir --task t3").stdout == "t3 matmul: 5 candidates\n"
    [(*arguments, _)] = asked
    assert arguments == [Path("payload.mlir"), "t3", "llvm-cpu", 1, None, "default"]
    assert run("space payload.mlir").exit_code == 2


def test_compile_tells_what_each_entry_was_applied_to(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def compile_payload(*arguments: Any) -> Any:
        asked.append(arguments)
        return SimpleNamespace(applied=(("matmul_a", ("main_dispatch_0", "main_dispatch_4")),))

    install(monkeypatch, "mlsearch.delivery", compile_payload=compile_payload)
    result = run("compile payload.mlir --spec spec.mlir -o out.vmfb")
    assert result.stdout == "matmul_a applied to main_dispatch_0, main_dispatch_4\nwrote out.vmfb\n"
    assert asked == [(Path("payload.mlir"), Path("spec.mlir"), Path("out.vmfb"), "llvm-cpu")]


def test_compile_says_so_when_there_is_nothing_to_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "mlsearch.delivery", compile_payload=lambda *arguments: SimpleNamespace(applied=()))
    result = run("compile payload.mlir --spec spec.mlir -o out.vmfb")
    said = "spec.mlir has no entries: no schedule was applied, only the flags and scripts it names"
    assert result.stdout == f"{said}\nwrote out.vmfb\n"


def test_compile_fails_when_an_entry_applies_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def compile_payload(*arguments: Any) -> Any:
        raise SpecError("entry 'matmul_a' applies nowhere")

    install(monkeypatch, "mlsearch.delivery", compile_payload=compile_payload)
    result = run("compile payload.mlir --spec spec.mlir -o out.vmfb")
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "mlsearch: error: entry 'matmul_a' applies nowhere"


@pytest.mark.parametrize(
    "line",
    [
        "compile payload.mlir --spec spec.mlir",
        "compile payload.mlir -o out.vmfb",
        "compile payload.mlir --spec spec.mlir -o spec.mlir",
        "verify payload.mlir",
        "inspect",
        "records show",
        "frobnicate",
    ],
)
def test_incomplete_commands_are_usage_errors(line: str) -> None:
    assert run(line).exit_code == 2


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("inspect gone.mlir", "no payload file gone.mlir"),
        ("verify payload.mlir --spec gone.mlir", "no spec file gone.mlir"),
        ("compile payload.mlir --spec . -o out.vmfb", "spec . is no file"),
        (
            "verify payload.mlir --spec spec.mlir --json gone/x.json",
            "can't write gone/x.json: no folder gone",
        ),
    ],
)
def test_what_is_missing_is_named_in_one_line(line: str, message: str) -> None:
    result = run(line)
    assert (result.exit_code, result.stderr) == (1, f"mlsearch: error: {message}\n")


def install_verify(monkeypatch: pytest.MonkeyPatch, **values: Any) -> list[tuple[Any, ...]]:
    asked: list[tuple[Any, ...]] = []

    def verify(*arguments: Any) -> Any:
        asked.append(arguments[:-1])
        return told(whole=None, **values)

    install(monkeypatch, "mlsearch.verify", verify=verify)
    return asked


def test_verify_ends_with_0_when_the_spec_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = install_verify(monkeypatch, ok=True, notes=(), entries=(entry("a"),), problems=())
    result = run("verify payload.mlir --spec spec.mlir --seed 5 --function main --threads 2")
    assert result.exit_code == 0
    assert "verified" in result.stdout
    assert asked == [(Path("payload.mlir"), Path("spec.mlir"), "llvm-cpu", 2, 5, "main")]


def test_verify_ends_with_1_and_names_the_entry_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    install_verify(monkeypatch, ok=False, notes=(), entries=(entry("a"), entry("b", "applied nowhere")), problems=())
    result = run("verify payload.mlir --spec spec.mlir --json -")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {"told": True}
    assert result.stderr.splitlines()[-1] == "mlsearch: error: spec.mlir: entry 'b': applied nowhere"


@pytest.mark.parametrize("command", ["verify payload.mlir --spec spec.mlir", "tune payload.mlir"])
def test_what_measures_says_at_once_that_the_named_gpu_is_not_here(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing() -> Chip:
        raise NoDeviceError("no CUDA device on this machine (its driver sleeps)")

    monkeypatch.setattr(target, "this_machines_chip", nothing)
    result = run(f"{command} --target cuda:h200")
    assert result.exit_code == 1
    assert "(its driver sleeps), so nothing can be measured for h200 here; `mlsearch tune --no-device`" in result.stderr
    # After the header, and before anything else.
    assert len(result.output.splitlines()) == 2

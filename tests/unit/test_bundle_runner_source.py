"""The program for the other machine: old enough a language, few enough packages."""

from __future__ import annotations

import ast
import io
import os
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Sequence
from pathlib import Path

import bundles
import pytest

from mlsearch.bundle.runner_source import runner_archive, runner_source, write_runner

NEWER = {
    "datetime": {"UTC"},
    "typing": {
        "Self",
        "Never",
        "LiteralString",
        "assert_never",
        "assert_type",
        "NotRequired",
        "TypeVarTuple",
        "override",
    },
    "enum": {"StrEnum", "verify"},
    "contextlib": {"chdir"},
    "itertools": {"batched"},
    "asyncio": {"TaskGroup", "timeout"},
    "hashlib": {"file_digest"},
}
"""Names that Python 3.10 does not have in these modules."""
NEWER_MODULES = {"tomllib", "wsgiref.types"}
NEWER_BUILTINS = {"ExceptionGroup", "BaseExceptionGroup", "aiter_next"}

SOURCE = runner_source()


def run(runner: Path, bundle: Path, output: Path, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, sys.executable, str(runner), "run", str(bundle), "-o", str(output), "--even-if-busy"]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.parametrize("name", SOURCE)
def test_the_runner_is_python_3_10(name: str) -> None:
    tree = ast.parse(SOURCE[name], feature_version=(3, 10))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            assert not {alias.name for alias in node.names} & NEWER.get(node.module or "", set())
            assert node.module not in NEWER_MODULES
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            assert node.attr not in NEWER.get(node.value.id, set())
        if isinstance(node, ast.Name):
            assert node.id not in NEWER_BUILTINS


def test_the_check_finds_newer_syntax() -> None:
    with pytest.raises(SyntaxError):
        ast.parse("try:\n  pass\nexcept* ValueError:\n  pass\n", feature_version=(3, 10))


def test_the_runner_needs_nothing_but_what_irees_runtime_brings() -> None:
    packages = set()
    for content in SOURCE.values():
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.Import):
                packages |= {alias.name for alias in node.names}
            if isinstance(node, ast.ImportFrom):
                packages.add(node.module or "")
    tops = {name.partition(".")[0] for name in packages} - sys.stdlib_module_names
    # ml_dtypes comes with IREE's runtime; without pynvml a GPU's clock and temperature stay unknown.
    assert tops == {"mlsearch", "numpy", "iree", "ml_dtypes", "pynvml"}
    assert not any(name.startswith(("iree.compiler", "mlsearch.tune", "mlsearch.search")) for name in packages)


def test_every_module_that_the_runner_imports_travels_along() -> None:
    modules = {name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in SOURCE}
    for content in SOURCE.values():
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mlsearch"):
                assert node.module in modules


def test_the_file_is_a_program_and_the_same_each_time(tmp_path: Path) -> None:
    path = tmp_path / "runner.pyz"
    write_runner(path)
    assert path.read_bytes() == runner_archive()
    assert set(zipfile.ZipFile(io.BytesIO(path.read_bytes())).namelist()) == set(SOURCE)
    done = subprocess.run([sys.executable, path, "run", "--help"], capture_output=True, text=True, check=True)
    assert "--even-if-busy" in done.stdout
    done = subprocess.run(
        [sys.executable, path, "run", "missing", "-o", tmp_path / "m"], capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "mlsearch: error: can't read bundle missing: No such file or directory\n"


def test_what_the_runner_says_can_not_steer_a_terminal(tmp_path: Path) -> None:
    write_runner(tmp_path / "runner.pyz")
    done = run(tmp_path / "runner.pyz", tmp_path / "\x1b[2J\ngone", tmp_path / "m")
    assert done.returncode == 1
    assert "\x1b" not in done.stderr and done.stderr.count("\n") == 1


def test_where_nothing_can_be_written_one_line_says_so(tmp_path: Path) -> None:
    path = bundles.bundle(tmp_path)
    write_runner(tmp_path / "runner.pyz")
    limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "bash"]
    done = run(tmp_path / "runner.pyz", path, tmp_path / "m", limited)
    assert done.returncode == 1
    assert done.stderr.startswith("mlsearch: error: ") and done.stderr.count("\n") == 1


def test_a_batch_systems_signal_leaves_nothing_behind(tmp_path: Path) -> None:
    path = bundles.bundle(tmp_path)
    write_runner(tmp_path / "runner.pyz")
    (tmp_path / "tmp").mkdir()
    command = [sys.executable, tmp_path / "runner.pyz", "run", path, "-o", tmp_path / "m", "--even-if-busy"]
    environment = {**os.environ, "TMPDIR": str(tmp_path / "tmp")}

    def unpacked() -> list[Path]:
        return list((tmp_path / "tmp").glob("mlsearch-*/"))

    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 60
        while not unpacked() and time.monotonic() < deadline:
            time.sleep(0.002)
        assert unpacked()
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM
    assert not unpacked()

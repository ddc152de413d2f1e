"""Who may import whom. Parsed, not imported, so that a lazy import counts as well."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mlsearch

ROOT = Path(mlsearch.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
STAGES = ("search", "surrogate", "builder", "runner", "records")
LEAVES = ("candidate", "code_features", "workload", "errors", "summary", "events")
HEAVY = ("iree", "optuna", "numpy", "lightgbm", "ml_dtypes", "rich", "click", "sqlalchemy")


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imported(path: Path) -> tuple[tuple[str, int], ...]:
    """(module, line) of every import, wherever it stands; `from a import b` counts as `a` and as `a.b`."""
    return tuple(_imported(path))


def _imported(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            yield str(node.module), node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def users_of(package: str) -> dict[str, list[int]]:
    """Modules of ours that import a package, with the lines."""
    found: dict[str, list[int]] = {}
    for path in FILES:
        lines = [line for module, line in imported(path) if is_within(module, package)]
        if lines and not is_within(module_of(path), package):
            found[module_of(path)] = lines
    return found


def test_the_walk_sees_all_modules() -> None:
    assert {"mlsearch.ir.library", "mlsearch.tune.run", "mlsearch.cli.main"} <= {module_of(path) for path in FILES}
    assert "mlsearch.tune.run" in users_of("mlsearch.records")


def test_the_stages_never_import_one_another() -> None:
    for stage in STAGES:
        others = [other for other in STAGES if other != stage]
        for user in users_of(f"mlsearch.{stage}"):
            assert not any(is_within(user, f"mlsearch.{other}") for other in others), f"{user} imports {stage}"


def test_only_ir_uses_the_bindings() -> None:
    for package in ("iree.compiler.ir", "iree.compiler.dialects", "iree.compiler._mlir_libs"):
        for user in users_of(package):
            assert is_within(user, "mlsearch.ir"), f"{user} imports {package}"


def test_only_toolchain_and_builder_start_the_compiler() -> None:
    for user in users_of("iree.compiler.api"):
        assert is_within(user, "mlsearch.builder"), user
    assert users_of("iree.compiler.tools") == {}
    # Other modules start no process at all; a child is the one way to start one of ours.
    starters = {user for user in users_of("subprocess") if not is_within(user, "mlsearch.testing")}
    assert starters == {"mlsearch.toolchain", "mlsearch.child"}


def test_only_the_runner_uses_the_runtime() -> None:
    for user in users_of("iree.runtime"):
        assert is_within(user, "mlsearch.runner"), user


def test_the_library_knows_nothing_of_the_command_line() -> None:
    for skin, allowed in (("mlsearch.cli", ()), ("mlsearch.report", ("mlsearch.cli",))):
        for user in users_of(skin):
            assert any(is_within(user, package) for package in allowed), f"{user} imports {skin}"
    for user in users_of("click"):
        assert is_within(user, "mlsearch.cli"), user
    for user in users_of("rich"):
        assert is_within(user, "mlsearch.cli") or is_within(user, "mlsearch.report"), user


def test_what_passes_between_the_stages_is_light() -> None:
    for leaf in LEAVES:
        for module, line in imported(ROOT / f"{leaf}.py"):
            assert not any(is_within(module, heavy) for heavy in HEAVY), f"{leaf}.py:{line}: {module}"
            if is_within(module, "mlsearch") and module.count(".") == 1:
                assert module.removeprefix("mlsearch.") in LEAVES, f"{leaf}.py:{line}: {module}"


def test_the_pure_core_does_not_import_the_loop() -> None:
    for user in users_of("mlsearch.tune"):
        stage = user.split(".")[1]
        assert stage not in (*STAGES, "ir", "space", "spec", "task", "payload", "workbench"), user


def test_nothing_of_ours_pickles_or_evaluates() -> None:
    for package in ("pickle", "shelve", "marshal"):
        assert users_of(package) == {}, package
    for path in FILES:
        calls = [
            node.func.id
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ]
        assert not {"eval", "exec", "__import__"} & set(calls), path

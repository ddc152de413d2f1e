"""Compiler commands are built apart from running them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

import pytest

import mlsearch
from mlsearch.errors import NoSpaceError, TargetError, ToolchainError
from mlsearch.target import Target, host_hardware, resolve
from mlsearch.toolchain import ToolRun, compile_argv, library_argument, run, tool_path


def test_a_plain_compile() -> None:
    argv = compile_argv(Path("a b.mlir"), Path("out.vmfb"), ("--x=1", "--y"))
    assert argv == (str(tool_path("iree-compile")), "a b.mlir", "-o", "out.vmfb", "--x=1", "--y")


def test_phases_library_and_extras_follow_the_flags() -> None:
    argv = compile_argv(
        Path("m.mlir"),
        Path("o"),
        ("--x",),
        library=Path("l.mlir"),
        compile_from="flow",
        compile_to="executable-configurations",
        extra=("--z",),
    )
    assert argv[5:] == (
        "--compile-from=flow",
        "--compile-to=executable-configurations",
        "--iree-codegen-transform-dialect-library=l.mlir",
        "--mlir-disable-threading",
        "--z",
    )


def test_a_folder_with_an_at_sign_is_left_out_of_a_librarys_path_where_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "a@b"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert library_argument(folder / "l.mlir") == "l.mlir"
    assert library_argument(tmp_path / "l.mlir") == str(tmp_path / "l.mlir")
    with pytest.raises(ToolchainError, match="'@'"):
        library_argument(folder / "l@b.mlir")


def test_a_tool_that_is_not_installed_is_told() -> None:
    with pytest.raises(ToolchainError, match="no-such-tool is not installed"):
        tool_path("no-such-tool")


def test_a_tool_that_is_out_of_time_goes_with_the_processes_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = "import os, time; open('draft', 'w').write(str(os.getpid())); os.rename('draft', 'pid'); time.sleep(60)"
    outer = (
        f"import os, subprocess, sys; os.chdir({str(tmp_path)!r}); subprocess.run([sys.executable, '-c', {inner!r}])"
    )

    def out_of_time(process: subprocess.Popen[bytes], timeout: float) -> NoReturn:
        while process.poll() is None and not (tmp_path / "pid").exists():
            time.sleep(0.01)
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "communicate", out_of_time)
    with pytest.raises(ToolchainError, match="no result after 3 s"):
        run((sys.executable, "-c", outer), timeout_s=3.0)
    assert _ends(_written(tmp_path / "pid"))


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells of a parent's end on Linux only")
def test_a_tool_goes_with_all_its_processes_when_its_parent_is_killed_outright(tmp_path: Path) -> None:
    inner = "import os, pathlib, time; pathlib.Path('inner').write_text(str(os.getpid())); time.sleep(60)"
    outer = (
        "import os, pathlib, subprocess, sys; pathlib.Path('outer').write_text(str(os.getpid()));"
        f" subprocess.run([sys.executable, '-c', {inner!r}])"
    )
    parent = f"import sys; from mlsearch.toolchain import run; run((sys.executable, '-c', {outer!r}))"
    with subprocess.Popen([sys.executable, "-c", parent], cwd=tmp_path, env=_environment()) as process:
        outer_pid, inner_pid = (_written(tmp_path / name) for name in ("outer", "inner"))
        process.kill()
    assert _ends(outer_pid) and _ends(inner_pid)


def _environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(mlsearch.__file__).parents[1])}


def _written(path: Path) -> int:
    """A number that another process writes to a file."""
    for _ in range(400):
        if path.exists() and path.read_text():
            return int(path.read_text())
        time.sleep(0.05)
    raise AssertionError(f"nothing in {path}")


def _ends(pid: int) -> bool:
    """Whether a process is soon gone, or dead and not yet collected by whoever adopted it."""
    stat = Path("/proc", str(pid), "stat")
    for _ in range(1000):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_tool_that_does_not_start_is_told_as_ever(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: '/no/such/tool'"):
        run(("/no/such/tool",))
    (tmp_path / "text").write_text("no program")
    with pytest.raises(PermissionError):
        run((str(tmp_path / "text"),))


def test_a_tool_that_crashes_says_how() -> None:
    assert run((sys.executable, "-c", "import os; os.abort()")).returncode == -signal.SIGABRT
    assert run((sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")).returncode == -signal.SIGKILL


def test_a_failing_tool_is_a_value_with_all_it_said() -> None:
    done = run(
        (sys.executable, "-c", "import sys; print('out'); print('a\\nx: error: b', file=sys.stderr); sys.exit(3)")
    )
    assert (done.returncode, done.stdout) == (3, "out\n")
    assert done.headline == "x: error: b"


def test_a_tool_that_does_not_end_is_told_with_its_command() -> None:
    with pytest.raises(ToolchainError, match=r"no result after 0 s: .*time\.sleep"):
        run((sys.executable, "-c", "import time; time.sleep(30)"), timeout_s=0.2)


def test_output_that_is_no_utf8_is_no_crash() -> None:
    assert run((sys.executable, "-c", r"import os; os.write(1, b'\xff')")).stdout == "�"


CRASHED = """x.mlir:5:8: warning: reads uninitialized values
x.mlir:1:1: note: called from
Please report issues to https://github.com/iree-org/iree/issues and include the crash backtrace.
Stack dump:
0.\tProgram arguments: iree-compile x.mlir
"""


def test_a_warning_is_not_taken_for_the_reason_of_a_crash() -> None:
    assert ToolRun(("x",), 139, "", CRASHED).headline == "the compiler crashed, without a word on why"
    told = "LLVM ERROR: Cannot select\n"
    assert ToolRun(("x",), 134, "", CRASHED.replace("Please", told + "Please")).headline == told.strip()


@pytest.mark.parametrize(
    ("stderr", "stdout", "headline"),
    [
        ("warning: w\n<stdin>:1:2: error: bad thing\n  %ir", "", "<stdin>:1:2: error: bad thing"),
        ("only this\nand that", "", "only this"),
        ("", "on stdout", "on stdout"),
        ("", "", "no message"),
    ],
)
def test_the_headline_is_the_first_error(stderr: str, stdout: str, headline: str) -> None:
    assert ToolRun(("x",), 1, stdout, stderr).headline == headline


def test_a_command_can_be_pasted_into_a_shell() -> None:
    assert ToolRun(("iree-compile", "a b$c.mlir"), 0, "", "").command == "iree-compile 'a b$c.mlir'"


# ----------------------------------------------------------------------------------------- target


def test_an_unknown_target_names_those_that_are_known() -> None:
    with pytest.raises(TargetError, match=r"'cuda9'; known: llvm-cpu"):
        resolve("cuda9", 1)


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_that_the_machine_does_not_have_are_refused(threads: int) -> None:
    with pytest.raises(TargetError, match="--threads"):
        resolve("llvm-cpu", threads)


def test_one_thread_runs_in_the_caller_and_more_in_a_pool() -> None:
    hardware = host_hardware()
    assert Target("llvm-cpu", hardware, (), 1).device_uri == "local-sync"
    assert Target("llvm-cpu", hardware, (), 2).device_uri == "local-task"


def test_a_fingerprint_changes_with_whatever_changes_times() -> None:
    hardware = host_hardware()
    prints = {
        Target("llvm-cpu", hardware, (), 1).fingerprint,
        Target("llvm-cpu", hardware, ("--x",), 1).fingerprint,
        Target("llvm-cpu", hardware, (), 2).fingerprint,
    }
    assert len(prints) == 3
    assert Target("llvm-cpu", hardware, (), 1).fingerprint in prints


def test_facts_of_the_hardware_can_be_given_and_make_another_target() -> None:
    plain, given = resolve("llvm-cpu", 1), resolve("llvm-cpu:l2_bytes=123456,vector_registers=16", 1)
    assert (given.hardware.l2_bytes, given.hardware.vector_registers) == (123456, 16)
    assert given.hardware.l1_bytes == plain.hardware.l1_bytes
    assert given.backend == "llvm-cpu"
    assert given.compile_flags == plain.compile_flags
    assert given.fingerprint != plain.fingerprint


@pytest.mark.parametrize(
    "part", ["l2_bytes", "l2_bytes=", "l2_bytes=0", "l2_bytes=1M", "l2_bytes=-1", "name=x", "l9=1", ""]
)
def test_facts_that_are_none_are_told(part: str) -> None:
    with pytest.raises(TargetError, match=rf"'{part}' is no fact; write FACT=NUMBER with one of vector_bytes, .*cores"):
        resolve(f"llvm-cpu:l1_bytes=1,{part}", 1)


def test_what_is_known_of_the_hardware_is_plausible() -> None:
    hardware = host_hardware()
    assert hardware.vector_bytes in (16, 32, 64)
    assert hardware.vector_registers in (16, 32)
    assert 1024 <= hardware.l1_bytes <= hardware.l2_bytes <= hardware.llc_bytes
    assert hardware.cores >= 1


def test_a_file_whose_name_starts_with_a_dash_is_no_option() -> None:
    assert compile_argv(Path("-x.mlir"), Path("o"), ())[1] == "./-x.mlir"
    assert compile_argv(Path("-"), Path("o"), ())[1] == "./-"


def test_a_full_disk_is_no_fault_of_what_is_compiled() -> None:
    says = f"import sys; print('LLVM ERROR: IO failure: {os.strerror(28)}', file=sys.stderr); sys.exit(EXIT)"
    with pytest.raises(NoSpaceError, match="no space left on device: free some, or set TMPDIR"):
        run((sys.executable, "-c", says.replace("EXIT", "1")))
    assert run((sys.executable, "-c", says.replace("EXIT", "0"))).returncode == 0

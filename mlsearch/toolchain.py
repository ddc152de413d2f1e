"""The only place that starts IREE's command-line compiler. Building a command is apart from running it.

Candidates by the hundred are compiled in process by `builder`; this is for the few compiles around them.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mlsearch.errors import NoSpaceError, ToolchainError
from mlsearch.files import tells_of_no_space

PREPROCESSING_FLAG = "--iree-preprocessing-transform-spec-filename"
LIBRARY_FLAG = "--iree-codegen-transform-dialect-library"
NO_THREADS = "--mlir-disable-threading"
"""IREE 3.13 loads a transform library under a lock, and verifies it with the thread pool: while it waits there, a
thread may take up the next dispatch, which wants the same lock. Seen as a hang, now and then."""
_LEASH = Path(__file__).with_name("leash.py")


_CRASH = "Please report issues to "
"""What IREE prints above the stack of its crash, whatever warnings came before."""


@dataclass(frozen=True)
class ToolRun:
    """A finished tool: the command, how it ended, all it said."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str

    @property
    def command(self) -> str:
        """The command, quoted for a shell."""
        return shlex.join(self.argv)

    @property
    def headline(self) -> str:
        """The first error line, without the IR that the compiler prints after it; of a crash, that it was one."""
        lines = self.stderr.strip().splitlines() or self.stdout.strip().splitlines() or ["no message"]
        errors = [line for line in lines if "error:" in line or line.startswith("LLVM ERROR")]
        if errors:
            return errors[0].strip()[:400]
        if any(line.startswith(_CRASH) for line in lines):
            return "the compiler crashed, without a word on why"
        return lines[0].strip()[:400]


def tool_path(name: str) -> Path:
    """Path of a tool that came with the running interpreter's packages, e.g. `iree-compile`."""
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts"))):
        if (folder / name).exists():
            return folder / name
    raise ToolchainError(f"{name} is not installed beside {sys.executable}; run: pip install iree-base-compiler")


def compile_argv(
    module: Path,
    output: Path,
    flags: tuple[str, ...],
    *,
    library: Path | None = None,
    preprocessing: Path | None = None,
    compile_from: str | None = None,
    compile_to: str | None = None,
    extra: tuple[str, ...] = (),
) -> tuple[str, ...]:
    """An `iree-compile` command line, for the current folder. Raises ToolchainError, see `library_argument`."""
    argv = [str(tool_path("iree-compile")), _file_argument(module), "-o", str(output), *flags]
    if compile_from:
        argv.append(f"--compile-from={compile_from}")
    if compile_to:
        argv.append(f"--compile-to={compile_to}")
    if preprocessing:
        argv.append(f"{PREPROCESSING_FLAG}={preprocessing}")
    if library:
        argv.append(f"{LIBRARY_FLAG}={library_argument(library)}")
        argv.append(NO_THREADS)
    return (*argv, *extra)


def _file_argument(path: Path) -> str:
    """A file whose name starts with a dash would be taken for an option, or for standard input."""
    return f"./{path}" if str(path).startswith("-") else str(path)


def library_argument(library: Path) -> str:
    """How to name a transform library to IREE, which takes what follows an @ for the name of a sequence.

    Raises ToolchainError for a path that can't be written without an @.
    """
    for text in (str(library), os.path.relpath(library)):
        if "@" not in text:
            return text
    raise ToolchainError(f"iree-compile can't load a transform library from a path with an '@': {library}")


def run(argv: tuple[str, ...], timeout_s: float = 900.0) -> ToolRun:
    """Run a tool to its end. A nonzero exit is in the result; only a timeout raises (ToolchainError), a full disk
    (NoSpaceError), and a tool that does not start (OSError).

    Whatever ends this early ends the tool with all its processes: `iree-compile` is a script that starts the compiler.
    On Linux that holds for SIGKILL as well, see `leash`.
    """
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as status:
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_LEASH), str(os.getpid()), str(write_end), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(write_end,),
                start_new_session=True,
            )
        finally:
            os.close(write_end)
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except BaseException as error:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if isinstance(error, subprocess.TimeoutExpired):
                    raise ToolchainError(f"no result after {timeout_s:.0f} s: {shlex.join(argv)}") from error
                raise
        refused = status.read()
    if refused:
        raise OSError(int(refused), os.strerror(int(refused)), argv[0])
    done = ToolRun(argv, process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace"))
    if done.returncode and tells_of_no_space(done.stderr):
        raise NoSpaceError(f"no space left on device: free some, or set TMPDIR or --workdir (command: {done.command})")
    return done

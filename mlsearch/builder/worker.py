"""The child of `LocalBuilder`: compiles one request after the other in process.

In process a candidate costs 0.3 s less than a new `iree-compile`. Everything that ends up in an artifact as
debug info (the module's file name) is relative to the worker's own folder and equal in all workers, so equal
candidates give byte-equal artifacts wherever they are compiled.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iree.compiler import api
from iree.compiler.api import ctypes_dl

from mlsearch.builder.diagnostics import entries_in, failed_stage, headline
from mlsearch.child import child_arguments, serve
from mlsearch.toolchain import LIBRARY_FLAG, NO_THREADS

MODULE = Path("module.mlir")
LIBRARY = Path("library.mlir")

# Known to `iree-compile` only, not to a session. It acts before dispatches form; here compilation begins after that.
_EARLIER_FLAGS = ("--iree-global-opt-enable-early-materialization",)

# The library flag is per process, so a build without a library gets one that changes nothing.
NO_LIBRARY = """\
module attributes {transform.with_named_sequence} {
  transform.named_sequence @__kernel_config(%variant: !transform.any_op {transform.readonly}) {
    transform.yield
  }
}
"""


class CompileError(Exception):
    """The candidate does not compile: stage, and a message if the log doesn't have it."""

    def __init__(self, stage: str, message: str = "") -> None:
        super().__init__(message)
        self.stage = stage
        self.message = message


def main() -> None:
    folder = Path(child_arguments()[0])
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    # What IREE's linker leaves behind when killed then goes with the folder. Relative, because IREE does not
    # quote the paths that it gives to the linker.
    os.environ["TMPDIR"] = "."
    start_compiler()
    serve(answer)


def start_compiler() -> None:
    """Set what is global to the process. Once only."""
    api._initializeGlobalCL(
        "mlsearch",
        f"{LIBRARY_FLAG}={LIBRARY}",
        # Its threads can lock each other out while they load the library, see `toolchain.NO_THREADS`; and with a
        # process per core they gain nothing.
        NO_THREADS,
        # Constants don't belong in the configured IR that is searched for entries, nor in logs.
        "--mlir-elide-elementsattrs-if-larger=64",
        "--mlir-elide-resource-strings-if-larger=64",
    )
    for function in ("SetCompileFromPhase", "SetCompileToPhase"):
        symbol = getattr(ctypes_dl._dylib, f"ireeCompilerInvocation{function}")
        symbol.argtypes, symbol.restype = [ctypes.c_void_p, ctypes.c_char_p], None


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Build `request["module"]` into `request["artifact"]`.

    The answer has `outcome`, which is `built` (with `digest`), `failed` (`stage`, `message`) or `not_applied`
    (`missing`), and `compile_s`; or it has `fatal`: why nothing can be built here. The log stays on failure.
    """
    log = Path(request["log"])
    try:
        with _saying_to(log), _time_limit(request["timeout_s"]):
            started = time.monotonic()
            outcome = _outcome(request, log)
            outcome["compile_s"] = time.monotonic() - started
        if outcome["outcome"] != "failed":
            log.unlink()
        return outcome
    except OSError as error:
        if error.errno == errno.ENOMEM:
            raise
        return {"fatal": os.strerror(error.errno or errno.EIO)}


def _outcome(request: dict[str, Any], log: Path) -> dict[str, Any]:
    artifact = Path(request["artifact"])
    LIBRARY.write_text(NO_LIBRARY if request["library"] is None else request["library"])
    MODULE.unlink(missing_ok=True)
    MODULE.symlink_to(request["module"])
    try:
        content, missing = compile_module(request["flags"], request["entries"], log)
    except CompileError as error:
        said = _read(log)
        if os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) from None
        return {
            "outcome": "failed",
            "stage": failed_stage(said) or error.stage,
            "message": error.message or headline(said) or "the compiler gave no reason",
        }
    if missing:
        return {"outcome": "not_applied", "missing": missing}
    _write_whole(artifact, content)
    return {"outcome": "built", "digest": hashlib.sha256(content).hexdigest()}


def compile_module(flags: list[str], entries: list[str], log: Path) -> tuple[bytes, list[str]]:
    """The artifact's bytes, or (with no bytes) those of `entries` that the configured IR does not show.

    Stops at the configured IR on the way and looks at it there. That leaves the artifact as it is, to the
    byte, and a schedule that isn't applied isn't compiled to the end. Raises CompileError.
    """
    with api.Session() as session:
        try:
            session.set_flags(*(flag for flag in flags if flag not in _EARLIER_FLAGS))
        except ValueError as error:
            raise CompileError("compile", " ".join(str(error).split())) from None
        with session.invocation() as invocation:
            invocation.enable_console_diagnostics()
            _phases(invocation, b"flow", b"executable-configurations")
            _parse(session, invocation)
            _execute(invocation, log)
            if entries:
                found = entries_in(_configured_ir(invocation))
                missing = [entry for entry in entries if entry not in found]
                if missing:
                    return b"", missing
            _phases(invocation, b"executable-configurations", b"end")
            _execute(invocation, log)
            return _bytecode(invocation), []


def _phases(invocation: Any, first: bytes, last: bytes) -> None:
    ctypes_dl._dylib.ireeCompilerInvocationSetCompileFromPhase(invocation._inv_p, first)
    ctypes_dl._dylib.ireeCompilerInvocationSetCompileToPhase(invocation._inv_p, last)


def _parse(session: Any, invocation: Any) -> None:
    try:
        source = api.Source.open_file(session, str(MODULE))
    except ValueError as error:
        raise CompileError("parse", str(error).replace(str(MODULE), str(MODULE.readlink()))) from None
    if not invocation.parse_source(source):
        raise CompileError("parse")


def _execute(invocation: Any, log: Path) -> None:
    if not invocation.execute() or failed_stage(_read(log)):
        raise CompileError("compile")


def _configured_ir(invocation: Any) -> bytes:
    with api.Output.open_membuffer() as output:
        invocation.output_ir(output)
        return bytes(output.map_memory())


def _bytecode(invocation: Any) -> bytes:
    with api.Output.open_membuffer() as output:
        try:
            invocation.output_vm_bytecode(output)
        except ValueError as error:
            raise CompileError("compile", str(error)) from None
        content = bytes(output.map_memory())
    if not content:
        raise CompileError("compile", "the compiler reported success but gave an empty artifact")
    return content


def _write_whole(path: Path, content: bytes) -> None:
    """A file at `path` is complete, whatever happens meanwhile. Raises OSError, e.g. on a full disk."""
    part = path.with_name(path.name + ".part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise


def _read(log: Path) -> str:
    return log.read_text(errors="replace")


@contextmanager
def _saying_to(log: Path) -> Iterator[None]:
    """Native code writes to descriptors 1 and 2: point them at `log` meanwhile."""
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2)}
    try:
        for descriptor in saved:
            os.dup2(target, descriptor)
        yield
    finally:
        for descriptor, original in saved.items():
            os.dup2(original, descriptor)
            os.close(original)
        os.close(target)


@contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """The kernel ends this process with SIGALRM after `seconds`, inside native code too.

    The parent has a deadline as well, but it may be measuring for a while before it looks.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


if __name__ == "__main__":
    main()

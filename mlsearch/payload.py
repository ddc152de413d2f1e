"""Load a payload: any `.mlir` that `iree-compile` accepts, brought to IREE's flow phase."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsearch import toolchain
from mlsearch.errors import PayloadError
from mlsearch.ir import flow
from mlsearch.ir.flow import EntryFunction
from mlsearch.ir.module import Module, new_context, parse
from mlsearch.target import Target
from mlsearch.variant import DEFAULT, Variant


@dataclass(frozen=True)
class Payload:
    path: Path
    """The user's file."""
    flow_module: Path
    """The same at the flow phase, where dispatches have formed."""
    functions: tuple[EntryFunction, ...]
    """What a user can call; all of them, or the one that was asked for."""
    only_function: str | None = None
    """The one that was asked for."""
    preprocessing: Path | None = None
    """The script that rewrote it on the way, if its variant has one."""

    def parse(self) -> Module:
        """The flow-phase module."""
        return parse(self.flow_module.read_text(), new_context())


def load_payload(
    path: Path, target: Target, workdir: Path, function: str | None = None, variant: Variant = DEFAULT
) -> Payload:
    """`target` has the variant's flags already, see `Variant.on`.

    Raises PayloadError with the compiler's own message, or for a function that is not there.
    """
    if not path.is_file():
        raise PayloadError(f"payload {path} is not a file" if path.exists() else f"payload {path} does not exist")
    workdir.mkdir(parents=True, exist_ok=True)
    flow_module = workdir / "payload.flow.mlir"
    preprocessing = None
    if variant.script is not None:
        preprocessing = workdir / "preprocessing.mlir"
        preprocessing.write_text(variant.script)
    argv = toolchain.compile_argv(
        path, flow_module, target.compile_flags, preprocessing=preprocessing, compile_to="flow"
    )
    done = toolchain.run(argv)
    if done.returncode or not flow_module.is_file():
        raise PayloadError(f"iree-compile does not accept {path}: {done.headline} (command: {done.command})")
    functions = flow.entry_functions(parse(flow_module.read_text(), new_context()))
    if function is not None:
        functions = [entry for entry in functions if entry.name == function] or _no_such(function, functions)
    return Payload(path, flow_module, tuple(functions), function, preprocessing)


def _no_such(function: str, functions: list[EntryFunction]) -> list[EntryFunction]:
    known = ", ".join(repr(entry.name) for entry in functions) or "none"
    raise PayloadError(f"--function {function!r}: the payload has no such public function; it has {known}")

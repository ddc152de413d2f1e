"""Load a payload: any `.mlir` that `iree-compile` accepts, brought to IREE's flow phase."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch import toolchain
from mlsearch.errors import PayloadError
from mlsearch.ir import flow
from mlsearch.ir.flow import EntryFunction
from mlsearch.ir.module import Module, new_context, parse
from mlsearch.ir.preprocessing import SCRIPT_NAME
from mlsearch.target import Target
from mlsearch.toolchain import ToolRun
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
    others: tuple[str, ...] = ()
    """Public functions beside the one that was asked for: they are compiled as well, and never run."""

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
        raise PayloadError(f"{_refusal(path, variant, preprocessing, done)} (command: {done.command})")
    text = flow_module.read_text()
    module = parse(text, new_context())
    functions = [_with(entry, indices=flow.may_index(text)) for entry in flow.entry_functions(module)]
    if not functions:
        raise PayloadError(f"{path} has no public function, so there is nothing to compile{_maybe_a_spec(path)}")
    others: tuple[str, ...] = ()
    if function is not None:
        others = tuple(entry.name for entry in functions if entry.name != function)
        functions = [entry for entry in functions if entry.name == function] or _no_such(function, functions)
    return Payload(path, flow_module, tuple(functions), function, preprocessing, others)


def _maybe_a_spec(path: Path) -> str:
    """IREE drops a transform library without a word, so a spec in place of the payload looks like an empty one."""
    is_library = b"transform.with_named_sequence" in path.read_bytes()
    return "; it is a transform library, such as a spec: name the payload that it is for" if is_library else ""


def _with(entry: EntryFunction, *, indices: bool) -> EntryFunction:
    return replace(entry, signature=entry.signature and replace(entry.signature, indices=indices))


def _refusal(path: Path, variant: Variant, preprocessing: Path | None, done: ToolRun) -> str:
    """The compiler's own message; what is wrong in a variant's script is told with its file and line."""
    said = done.headline
    for mark in (f"{preprocessing}:", f"{SCRIPT_NAME}:"):
        if preprocessing is not None and said.startswith(mark):
            where = variant.where or f"its script, {preprocessing}"
            return f"variant '{variant.name}' fails on {path}: {where}:{said.removeprefix(mark)}"
    return f"iree-compile does not accept {path}: {said}"


def _no_such(function: str, functions: list[EntryFunction]) -> list[EntryFunction]:
    known = ", ".join(repr(entry.name) for entry in functions) or "none"
    raise PayloadError(f"--function {function!r}: the payload has no such public function; it has {known}")

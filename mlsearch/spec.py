"""Winners to a spec, and the proof that a spec was applied."""

from __future__ import annotations

import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mlsearch import __version__, toolchain
from mlsearch.candidate import Candidate
from mlsearch.errors import SpecError
from mlsearch.ir import library
from mlsearch.ir.library import EntryText
from mlsearch.summary import Speedup
from mlsearch.target import Target, compiler_version

LIBRARY_FLAG = "--iree-codegen-transform-dialect-library"
TUNING_SPEC_FLAG = "--iree-codegen-tuning-spec-path"


@dataclass(frozen=True)
class SpecEntry:
    """A winner: the candidate of one task, with what was measured."""

    task: str
    label: str
    functions: tuple[str, ...]
    """Dispatch functions of the payload that it was measured for."""
    sites: int
    candidate: Candidate
    speedup: Speedup
    text: EntryText

    @property
    def name(self) -> str:
        return self.text.name


def spec_text(
    entries: Sequence[SpecEntry], payload: Path, target: Target, when: str, whole: str = "not checked"
) -> str:
    """The spec with its header; `whole` tells of the whole payload. Without entries it is empty and says so."""
    body = library.EMPTY_LIBRARY
    if entries:
        body = library.readable(library.library_text([entry.text for entry in entries]))
    return "".join(f"// {line}".rstrip() + "\n" for line in _header(entries, payload, target, when, whole)) + body


def _header(entries: Sequence[SpecEntry], payload: Path, target: Target, when: str, whole: str) -> list[str]:
    flags = shlex.join(target.compile_flags)
    lines = [
        f"Tuned by mlsearch {__version__} for IREE {compiler_version()} on {when}.",
        f"Payload: {_one_line(payload.name)}",
        f"Target:  {target.backend}, {target.hardware.name}, {target.threads} thread(s)"
        f" (fingerprint {target.fingerprint})",
        "",
    ]
    if not entries:
        return [*lines, "No schedule was proven faster than the untuned build, so this spec changes nothing."]
    lines += ["Apply it with the flags that it was tuned under:", f"  iree-compile {flags} \\"]
    if target.chip is not None:
        lines += [
            f"    {LIBRARY_FLAG}=SPEC PAYLOAD -o OUT.vmfb",
            f"{TUNING_SPEC_FLAG} is silently ignored for CUDA. Entries match generalized ops, because IREE",
            "turns named ones into linalg.generic before it looks here.",
        ]
    elif any(entry.text.is_strategy for entry in entries):
        lines += [
            f"    {LIBRARY_FLAG}=SPEC PAYLOAD -o OUT.vmfb",
            f"It holds a whole strategy, which IREE does not find behind {TUNING_SPEC_FLAG}.",
        ]
    else:
        lines += [
            f"    {LIBRARY_FLAG}=SPEC PAYLOAD -o OUT.vmfb",
            f"{TUNING_SPEC_FLAG}=SPEC does the same.",
        ]
    lines += [
        "IREE says nothing when an entry no longer matches; `mlsearch verify PAYLOAD --spec SPEC` does.",
        "",
        f"Whole payload: {_one_line(whole)}",
        "",
        "Entries, alone and in paired runs against the untuned build:",
    ]
    for entry in entries:
        speedup = entry.speedup
        lines += [
            f"  {entry.name}  ({entry.sites} site(s))",
            f"    {speedup.baseline_us:.1f} us -> {speedup.tuned_us:.1f} us, {speedup.speedup:.2f}x faster"
            f" (95 % interval {speedup.ci95[0]:.2f} to {speedup.ci95[1]:.2f})",
            f"    {entry.candidate.template}: "
            + " ".join(f"{name}={value}" for name, value in entry.candidate.assignment),
        ]
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def read_spec(path: Path) -> str:
    """Raises SpecError."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"spec {path} can't be read: {error}") from None


@dataclass(frozen=True)
class Application:
    """Where the entries of a spec take hold in a payload."""

    entries: tuple[str, ...]
    """All entries, in the order of the spec."""
    functions: dict[str, tuple[str, ...]]
    """Entry to the dispatch functions that it is applied to; entries without one are missing here."""

    @property
    def unused(self) -> tuple[str, ...]:
        return tuple(entry for entry in self.entries if entry not in self.functions)


def application(text: str, where: str, module: Path, phase: str | None, target: Target, workdir: Path) -> Application:
    """Compile `module` (from `phase`, or from its beginning) up to its configuration and see which entries fire.

    Raises SpecError if the spec can't be followed or breaks the compilation.
    """
    # New each time: neither a spec nor a payload can carry it already.
    mark = f"{library.PROOF}.{secrets.token_hex(8)}."
    marked, entries = library.instrumented(text, where, mark)
    if not entries:
        return Application((), {})
    path, output = workdir / "proof.library.mlir", workdir / "proof.configured.mlir"
    path.write_text(marked)
    argv = toolchain.compile_argv(
        module,
        output,
        target.compile_flags,
        library=path,
        compile_from=phase,
        compile_to="executable-configurations",
    )
    done = toolchain.run(argv)
    if done.returncode or not output.is_file():
        raise SpecError(f"{where} breaks the compilation: {done.headline} (command: {done.command})")
    return Application(entries, library.proofs(output.read_text(), mark))

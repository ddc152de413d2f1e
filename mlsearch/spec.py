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
from mlsearch.ir import library, proof
from mlsearch.ir.library import EntryText
from mlsearch.ir.preprocessing import carry
from mlsearch.summary import Speedup
from mlsearch.target import Target, compiler_version
from mlsearch.toolchain import LIBRARY_FLAG, PREPROCESSING_FLAG
from mlsearch.variant import DEFAULT, Variant

TUNING_SPEC_FLAG = "--iree-codegen-tuning-spec-path"
NEVER_FIRES = "it fires on the task alone, but not when the payload is compiled from its beginning"
"""Why a winner is left out."""


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
    entries: Sequence[SpecEntry],
    payload: Path,
    target: Target,
    when: str,
    whole: str = "not checked",
    variant: Variant = DEFAULT,
) -> str:
    """The spec with its header; `whole` tells of the whole payload. Without entries, and for the payload as it is, it
    is empty and says so. `target` is without the variant's flags."""
    body = library.EMPTY_LIBRARY
    if entries:
        body = library.readable(library.library_text([entry.text for entry in entries]))
    if not variant.is_default:
        body = carry(body, variant.name, variant.flags, variant.script)
    header = _header(entries, payload, target, when, whole, variant)
    return "".join(f"// {_comment(line)}".rstrip() + "\n" for line in header) + body


def _header(
    entries: Sequence[SpecEntry], payload: Path, target: Target, when: str, whole: str, variant: Variant
) -> list[str]:
    flags = shlex.join(variant.on(target).compile_flags)
    if variant.script is not None:
        flags += f" {PREPROCESSING_FLAG}=SPEC"
    lines = [
        f"Tuned by mlsearch {__version__} for IREE {compiler_version()} on {when}.",
        f"Payload: {_one_line(payload.name)}",
        f"Target:  {target.backend}, {target.hardware.name}, {target.threads} thread(s)"
        f" (fingerprint {target.fingerprint})",
        "",
    ]
    if not entries and variant.is_default:
        return [*lines, "No schedule was proven faster than the untuned build, so this spec changes nothing."]
    lines += ["Apply it with the flags that it was tuned under:", f"  iree-compile {flags} \\"]
    if not variant.is_default:
        rewrites = " (@__transform_main in here rewrites the payload)" if variant.script is not None else ""
        lines.insert(-2, f"Variant of the payload: {variant.name}{rewrites}")
    if not entries:
        return [
            *lines,
            "    PAYLOAD -o OUT.vmfb",
            "These flags are all: no schedule was proven faster than what IREE chooses under them.",
            "",
            f"Whole payload: {_one_line(whole)}",
        ]
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


def _comment(line: str) -> str:
    """After a line break in a name, the rest of it would be IR that the compiler follows."""
    return "".join(character if character.isprintable() else " " for character in line)


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


def application(
    text: str,
    where: str,
    module: Path,
    phase: str | None,
    target: Target,
    workdir: Path,
    preprocessing: Path | None = None,
) -> Application:
    """Compile `module` (from `phase`, or from its beginning) up to its configuration and see which entries fire.

    `target` has the flags of the spec's variant; `preprocessing` is its script.

    Raises SpecError if the spec can't be followed or breaks the compilation.
    """
    # New each time: neither a spec nor a payload can carry it already.
    mark = f"{proof.PROOF}.{secrets.token_hex(8)}."
    marked, entries = proof.instrumented(text, where, mark)
    if not entries:
        return Application((), {})
    path, output = workdir / "proof.library.mlir", workdir / "proof.configured.mlir"
    path.write_text(marked)
    argv = toolchain.compile_argv(
        module,
        output,
        target.compile_flags,
        library=path,
        preprocessing=preprocessing,
        compile_from=phase,
        compile_to="executable-configurations",
    )
    done = toolchain.run(argv)
    if done.returncode or not output.is_file():
        raise SpecError(f"{where} breaks the compilation: {done.headline} (command: {done.command})")
    return Application(entries, proof.proofs(output.read_text(), mark))

"""Compile a payload with a spec, and prove that the spec took hold."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsearch import spec as specs
from mlsearch import target as targets
from mlsearch import toolchain
from mlsearch.errors import PayloadError, SpecError
from mlsearch.scratch import scratch_folder
from mlsearch.variant import variant_of


@dataclass(frozen=True)
class Delivery:
    output: Path
    applied: tuple[tuple[str, tuple[str, ...]], ...]
    """(entry, dispatch functions that it was applied to)."""


def compile_payload(payload: Path, spec: Path, output: Path, target: str) -> Delivery:
    """Raises SpecError when an entry applies nowhere, and then writes no output; PayloadError when the payload does
    not compile."""
    resolved = targets.resolve(target, 1)
    text = specs.read_spec(spec)
    variant = variant_of(text, str(spec))
    resolved = variant.on(resolved)
    preprocessing = spec if variant.script is not None else None
    with scratch_folder() as workdir:
        found = specs.application(text, str(spec), payload, None, resolved, workdir, preprocessing)
        if found.unused:
            raise SpecError(
                f"{spec}: entry '{found.unused[0]}' applies to nothing in {payload}; tune it again, or check that the"
                " flags and the compiler are those of the spec's header"
            )
        draft = output.with_name(f".{output.name}.draft")
        argv = toolchain.compile_argv(
            payload,
            draft,
            resolved.compile_flags,
            library=spec if found.entries else None,
            preprocessing=preprocessing,
        )
        done = toolchain.run(argv)
        if done.returncode or not draft.is_file():
            draft.unlink(missing_ok=True)
            raise PayloadError(f"{payload} does not compile with {spec}: {done.headline} (command: {done.command})")
        draft.replace(output)
    return Delivery(output, tuple(found.functions.items()))

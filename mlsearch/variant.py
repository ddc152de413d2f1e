"""Payload variants: sets of compiler flags and rewrites of the payload, which decide what dispatches there are.

A schedule can only change a dispatch. What comes before (packing, data tiling, im2col, the optimization level) is
chosen for the payload as a whole, and decided by its measured time.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mlsearch.errors import MlsearchError, SpecError, TemplateError
from mlsearch.ir.preprocessing import Preprocessing, bind_preprocessing, carried, read_preprocessing
from mlsearch.space.template import PREPROCESSING, built_in_folder
from mlsearch.summary import DEFAULT_VARIANT
from mlsearch.target import Target

EVERY = "all"

SWITCHES = (
    "opt-data-tiling",
    "dispatch-creation-data-tiling",
    "dispatch-creation-enable-aggressive-fusion",
    "dispatch-creation-enable-aggressive-reshape-movement",
    "dispatch-creation-enable-fuse-padding-into-linalg-consumer-ops",
    "dispatch-creation-enable-split-reduction",
    "dispatch-creation-fuse-multi-use",
    "flow-enable-pad-handling",
    "global-opt-data-tiling",
    "global-opt-enable-early-materialization",
    "global-opt-propagate-transposes-through-conv",
    "global-opt-use-im2col-for-convs",
    "llvmcpu-enable-inner-tiled",
    "llvmcpu-reassociate-fp-reductions",
    "llvmcpu-skip-intermediate-roundings",
    "llvmcpu-use-decompose-softmax-fuse",
    "llvmcpu-use-fast-min-max-ops",
    "opt-aggressively-propagate-transposes",
    "opt-const-eval",
    "opt-generalize-matmul",
    "opt-outer-dim-concat",
)
_FLAG = re.compile(
    rf"--iree-(({'|'.join(SWITCHES)})(=(true|false))?"
    r"|(opt|global-optimization-opt|dispatch-creation-opt|llvmcpu-mlir-opt)-level=O[0-3]"
    r"|llvmcpu-enable-(llvm-)?ukernels=[a-z0-9_,]+"
    r"|llvmcpu-stack-allocation-limit=[0-9]+"
    # Passes without options: some of those name files.
    r"|preprocessing-pass-pipeline=builtin\.module\([a-z0-9_.,()-]*\))"
)
"""Flags that change code and nothing else: the flags of a spec can't make the compiler write files or load plugins."""


@dataclass(frozen=True)
class Variant:
    name: str
    flags: tuple[str, ...] = ()
    """For the compiler, at all phases, beside the target's."""
    script: str | None = None
    """Text of a transform library whose `@__transform_main` rewrites the payload before dispatches form."""
    where: str | None = field(default=None, compare=False)
    """The file that the script is from, for messages."""

    @property
    def is_default(self) -> bool:
        """The payload as it is."""
        return not self.flags and self.script is None

    def on(self, target: Target) -> Target:
        """The target with this variant's flags."""
        return replace(target, compile_flags=target.compile_flags + self.flags) if self.flags else target


DEFAULT = Variant(DEFAULT_VARIANT)


def variants_for(target: Target, folder: Path | None, wanted: str) -> list[Variant]:
    """The default first, then those of `transforms/preprocessing` and of a user's folder, in the order of their files.

    `wanted`: `all`, `default`, names of files, or of single variants of a file such as `pack_right-n32`, separated by
    commas. Raises TemplateError for a file that is no variant, MlsearchError for a name that is not there.
    """
    backend = target.backend.removeprefix("llvm-")
    found: dict[str, list[Variant]] = {}
    for root in (built_in_folder(), folder):
        if root is None:
            continue
        for path in sorted((root / PREPROCESSING / backend).glob("*.mlir")):
            read = _read(path)
            taken = {EVERY, DEFAULT.name, *found, *(each.name for variants in found.values() for each in variants)}
            for name in (path.stem, *(each.name for each in read)):
                if name in taken:
                    raise TemplateError(f"{path}: there is a variant '{name}' already; rename the file")
            found[path.stem] = read
    by_name = {DEFAULT.name: [DEFAULT], EVERY: [each for variants in found.values() for each in variants]}
    by_name |= {each.name: [each] for each in by_name[EVERY]} | found
    names = [name.strip() for name in wanted.split(",")]
    for name in names:
        if name not in by_name:
            known = ", ".join([EVERY, DEFAULT.name, *found])
            raise MlsearchError(f"--variants {wanted!r}: there is no variant '{name}'; there are {known}")
    return list(dict.fromkeys([DEFAULT, *(variant for name in names for variant in by_name[name])]))


def variant_named(target: Target, folder: Path | None, name: str) -> Variant:
    """One variant by its own name, e.g. `pack_right-n32`. Raises MlsearchError."""
    every = variants_for(target, folder, EVERY)
    for variant in every:
        if variant.name == name:
            return variant
    known = ", ".join(variant.name for variant in every)
    raise MlsearchError(f"--variant {name}: there is no variant of that name; there are {known}")


def variant_of(spec: str, where: str) -> Variant:
    """The variant of the payload that a spec is for. Raises SpecError, also for flags that no variant may set."""
    try:
        found = carried(spec, where)
        check_flags(found.flags, where)
    except TemplateError as error:
        raise SpecError(str(error)) from None
    if found.name is None and not found.flags and not found.rewrites:
        return DEFAULT
    return Variant(found.name or "unnamed", found.flags, spec if found.rewrites else None, where)


def check_flags(flags: Sequence[str], where: str) -> None:
    """Raises TemplateError for a flag that does more than change the code."""
    for flag in flags:
        if not _FLAG.fullmatch(flag):
            raise TemplateError(
                f"{where}: '{flag}' is none of the flags that a variant may set, which docs/templates.md lists"
            )


def _read(path: Path) -> list[Variant]:
    """One variant per combination of knob values."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"variant {path} can't be read: {error}") from None
    declared = read_preprocessing(text, str(path))
    check_flags(declared.flags, str(path))
    return [_bound(path, text, declared, values) for values in itertools.product(*declared.domains.values())]


def _bound(path: Path, text: str, declared: Preprocessing, values: tuple[int, ...]) -> Variant:
    knobs = dict(zip(declared.domains, values, strict=True))
    name = "-".join([path.stem, *(f"{knob}{value}" for knob, value in knobs.items())])
    return Variant(name, declared.flags, bind_preprocessing(text, knobs) if declared.rewrites else None, str(path))

"""`python -m mlsearch.testing.bind TEMPLATE.mlir PAYLOAD.mlir [knob=value ...]`: print the library that applies the
template, with these knobs, to the first function of PAYLOAD.

For tests of templates. PAYLOAD holds a dispatch's function as a transform library sees it; a strategy's late view of it
is taken to be the same. Knobs that are not given have their defaults; constraints are not checked.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from mlsearch.candidate import KnobValue
from mlsearch.errors import KnobError, MlsearchError
from mlsearch.ir.dispatch import read_dispatch
from mlsearch.ir.library import library_text, readable
from mlsearch.ir.module import new_context, parse
from mlsearch.space.template import Template

ENTRY = "bound"
LANES = 16
"""Of the example that templates show: f32 in a vector register of 64 bytes."""


def bound_library(template: Template, payload: str, knobs: dict[str, KnobValue]) -> str:
    """Raises MlsearchError."""
    view = read_dispatch(parse(payload, new_context()))
    return readable(library_text([template.entry(ENTRY, view, view, knobs, LANES)]))


def knobs_of(template: Template, settings: Sequence[str]) -> dict[str, KnobValue]:
    """Values from `knob=value` texts. Raises KnobError for unknown knobs and values."""
    given = dict(setting.split("=", 1) for setting in settings)
    unknown = sorted(given.keys() - template.leaves.keys())
    if unknown:
        raise KnobError(f"{template.path} has no knob {', '.join(unknown)}; it has {', '.join(template.leaves)}")
    knobs: dict[str, KnobValue] = {}
    for knob in template.knobs:
        text = given.get(knob.name)
        knobs[knob.name] = knob.default if text is None else text if knob.is_choice else int(text)
        knob.number(knobs[knob.name])
    return knobs


def main(arguments: Sequence[str]) -> int:
    path, payload, *settings = arguments
    try:
        template = Template.load(Path(path), Path(path).parent)
        sys.stdout.write(bound_library(template, Path(payload).read_text(), knobs_of(template, settings)))
    except MlsearchError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

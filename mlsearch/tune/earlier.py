"""The spec that an earlier run has left where this one's is to go: it stays if it is the better one.

A run with another store, or a shorter one, may find less than is there already. Claims of two runs can't be compared,
since times drift with the machine; so both are built and timed side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mlsearch import spec, toolchain
from mlsearch.errors import MlsearchError, SpecError
from mlsearch.ir.proof import instrumented
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup
from mlsearch.tune.contender import Contender, spec_file_text
from mlsearch.tune.whole import Confirmed, compare_functions, runnable_signatures
from mlsearch.variant import Variant, variant_of
from mlsearch.workbench import Workbench


@dataclass(frozen=True)
class EarlierSpec:
    path: Path
    text: str
    entries: int
    variant: Variant

    @staticmethod
    def at(path: Path) -> EarlierSpec | None:
        """What is at `path`, if that is a spec that changes anything."""
        if not path.is_file():
            return None  # to read from a pipe or a terminal would wait for someone to write
        try:
            text = spec.read_spec(path)
            variant = variant_of(text, str(path))
            entries = len(instrumented(text, str(path))[1])
        except SpecError:
            return None
        return EarlierSpec(path, text, entries, variant) if entries or not variant.is_default else None

    @property
    def holds(self) -> int:
        """How much was proven: its entries, and a variant of the payload, which was proven faster as a whole."""
        return self.entries + (not self.variant.is_default)

    def lead(self, contender: Contender, confirmed: Confirmed, bench: Workbench) -> Speedup | None:
        """Its speedup over what this run has come to, in paired runs of the whole payload; None where it is the same,
        no longer applies, or computes something else. `bench` is the run's own.

        Raises MlsearchError where the two can't be compared.
        """
        new = spec_file_text(contender, confirmed, contender.payload.path, bench, "")
        if _without_comments(new) == _without_comments(self.text):
            return None
        earlier = self._built(contender.payload.path, bench)
        if earlier is None:
            return None
        signatures = runnable_signatures(contender.payload, contender.reduction_length)
        if not signatures:
            raise MlsearchError("the payload can't be run as a whole")
        compared = compare_functions(bench, (contender.ship(confirmed, bench), earlier), signatures)
        if isinstance(compared, str):
            raise MlsearchError(compared)
        return paired_speedup(*compared.samples_us) if compared.numerics[1].agrees else None

    def _built(self, payload: Path, bench: Workbench) -> Path | None:
        """The payload as plain `iree-compile` builds it with this spec; None if an entry fits nothing."""
        target = self.variant.on(bench.target)
        copy, artifact = bench.workdir / "earlier.spec.mlir", bench.workdir / "earlier.vmfb"
        copy.write_text(self.text)
        script = copy if self.variant.script is not None else None
        with bench.compiling():
            found = spec.application(self.text, str(self.path), payload, None, target, bench.workdir, script)
            if found.unused:
                return None
            used = copy if self.entries else None
            argv = toolchain.compile_argv(payload, artifact, target.compile_flags, library=used, preprocessing=script)
            done = toolchain.run(argv)
        return None if done.returncode or not artifact.is_file() else artifact


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.startswith("//"))

"""All winners together in the whole payload: are its numbers right, is it faster, does each entry help?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mlsearch.candidate import (
    BuildRequest,
    Built,
    Compared,
    CompareRequest,
    NotApplied,
    Numerics,
    Signature,
    TimingPlan,
    digest,
    median,
    reason,
)
from mlsearch.errors import RunnerError
from mlsearch.ir.library import library_text
from mlsearch.payload import Payload
from mlsearch.spec import SpecEntry
from mlsearch.statistics import paired_speedup
from mlsearch.summary import Speedup, WholePayload
from mlsearch.workbench import Workbench

_MOST_ROUNDS = 41
_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Care:
    """How long one comparison should take, and how many rounds it has even if it takes longer."""

    seconds: float
    fewest_rounds: int


TO_DECIDE = Care(8.0, 9)
TO_RANK = Care(3.0, 6)
"""With fewer rounds there is no interval."""


@dataclass(frozen=True)
class Confirmed:
    entries: tuple[SpecEntry, ...]
    """What may go into the spec."""
    whole: WholePayload | None
    note: str
    """Why there is no `whole`."""
    dropped: tuple[tuple[SpecEntry, str], ...] = ()
    """Entries that are left out, and why."""
    interrupted: bool = False
    artifact: Path | None = None
    """The payload with these entries; where there is a `whole`."""


@dataclass(frozen=True)
class FunctionsCompared:
    """Artifacts of one payload, all its functions one after the other."""

    samples_us: tuple[tuple[float, ...], ...]
    """Per artifact and round: the sum over the functions."""
    numerics: tuple[Numerics, ...]
    """Per artifact: the worst of all functions, against the first artifact."""


def confirm(bench: Workbench, payload: Payload, entries: Sequence[SpecEntry], reduction_length: int) -> Confirmed:
    """Recompile the payload with all entries, check and time it, and drop entries that do not help there."""
    signatures = runnable_signatures(payload, reduction_length)
    if not signatures:
        return Confirmed(tuple(entries), None, not_runnable(payload))
    untuned = build_payload(bench, payload, ())
    if not isinstance(untuned, Path):
        return Confirmed(tuple(entries), None, f"the untuned payload does not compile: {untuned}")
    kept, dropped = list(entries), list[tuple[SpecEntry, str]]()
    try:
        return _confirm(bench, payload, kept, dropped, untuned, signatures)
    except KeyboardInterrupt:
        # What was found wrong or useless up to here stays out.
        note = "stopped before the whole payload was checked"
        return Confirmed(tuple(kept), None, note, tuple(dropped), interrupted=True)


def _confirm(
    bench: Workbench,
    payload: Payload,
    kept: list[SpecEntry],
    dropped: list[tuple[SpecEntry, str]],
    untuned: Path,
    signatures: Sequence[Signature],
) -> Confirmed:
    """Moves entries from `kept` to `dropped`."""
    while True:
        tuned = untuned if not kept else build_payload(bench, payload, kept)
        if isinstance(tuned, NotApplied):
            # Another entry's match is as good for the dispatch; the one that comes first has it.
            dropped += [(entry, "another entry takes its dispatch") for entry in kept if entry.name in tuned.missing]
            kept[:] = [entry for entry in kept if entry.name not in tuned.missing]
            continue
        if isinstance(tuned, str):
            dropped += [(entry, f"the whole payload does not compile with it: {tuned}") for entry in kept]
            kept.clear()
            continue
        try:
            compared = compare_functions(bench, (untuned, tuned), signatures)
        except RunnerError as error:
            return Confirmed(tuple(kept), None, str(error), tuple(dropped))
        if isinstance(compared, str) and not kept:
            return Confirmed((), None, compared, tuple(dropped))
        if isinstance(compared, str):
            dropped += [(entry, f"the whole payload does not run with it: {compared}") for entry in kept]
            kept.clear()
            continue
        speedup = paired_speedup(*compared.samples_us)
        if kept and not compared.numerics[1].agrees:
            dropped += [(entry, "the whole payload's numbers are wrong with it") for entry in kept]
            kept.clear()
            continue
        useless = _useless(bench, payload, kept, signatures, speedup, tuned)
        if not useless and kept and speedup.is_slower:
            # Each alone is too small to be told from noise; together they are not.
            useless = [(min(kept, key=_promised_us), f"the whole payload is slower with all (x{speedup.speedup:.3f})")]
        if not useless:
            break
        dropped += useless
        names = {entry.name for entry, _ in useless}
        kept[:] = [entry for entry in kept if entry.name not in names]
    if not kept:
        speedup = Speedup(speedup.baseline_us, speedup.baseline_us, 1.0, (1.0, 1.0))
    whole = WholePayload(
        baseline_us=speedup.baseline_us,
        tuned_us=speedup.tuned_us,
        speedup=speedup.speedup,
        speedup_ci95=speedup.ci95,
        numerics=compared.numerics[1],
        dropped=tuple(entry.name for entry, _ in dropped),
    )
    return Confirmed(tuple(kept), whole, "", tuple(dropped), artifact=tuned)


def runnable_signatures(payload: Payload, reduction_length: int) -> list[Signature]:
    """How to call the payload's functions, as far as their inputs are tensors of known shape."""
    return [
        replace(function.signature, reduction_length=reduction_length)
        for function in payload.functions
        if function.signature is not None
    ]


def not_runnable(payload: Payload) -> str:
    if not payload.functions:
        return "the payload has no public function"
    return "; ".join(f"function {entry.name!r} can't be run: {entry.problem}" for entry in payload.functions)


def build_payload(bench: Workbench, payload: Payload, entries: Sequence[SpecEntry]) -> Path | NotApplied | str:
    """The payload's artifact with these entries, or which of them do not fire, or why else there is none."""
    library = library_text([entry.text for entry in entries]) if entries else None
    request = BuildRequest(
        key=f"payload-{digest(library)}",
        module=payload.flow_module,
        library=library,
        entries=tuple(entry.name for entry in entries),
        flags=bench.target.compile_flags,
        timeout_s=_TIMEOUT_S,
    )
    built = bench.build_one(request)
    if isinstance(built, Built):
        return built.artifact
    return built if isinstance(built, NotApplied) else reason(built)


def compare_functions(
    bench: Workbench, artifacts: tuple[Path, ...], signatures: Sequence[Signature], care: Care = TO_DECIDE
) -> FunctionsCompared | str:
    """Interleaved rounds of all functions, or why a function did not run. Raises RunnerError if the first
    artifact, the untuned one, does not run."""
    outcomes: list[Compared] = []
    for signature in signatures:
        plan = bench.plan(timeout_s=_TIMEOUT_S)
        rounds = _rounds(bench, artifacts, signature, plan, care)
        if isinstance(rounds, str):
            return rounds
        compared = bench.compare(CompareRequest(artifacts, signature, plan, rounds))
        if not isinstance(compared, Compared):
            return f"function {signature.function!r}: {reason(compared)}"
        outcomes.append(compared)
    fewest = min(len(compared.samples_us[0]) for compared in outcomes)
    samples = tuple(
        tuple(sum(compared.samples_us[i][r] for compared in outcomes) for r in range(fewest))
        for i in range(len(artifacts))
    )
    numerics = tuple(
        max((compared.numerics[i] for compared in outcomes), key=lambda n: (not n.agrees, n.max_rel_error))
        for i in range(len(artifacts))
    )
    return FunctionsCompared(samples, numerics)


def _rounds(
    bench: Workbench, artifacts: tuple[Path, ...], signature: Signature, plan: TimingPlan, care: Care
) -> int | str:
    """As many as fit into the time that one comparison should take, found out by a first round."""
    first = bench.compare(CompareRequest(artifacts, signature, plan, 1))
    if not isinstance(first, Compared):
        return f"function {signature.function!r}: {reason(first)}"
    round_s = 1e-6 * sum(median(samples) for samples in first.samples_us)
    return int(min(_MOST_ROUNDS, max(care.fewest_rounds, care.seconds / max(round_s, 1e-9))))


def _useless(
    bench: Workbench,
    payload: Payload,
    kept: Sequence[SpecEntry],
    signatures: Sequence[Signature],
    speedup: Speedup,
    tuned: Path,
) -> list[tuple[SpecEntry, str]]:
    """Entries without which the payload is as fast; at most one a call, so that the others are judged anew.

    An entry must go if the payload is surely faster without it, or if it isn't slower without it although the gain
    that the entry promises is larger than what the comparison can resolve. One entry alone is judged by the
    payload's own speedup.
    """
    # The least helpful ones first: they are the likeliest to go.
    for entry in sorted(kept, key=_promised_us):
        if len(kept) == 1:
            effect = speedup
        else:
            without = build_payload(bench, payload, [other for other in kept if other is not entry])
            if not isinstance(without, Path):
                continue
            compared = compare_functions(bench, (without, tuned), signatures)
            if isinstance(compared, str):
                continue
            effect = paired_speedup(*compared.samples_us)
        promised = _promised_us(entry) / effect.baseline_us
        resolvable = promised > (effect.ci95[1] - effect.ci95[0]) / 2
        if effect.is_slower or (effect.speedup <= 1.0 and resolvable):
            return [(entry, f"no faster in the whole payload (x{effect.speedup:.3f} with it)")]
    return []


def _promised_us(entry: SpecEntry) -> float:
    return entry.sites * (entry.speedup.baseline_us - entry.speedup.tuned_us)

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
from mlsearch.tune.rounds import FEWEST, FEWEST_WHEN_OBVIOUS, is_obvious, rounds_for
from mlsearch.tune.trials import LONG_CALL_US
from mlsearch.workbench import Workbench

_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Care:
    """How long one comparison should take, and what it may leave out."""

    seconds: float
    """After the first look; with 0 that is all."""
    fewest_rounds: int
    """Even if they take longer."""
    is_for_claims: bool
    """False: a first look is all where it makes the order obvious, and that has no interval."""


TO_DECIDE = Care(8.0, FEWEST, True)
TO_RANK = Care(3.0, FEWEST_WHEN_OBVIOUS, False)
TO_LOOK = Care(0.0, 0, False)
_LOOK_ROUNDS = 5
"""Of the first look, unless calls are long: a program's first samples can be far off."""


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
    is_shipped: bool = False
    """The `whole` was timed as plain `iree-compile` builds it from the user's file: an entry that does not fire there
    had no part in it."""


@dataclass(frozen=True)
class FunctionsCompared:
    """Artifacts of one payload, all its functions one after the other."""

    samples_us: tuple[tuple[float, ...], ...]
    """Per artifact and round: the sum over the functions."""
    numerics: tuple[Numerics, ...]
    """Per artifact: the worst of all functions, against the first artifact."""


def confirm(
    bench: Workbench,
    payload: Payload,
    entries: Sequence[SpecEntry],
    reduction_length: int,
    expected_us: float = 0.0,
) -> Confirmed:
    """Recompile the payload with all entries, check and time it, and drop entries that do not help there.
    `expected_us`: of the untuned payload, as far as it is known."""
    signatures = runnable_signatures(payload, reduction_length)
    if not signatures:
        return Confirmed(tuple(entries), None, not_runnable(payload))
    untuned = build_payload(bench, payload, ())
    if not isinstance(untuned, Path):
        return Confirmed(tuple(entries), None, f"the untuned payload does not compile: {untuned}")
    kept, dropped = list(entries), list[tuple[SpecEntry, str]]()
    try:
        return _confirm(bench, payload, kept, dropped, untuned, signatures, expected_us)
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
    expected_us: float,
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
            compared = compare_functions(bench, (untuned, tuned), signatures, expected_us=expected_us)
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


def never_run(payload: Payload) -> list[str]:
    """Functions whose numbers can't be checked as a whole, with why. What a schedule does is checked on the dispatch
    alone; what a variant of the payload does to these, nobody sees."""
    stuck = [f"function {entry.name!r} can't be run: {entry.problem}" for entry in payload.functions if entry.problem]
    return [*stuck, *(f"function {name!r} is not the one that was asked for" for name in payload.others)]


def not_runnable(payload: Payload) -> str:
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
    bench: Workbench,
    artifacts: tuple[Path, ...],
    signatures: Sequence[Signature],
    care: Care = TO_DECIDE,
    expected_us: float = 0.0,
) -> FunctionsCompared | str:
    """Interleaved rounds of all functions, or why a function did not run. Raises RunnerError if the first
    artifact, the untuned one, does not run.

    A first look finds out how many rounds fit into the time that one comparison should take. `expected_us`: of the
    first artifact, as far as it is known.
    """
    if care.is_for_claims and rounds_for([expected_us], care.seconds) == FEWEST:
        return _summed_or_why(_compare(bench, artifacts, signatures, [care.fewest_rounds] * len(signatures)))
    is_long = expected_us > LONG_CALL_US
    rounds = 1 if care.is_for_claims or is_long else _LOOK_ROUNDS
    first = _compare(bench, artifacts, signatures, [rounds] * len(signatures), **({"warmup": 1} if is_long else {}))
    if isinstance(first, str):
        return first
    looked = _summed(first)
    obvious = is_obvious([median(samples) for samples in looked.samples_us])
    if not care.seconds or (obvious and not care.is_for_claims):
        return looked
    fewest = FEWEST_WHEN_OBVIOUS if obvious else care.fewest_rounds
    counts = [
        rounds_for([median(samples) for samples in compared.samples_us], care.seconds, fewest) for compared in first
    ]
    return _summed_or_why(_compare(bench, artifacts, signatures, counts))


def _compare(
    bench: Workbench, artifacts: tuple[Path, ...], signatures: Sequence[Signature], rounds: Sequence[int], **plan: int
) -> list[Compared] | str:
    """Each function alone, so many rounds."""
    outcomes = []
    for signature, count in zip(signatures, rounds, strict=True):
        compared = bench.compare(CompareRequest(artifacts, signature, bench.plan(timeout_s=_TIMEOUT_S, **plan), count))
        if not isinstance(compared, Compared):
            return f"function {signature.function!r}: {reason(compared)}"
        outcomes.append(compared)
    return outcomes


def _summed_or_why(outcomes: list[Compared] | str) -> FunctionsCompared | str:
    return outcomes if isinstance(outcomes, str) else _summed(outcomes)


def _summed(outcomes: Sequence[Compared]) -> FunctionsCompared:
    artifacts = range(len(outcomes[0].samples_us))
    fewest = min(len(compared.samples_us[0]) for compared in outcomes)
    samples = tuple(
        tuple(sum(compared.samples_us[i][r] for compared in outcomes) for r in range(fewest)) for i in artifacts
    )
    numerics = tuple(
        max((compared.numerics[i] for compared in outcomes), key=lambda n: (not n.agrees, n.max_rel_error))
        for i in artifacts
    )
    return FunctionsCompared(samples, numerics)


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

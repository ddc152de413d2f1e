"""Variants of the payload against one another, by the whole payload's time.

Each variant that computes the same, and is other code, gets a short search; those that stand near the best then get
the rest of the budget; and the last comparison is of whole payloads in interleaved rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from mlsearch.candidate import Numerics
from mlsearch.errors import MlsearchError, RunnerError
from mlsearch.events import Step, VariantDone, Warn
from mlsearch.statistics import paired_speedup
from mlsearch.summary import SAME_CODE_SPREAD, Speedup, VariantSummary
from mlsearch.tune.contender import Contender
from mlsearch.tune.options import BUDGETS
from mlsearch.tune.trials import Limits
from mlsearch.tune.whole import (
    TO_DECIDE,
    TO_RANK,
    Care,
    Confirmed,
    FunctionsCompared,
    build_payload,
    compare_functions,
    runnable_signatures,
)
from mlsearch.variant import Variant
from mlsearch.workbench import Workbench

SHORT_TRIALS = BUDGETS["quick"]
"""Trials per task of the short search: the templates' own suggestions are among the first."""
_SHORT_SHARE = 0.4
"""Of a time budget, for all short searches together."""
_NEAR = 0.8
"""Beside the fastest, a variant may go on after the short search if it has so much of its speedup."""


@dataclass(frozen=True)
class Verdict:
    contender: Contender
    confirmed: Confirmed
    variants: tuple[VariantSummary, ...]
    """Empty where there was no contest."""
    interrupted: bool = False
    """One of the contenders was."""


class Contest:
    def __init__(self, bench: Workbench, default: Contender, limits: Limits) -> None:
        """`default` is loaded and prepared. `limits`: trials per task and seconds, for each leader in the end."""
        self._bench, self._default, self._limits = bench, default, limits
        self._watch = bench.watch
        self._signatures = runnable_signatures(default.payload, default.reduction_length)
        self._untuned: Path
        """The default payload, untuned."""
        self._told: dict[str, VariantSummary] = {}

    def run(self, variants: Sequence[Variant], enter: Callable[[Variant], Contender]) -> Verdict:
        """`enter` makes a contender of a variant; the default one is in already."""
        contenders = self._admitted(variants, enter)
        leaders = [self._default]
        if len(contenders) == 1:
            self._default.search(self._limits)
        else:
            leaders = self._short_search(contenders)
            if not _interrupted(contenders) and (self._limits.trials is None or self._limits.trials > SHORT_TRIALS):
                self._long_search(leaders, contenders)
        contender, confirmed = self._decide(leaders)
        return Verdict(contender, confirmed, tuple(self._told.values()), _interrupted(contenders))

    # --------------------------------------------------------------------------------- who takes part

    def _admitted(self, variants: Sequence[Variant], enter: Callable[[Variant], Contender]) -> list[Contender]:
        """The default, and the variants that compute the same with other code, prepared."""
        untuned = build_payload(self._default.bench, self._default.payload, ())
        if not isinstance(untuned, Path):
            return [self._default]  # the confirmation will say so
        self._untuned = untuned
        self._tell(self._default, untuned_speedup=1.0)
        contenders = [self._default]
        seen = {_digest(untuned): self._default.variant.name}
        for variant in variants:
            self._watch(Step(f"looking at variant {variant.name}"))
            contender = enter(variant)
            try:
                looked_at = self._look_at(contender, seen)
            except RunnerError as error:
                self._watch(Warn(f"variants are left alone: {error}"))
                return [self._default]
            if isinstance(looked_at, str):
                self._tell(contender, dropped=looked_at)
                continue
            if contender.workloads == self._default.workloads and not (looked_at.is_faster or looked_at.is_slower):
                same = "the same dispatches, and as fast as the default"
                self._tell(contender, untuned_speedup=looked_at.speedup, dropped=same)
                continue
            self._tell(contender, untuned_speedup=looked_at.speedup)
            contender.prepare()
            contenders.append(contender)
        return contenders

    def _look_at(self, contender: Contender, seen: dict[str, str]) -> Speedup | str:
        """Speedup of a variant over the default, both untuned, or why it is no use. Raises RunnerError if the default
        does not run."""
        try:
            contender.load()
        except MlsearchError as error:
            return str(error)
        built = build_payload(contender.bench, contender.payload, ())
        if not isinstance(built, Path):
            return f"it does not compile: {built}"
        twin = seen.setdefault(_digest(built), contender.variant.name)
        if twin != contender.variant.name:
            return f"the same code as {twin}"
        compared = self._compare(built, care=TO_RANK)
        if isinstance(compared, str):
            return f"it does not run: {compared}"
        if not compared.numerics[1].agrees:
            error_size = compared.numerics[1].max_rel_error
            return f"its numbers differ from the default's (relative error {error_size:.2g})"
        return paired_speedup(*compared.samples_us)

    # --------------------------------------------------------------------------------------- searches

    def _short_search(self, contenders: Sequence[Contender]) -> list[Contender]:
        """All search a little; the leaders, the best first."""
        trials = SHORT_TRIALS if self._limits.trials is None else min(SHORT_TRIALS, self._limits.trials)
        seconds = None if self._limits.seconds is None else _SHORT_SHARE * self._limits.seconds / len(contenders)
        standing: list[tuple[float, Contender]] = []
        for contender in contenders:
            if _interrupted(contenders):
                break
            contender.search(Limits(trials, seconds))
            try:
                standing.append((self._standing(contender), contender))
            except KeyboardInterrupt:
                contender.interrupted = True
        if not standing:
            return [self._default]
        leaders = leaders_of(standing)
        best = max(speedup for speedup, _ in standing)
        for speedup, contender in standing:
            if contender not in leaders:
                self._tell(contender, dropped=f"{speedup:.2f}x after a short search, where the best has {best:.2f}x")
        return leaders

    def _standing(self, contender: Contender) -> float:
        """Speedup of the whole payload with what the short search has found; without it if that does not work."""
        entries = contender.entries
        compared: FunctionsCompared | str = "nothing was found"
        if entries:
            built = build_payload(contender.bench, contender.payload, entries)
            try:
                compared = self._compare(built, care=TO_RANK) if isinstance(built, Path) else str(built)
            except RunnerError as error:
                compared = str(error)
        name = contender.variant.name
        if isinstance(compared, str) or not compared.numerics[1].agrees:
            speedup = self._told[name].untuned_speedup or 1.0
        else:
            speedup = paired_speedup(*compared.samples_us).speedup
        self._tell(contender, speedup=speedup)
        return speedup

    def _long_search(self, leaders: Sequence[Contender], contenders: Sequence[Contender]) -> None:
        for position, contender in enumerate(leaders):
            seconds = None
            if self._limits.seconds is not None:
                left = max(0.0, self._limits.seconds - sum(each.searched_s for each in contenders))
                seconds = contender.searched_s + left / (len(leaders) - position)
            contender.search(Limits(self._limits.trials, seconds))
            if contender.interrupted:
                return

    # --------------------------------------------------------------------------------------- decision

    def _decide(self, leaders: Sequence[Contender]) -> tuple[Contender, Confirmed]:
        """The best leader by the whole payload; the default unless another one is surely faster."""
        confirmed = [(contender, contender.confirm()) for contender in leaders if contender is not self._default]
        own = self._default.confirm()  # whoever wins must beat it
        others = [pair for pair in confirmed if pair[1].artifact is not None]
        try:
            best = self._best(own, others) if others else None
        except (KeyboardInterrupt, MlsearchError) as error:
            self._watch(Warn(f"the payload as it is, because variants could not be compared: {error or 'stopped'}"))
            self._default.interrupted |= isinstance(error, KeyboardInterrupt)
            best = None
        if best is None:
            for other, _ in confirmed:
                self._tell(other, dropped="in the end not surely faster than the default")
            self._tell(self._default, dropped=None, **({"speedup": own.whole.speedup} if own.whole else {}))
            return self._default, own
        contender, chosen, speedup, numerics = best
        for other in leaders:
            if other is not contender:
                self._tell(other, dropped=f"in the end {contender.variant.name} is faster")
        assert chosen.whole is not None
        whole = replace(
            chosen.whole,
            baseline_us=speedup.baseline_us,
            tuned_us=speedup.tuned_us,
            speedup=speedup.speedup,
            speedup_ci95=speedup.ci95,
            numerics=numerics,
        )
        self._tell(contender, speedup=speedup.speedup)
        return contender, replace(chosen, whole=whole)

    def _best(
        self, own: Confirmed, others: Sequence[tuple[Contender, Confirmed]]
    ) -> tuple[Contender, Confirmed, Speedup, Numerics] | None:
        """The fastest of the others, with its speedup over the untuned default and its numbers against it, if it is
        surely faster than the default with its own schedules. One comparison picks, a second one measures."""
        reference = self._untuned if own.artifact is None else own.artifact
        self._watch(Step("comparing the variants of the payload in paired runs"))
        first = self._compare(*(artifact_of(each) for _, each in others), reference=reference)
        if isinstance(first, str):
            raise RunnerError(first)
        speedups = [paired_speedup(first.samples_us[0], samples) for samples in first.samples_us[1:]]
        right = [index for index, numerics in enumerate(first.numerics[1:]) if numerics.agrees]
        faster = [index for index in right if speedups[index].is_faster]
        if not faster:
            return None
        contender, confirmed = others[max(faster, key=lambda index: speedups[index].speedup)]
        # Built as its user will, from the beginning: flags may mean more there than between two phases.
        shipped = contender.ship(confirmed, self._bench)
        final = self._compare(reference, shipped)
        if isinstance(final, str):
            raise RunnerError(final)
        if not final.numerics[2].agrees:
            raise RunnerError(f"{contender.variant.name}: numbers are wrong when built from the beginning")
        untuned_us, own_us, shipped_us = final.samples_us
        if not paired_speedup(own_us, shipped_us).is_faster:
            return None
        return contender, confirmed, paired_speedup(untuned_us, shipped_us), final.numerics[2]

    def _compare(
        self, *artifacts: Path, reference: Path | None = None, care: Care = TO_DECIDE
    ) -> FunctionsCompared | str:
        """Against `reference`, the untuned default if None."""
        return compare_functions(self._bench, (reference or self._untuned, *artifacts), self._signatures, care)

    # ----------------------------------------------------------------------------------------- report

    def _tell(self, contender: Contender, **changes: object) -> None:
        variant = contender.variant
        before = self._told.get(variant.name) or VariantSummary(
            variant.name, variant.flags, variant.script is not None, None, None, None
        )
        self._told[variant.name] = replace(before, **changes)  # type: ignore[arg-type]
        self._watch(VariantDone(self._told[variant.name]))


def leaders_of(standing: Sequence[tuple[float, Contender]]) -> list[Contender]:
    """Who goes on after the short search, the fastest first; `standing` has each one's speedup.

    The fastest, where the default counts as such unless another one is ahead by more than equal code can be; the
    default if it is near, because specs for the payload as it is are simpler to use; and, where none of these has
    anything that could be searched, the fastest that has: nobody else would use the budget.
    """
    ranked = sorted(standing, key=lambda pair: -pair[0] * (1 + SAME_CODE_SPREAD * pair[1].variant.is_default))
    first = ranked[0][1]
    near = [contender for speedup, contender in ranked if speedup >= _NEAR * ranked[0][0]]
    wanted = [first, *(contender for contender in near if contender.variant.is_default)]
    if not any(contender.can_search for contender in wanted):
        wanted += [contender for _, contender in ranked if contender.can_search][:1]
    return list(dict.fromkeys(wanted))


def artifact_of(confirmed: Confirmed) -> Path:
    assert confirmed.artifact is not None
    return confirmed.artifact


def _interrupted(contenders: Sequence[Contender]) -> bool:
    return any(contender.interrupted for contender in contenders)


def _digest(artifact: Path) -> str:
    return sha256(artifact.read_bytes()).hexdigest()

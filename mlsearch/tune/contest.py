"""Variants of the payload against one another, by the whole payload's time.

Each variant that computes the same, and is other code, gets a short search, which those leave that fall far behind by
the times of single trials; those that stand near the best then get the rest of the budget, and finals; and the last
comparison is of whole payloads in interleaved rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import inf
from pathlib import Path

from mlsearch.candidate import Measured, Numerics, RunRequest
from mlsearch.errors import MlsearchError, NoSpaceError, RunnerError
from mlsearch.events import Step, VariantDone, Warn
from mlsearch.statistics import paired_speedup
from mlsearch.summary import SAME_CODE_SPREAD, Speedup, VariantSummary
from mlsearch.tune.contender import Contender
from mlsearch.tune.options import BUDGETS
from mlsearch.tune.rounds import FEWEST_WHEN_OBVIOUS, OBVIOUS
from mlsearch.tune.trials import LONG_CALL_US, Limits
from mlsearch.tune.whole import (
    TO_DECIDE,
    TO_LOOK,
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
_HEATS = (5, 9, SHORT_TRIALS)
"""Trials per task, the untuned build among them, after which the slowest leave the short search."""
_SHORT_SHARE = 0.4
"""Of a time budget, for all short searches together."""
_NEAR = 0.8
"""Beside the fastest, a variant may go on after the short search if it has so much of its speedup."""
_NOISE = 0.1
_MAY_BE_NEAR = 0.65
"""By the search's own times, which are further off than paired runs. Who has less needs no paired runs to be left."""


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
        self._untuned_us = default.untuned_us
        """The shortest time of it that was seen; at first that of its tasks."""
        self._told: dict[str, VariantSummary] = {}

    def run(self, variants: Sequence[Variant], enter: Callable[[Variant], Contender]) -> Verdict:
        """`enter` makes a contender of a variant; the default one is in already."""
        contenders = self._admitted(variants, enter)
        leaders = [self._default]
        if len(contenders) == 1:
            self._default.search(self._limits)
        else:
            leaders = self._short_search(contenders)
            self._long_search(leaders, contenders)
        for contender in dict.fromkeys([*leaders, self._default]):
            if not contender.decide():
                break
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
            if contender.workloads == self._default.workloads and _is_equal(looked_at):
                same = "the same dispatches, and as fast as the default"
                self._tell(contender, untuned_speedup=looked_at.speedup, dropped=same)
                continue
            self._tell(contender, untuned_speedup=looked_at.speedup)
            contender.prepare()
            contenders.append(contender)
        return contenders

    def _look_at(self, contender: Contender, seen: dict[str, str]) -> Speedup | str:
        """Speedup of a variant over the default, both untuned, or why it is no use. Raises RunnerError if the default
        does not run, NoSpaceError where nothing would."""
        try:
            contender.load()
        except NoSpaceError:
            raise
        except MlsearchError as error:
            return str(error)
        built = build_payload(contender.bench, contender.payload, ())
        if not isinstance(built, Path):
            return f"it does not compile: {built}"
        twin = seen.setdefault(_digest(built), contender.variant.name)
        if twin != contender.variant.name:
            return f"the same code as {twin}"
        try:
            contender.cut()
        except NoSpaceError:
            raise
        except MlsearchError as error:
            return str(error)
        # Only where it decides whether the variant takes part, more than the order of magnitude matters.
        is_alike = contender.workloads == self._default.workloads and self._untuned_us < LONG_CALL_US
        compared = self._compare(built, care=TO_RANK if is_alike else TO_LOOK)
        if isinstance(compared, str):
            return f"it does not run: {compared}"
        if not compared.numerics[1].agrees:
            error_size = compared.numerics[1].max_rel_error
            return f"its numbers differ from the default's (relative error {error_size:.2g})"
        seen_us = min(compared.samples_us[0])
        self._untuned_us = min(seen_us, self._untuned_us or seen_us)
        return looked_speedup(*compared.samples_us)

    # --------------------------------------------------------------------------------------- searches

    def _short_search(self, contenders: Sequence[Contender]) -> list[Contender]:
        """Heats in which all search a little, the likeliest first, and the hopeless leave; the leaders of the last one,
        the best first. The default stays: whoever wins must beat it with its own schedules."""
        still_in = list(contenders)
        for trials in sorted({min(heat, self._limits.trials or heat) for heat in _HEATS}):
            self._heat(still_in, contenders, trials)
            if _interrupted(contenders):
                break
            best_us = min(self._promised_us(contender) for contender in still_in)
            still_in = [
                contender
                for contender in still_in
                if contender.variant.is_default or self._promised_us(contender) <= OBVIOUS * best_us
            ]
        standing = self._standings(contenders)
        leaders = leaders_of(standing)
        best = next(speedup for speedup, contender in standing if contender is leaders[0])
        for speedup, contender in standing:
            how = "after a short search" if contender.has_trials else "without a search"
            left = f"{speedup:.2f}x {how}, where {leaders[0].variant.name} has {best:.2f}x"
            self._tell(contender, speedup=speedup, **({} if contender in leaders else {"dropped": left}))
        return leaders

    def _heat(self, still_in: Sequence[Contender], contenders: Sequence[Contender], trials: int) -> None:
        # What is late finds less time left: the default, then who is fast so far.
        turn = sorted(still_in, key=lambda each: (not each.variant.is_default, self._promised_us(each)))
        turn = [contender for contender in turn if contender.can_search]
        for position, contender in enumerate(turn):
            seconds = None
            if self._limits.seconds is not None:
                left = max(0.0, _SHORT_SHARE * self._limits.seconds - _searched_s(contenders))
                if contender.is_searched and left < contender.searched_s:
                    continue  # a batch cannot be cut short, and takes about as long as those before
                seconds = contender.searched_s + left / (len(turn) - position)
            contender.search(Limits(trials, seconds))
            if contender.interrupted:
                return

    def _promised_us(self, contender: Contender) -> float:
        """Of the whole payload with what was found, by the times of single trials."""
        whole_us = self._untuned_us / (self._told[contender.variant.name].untuned_speedup or 1.0)
        return promised_us(whole_us, contender.untuned_us, contender.gain_us)

    def _standings(self, contenders: Sequence[Contender]) -> list[tuple[float, Contender]]:
        """Speedup of the whole payload with what the short search has found: by interleaved rounds for those that may
        be near the best, by the times of their trials for the others."""
        promised = {contender: self._untuned_us / self._promised_us(contender) for contender in contenders}
        best = max(promised.values())
        # Who can't be searched was only looked at, which is further off still.
        margin = {contender: _MAY_BE_NEAR * (1.0 if contender.can_search else 0.5) for contender in contenders}
        near = [contender for contender in contenders if promised[contender] >= margin[contender] * best]
        if len(near) > 1 and not _interrupted(contenders):
            self._watch(Step("comparing what the short searches have found"))
            try:
                promised |= self._measured(near, promised)
            except KeyboardInterrupt:
                self._default.interrupted = True
        return [(speedup, contender) for contender, speedup in promised.items()]

    def _measured(self, near: Sequence[Contender], promised: Mapping[Contender, float]) -> dict[Contender, float]:
        """Speedups from rounds of all of these together, each with its drafts. The untuned default is not among them:
        it can be far slower. Who does not build or run, or computes something else, is left with its speedup without
        schedules."""
        built: dict[Contender, Path] = {}
        speedups = {contender: self._told[contender.variant.name].untuned_speedup or 1.0 for contender in near}
        for contender in sorted(near, key=lambda each: -promised[each]):
            artifact = build_payload(contender.bench, contender.payload, contender.drafts)
            if isinstance(artifact, Path) and self._is_right(artifact):
                built[contender] = artifact
        if not built:
            return speedups
        speedups |= {contender: promised[contender] for contender in built}
        # The scale is what was seen of one: sums over several tasks promise too much.
        scale = min(built, key=lambda each: (not each.variant.is_default, each.can_search, -promised[each]))
        others = [contender for contender in built if contender is not scale]
        if not others:
            return speedups
        try:
            compared = self._compare(*(built[each] for each in others), reference=built[scale], care=TO_RANK)
        except RunnerError as error:
            compared = str(error)
        if isinstance(compared, str):
            self._watch(Warn(f"ranked by the times of single trials, because {compared}"))
            return speedups
        for contender, samples in zip(others, compared.samples_us[1:], strict=True):
            speedups[contender] = promised[scale] * paired_speedup(compared.samples_us[0], samples).speedup
        return speedups

    def _is_right(self, artifact: Path) -> bool:
        """Whether it runs, and computes what the untuned default does."""
        plan = self._bench.plan(timeout_s=60.0 + 20e-6 * self._untuned_us, warmup=1, min_samples=1, max_samples=1)
        try:
            outcomes = [
                self._bench.run(RunRequest(artifact, self._untuned, signature, plan)) for signature in self._signatures
            ]
        except RunnerError:
            return False
        return all(isinstance(outcome, Measured) for outcome in outcomes)

    def _long_search(self, leaders: Sequence[Contender], contenders: Sequence[Contender]) -> None:
        for position, contender in enumerate(leaders):
            if _interrupted(contenders):
                return
            seconds = None
            if self._limits.seconds is not None:
                left = left_s(self._limits.seconds, _searched_s(contenders), _searched_s(leaders))
                seconds = contender.searched_s + left / (len(leaders) - position)
            contender.search(Limits(self._limits.trials, seconds))

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
            for other, theirs in confirmed:
                self._tell(other, dropped="in the end not surely faster than the default", **self._seen(other, theirs))
            self._tell(self._default, dropped=None, **self._seen(self._default, own))
            return self._default, own
        contender, chosen, speedup, numerics = best
        for other, theirs in [(self._default, own), *confirmed]:
            if other is not contender:
                self._tell(other, dropped=f"in the end {contender.variant.name} is faster", **self._seen(other, theirs))
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
        return contender, replace(chosen, whole=whole, is_shipped=True)

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

    def _seen(self, contender: Contender, confirmed: Confirmed) -> dict[str, float]:
        """The speedup to tell: what was confirmed, beside its own untuned build, takes the place of what was
        promised."""
        if confirmed.whole is None:
            return {}
        untuned_speedup = self._told[contender.variant.name].untuned_speedup or 1.0
        return {"speedup": untuned_speedup * confirmed.whole.speedup}

    def _compare(
        self, *artifacts: Path, reference: Path | None = None, care: Care = TO_DECIDE
    ) -> FunctionsCompared | str:
        """Against `reference`, the untuned default if None."""
        expected_us = 0.0 if reference else self._untuned_us
        every = (reference or self._untuned, *artifacts)
        return compare_functions(self._bench, every, self._signatures, care, expected_us)

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


def promised_us(whole_us: float, tasks_us: float, gain_us: float) -> float:
    """Of a payload that takes `whole_us` untuned, when `gain_us` of the `tasks_us` of its tasks is gone.

    What the whole takes beyond its tasks stays. But a tenth of it may be noise, which must not count as time that no
    schedule can save: where the gain is 40x, that is four times what the payload takes in the end. Tasks may also take
    longer alone than together.
    """
    if not tasks_us:
        return whole_us
    rest_us = max(0.0, (1 - _NOISE) * whole_us - tasks_us)
    return rest_us + (tasks_us - gain_us) * min(1.0, whole_us / tasks_us)


def looked_speedup(untuned_us: Sequence[float], variant_us: Sequence[float]) -> Speedup:
    """Of paired rounds; of their shortest times where they are too few for an interval: what disturbs a program makes
    it slower, and its first samples may all be disturbed."""
    if len(untuned_us) >= FEWEST_WHEN_OBVIOUS:
        return paired_speedup(untuned_us, variant_us)
    base, variant = min(untuned_us), min(variant_us)
    return Speedup(base, variant, base / variant, (0.0, inf))


def artifact_of(confirmed: Confirmed) -> Path:
    assert confirmed.artifact is not None
    return confirmed.artifact


def _is_equal(looked_at: Speedup) -> bool:
    """Not surely faster or slower; after a look that was too short for an interval, not by much, where what may be
    faster has the benefit of the doubt."""
    if looked_at.ci95[1] == inf:
        return _NEAR <= looked_at.speedup <= 1 + _NOISE
    return not (looked_at.is_faster or looked_at.is_slower)


def left_s(budget_s: float, searched_s: float, leaders_s: float) -> float:
    """Seconds left for the leaders when all have been searched for `searched_s` and they themselves for `leaders_s`.

    Heats may take more than their share, since a batch of slow calls can't be cut short. What remains of the budget
    beside that share is the leaders' all the same.
    """
    return max(0.0, budget_s - searched_s, (1 - _SHORT_SHARE) * budget_s - leaders_s)


def _searched_s(contenders: Sequence[Contender]) -> float:
    return sum(contender.searched_s for contender in contenders)


def _interrupted(contenders: Sequence[Contender]) -> bool:
    return any(contender.interrupted for contender in contenders)


def _digest(artifact: Path) -> str:
    return sha256(artifact.read_bytes()).hexdigest()

"""What derived templates are put together from: knobs whose domains follow from loops and hardware, and the constraints
that go with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mlsearch.candidate import KnobValue
from mlsearch.ir.template import Assertion, Declarations, Expression, KnobLeaf, KnobTree
from mlsearch.space.knobs import nearest
from mlsearch.workload import Loop

STACK_BYTES = 32768
"""IREE's limit for all buffers on a function's stack."""
_MOST_REGISTERS = 512

DISTRIBUTION, TILE, STEP, INNER = "distribution", "vector_common_parallel", "vector_reduction", "vector_inner_parallel"
_PEEL = KnobLeaf("peel", ("false", "true"), (False, True))


def vector_limit(vector_bytes: int) -> int:
    """Bytes from which IREE's CPU pipelines refuse a vector: so many registers."""
    return _MOST_REGISTERS * vector_bytes


def knob(name: str) -> Expression:
    return Expression("knob", value=name)


def constant(value: int) -> Expression:
    return Expression("constant", value=value)


def product(factors: Sequence[Expression]) -> Expression:
    if not factors:
        return constant(1)
    return factors[0] if len(factors) == 1 else Expression("int.mul", tuple(factors))


def total(terms: Sequence[Expression]) -> Expression:
    return terms[0] if len(terms) == 1 else Expression("int.add", tuple(terms))


def at_most(left: Expression, right: Expression) -> Expression:
    return Expression("int.cmp", (left, right), "le")


def less(left: Expression, right: Expression) -> Expression:
    return Expression("int.cmp", (left, right), "lt")


def equal(left: Expression, right: Expression) -> Expression:
    return Expression("eq", (left, right))


def implies(condition: Expression, consequence: Expression) -> Expression:
    return Expression("implies", (condition, consequence))


def remainder(left: Expression, right: Expression) -> Expression:
    return Expression("int.mod", (left, right))


def whole_vectors(elements: Expression, lanes: int) -> Expression:
    """Registers for so many elements side by side."""
    return Expression("int.div", (total([elements, constant(lanes - 1)]), constant(lanes)))


@dataclass
class Draft:
    """A template's declarations as they come together. Domains hold what the loop's size allows, so constraints are
    about several knobs only."""

    pipeline: str
    loops: tuple[Loop, ...]
    facts: Mapping[str, int]
    is_strategy: bool = False
    tree: dict[str, dict[str, object]] = field(default_factory=dict)
    domains: dict[str, tuple[int, ...]] = field(default_factory=dict)
    defaults: dict[str, object] = field(default_factory=dict)
    assertions: list[Assertion] = field(default_factory=list)
    tiles: dict[int, Expression] = field(default_factory=dict)
    """Size of the innermost tile along each loop that has a knob for it."""

    def size(self, loop: int) -> Expression:
        return Expression("dim", value=self.loops[loop].role)

    def integer(self, name: str, domain: Sequence[int], default: int) -> KnobLeaf:
        self.domains[name] = tuple(domain)
        self.defaults[name] = nearest(domain, default)
        return KnobLeaf(name, ())

    def place(self, level: str, loop: int, leaf: object) -> None:
        self.tree.setdefault(level, {})[self.loops[loop].role] = leaf

    def tile(self, loop: int, domain: Sequence[int], default: int) -> None:
        """A knob for the innermost tile along a loop."""
        is_parallel = self.loops[loop].kind == "parallel"
        name = f"{'tile' if is_parallel else 'step'}_{self.loops[loop].role}"
        self.place(TILE if is_parallel else STEP, loop, self.integer(name, domain, default))
        self.tiles[loop] = knob(name)

    def distribute(self, cut: Sequence[int], *, evenly: bool = False) -> None:
        """Knobs for the tiles in a workgroup along the loops of `cut`; the other parallel loops stay whole. `evenly`:
        workgroups are of one size."""
        for loop, each in enumerate(self.loops):
            if each.kind != "parallel":
                continue
            if loop not in cut:
                self.place(DISTRIBUTION, loop, 0)
                continue
            tile = self.tiles.get(loop)
            least = min(self.domains[str(tile.value)]) if tile is not None else 1
            name = f"dist_{each.role}"
            count = self.integer(name, [0, *powers((each.size - 1) // least)], 0)
            if tile is None:
                self.place(DISTRIBUTION, loop, count)
                continue
            self.place(DISTRIBUTION, loop, [KnobLeaf(str(tile.value), ()), count])
            covered = product([tile, knob(name)])
            self.state(
                less(covered, self.size(loop)),
                f"a workgroup of {{}} is less than {each.role} ({{}}); 0 stands for all",
                covered,
                self.size(loop),
            )
            if evenly:
                whole = equal(remainder(self.size(loop), covered), constant(0))
                self.state(
                    Expression("or", (equal(knob(name), constant(0)), whole)),
                    f"workgroups of {{}} share {each.role} ({{}}) out evenly",
                    covered,
                    self.size(loop),
                )

    def peel(self) -> bool:
        """A knob for splitting off remainders, if a tile may leave one."""
        rests = [remainder(self.size(loop), tile) for loop, tile in self.tiles.items()]
        ragged = [
            loop
            for loop, tile in self.tiles.items()
            if any(self.loops[loop].size % value for value in self.domains[str(tile.value)])
        ]
        if not ragged:
            return False
        self.tree.setdefault("options", {})["enable_loop_peeling"] = _PEEL
        self.defaults["peel"] = False
        even = equal(total(rests), constant(0))
        self.state(implies(even, equal(knob("peel"), constant(0))), "peel ({}) with nothing to peel", knob("peel"))
        return True

    def never_masked(self, loop: int) -> None:
        """What a tile leaves over of a loop is split off."""
        tile = self.tiles[loop]
        rest = remainder(self.size(loop), tile)
        self.state(
            Expression("or", (equal(rest, constant(0)), equal(knob("peel"), constant(1)))),
            f"{{}} iterations of {self.loops[loop].role} that tiles of {{}} leave over are split off",
            rest,
            tile,
        )

    def state(self, condition: Expression, message: str, *shown: Expression) -> None:
        self.assertions.append(Assertion(condition, message, shown))

    def makes_small_vectors(self, bytes_each: int) -> None:
        """The tile over all loops makes no vector that IREE refuses."""
        self.keep_small(product([*self.tiles.values(), constant(bytes_each)]))

    def keep_small(self, size: Expression, where: str = "") -> None:
        """`size`: bytes of a vector; `where` ends the message."""
        limit = self.facts["vector_limit"]
        self.state(less(size, constant(limit)), f"vectors of {{}} bytes < {limit}{where}", size)

    def as_configured(self, levels: Mapping[str, Sequence[int]]) -> list[dict[str, object]]:
        """The assignment that is nearest to a lowering config of the op, as a prior; none for a config of other
        loops."""
        if any(len(sizes) != len(self.loops) for sizes in levels.values()):
            return []
        prior: dict[str, object] = {}
        for loop, tile in self.tiles.items():
            sizes = levels.get(TILE if self.loops[loop].kind == "parallel" else STEP)
            if sizes is not None and sizes[loop]:
                prior[str(tile.value)] = sizes[loop]
        return [prior] if prior else []

    def declarations(self, priors: Sequence[Mapping[str, object]]) -> Declarations:
        """Priors may name knobs that there are not, and values between those of the domain."""
        tree: KnobTree = dict(self.tree)
        roles = {str(term.value) for each in self.assertions for term in _dims_of(each)}
        fitted = [
            {
                name: nearest(self.domains[name], int(str(value))) if name in self.domains else value
                for name, value in prior.items()
                if name in self.defaults
            }
            for prior in priors
        ]
        return Declarations(
            knob_tree=tree,
            domains=self.domains,
            defaults=self.defaults,
            priors=tuple(fitted),
            dims={name: size for name, size in self.facts.items() if name in roles},
            pipeline=self.pipeline,
            assertions=tuple(self.assertions),
            is_fallback=False,
            is_strategy=self.is_strategy,
        )


def _dims_of(assertion: Assertion) -> list[Expression]:
    found: list[Expression] = []
    pending = [assertion.condition, *assertion.shown]
    while pending:
        term = pending.pop()
        pending += term.arguments
        if term.op == "dim":
            found.append(term)
    return found


def powers(up_to: int) -> list[int]:
    """1, 2, 4, ... up to a bound."""
    found = []
    value = 1
    while value <= up_to:
        found.append(value)
        value *= 2
    return found


def vector_domain(size: int, lanes: int, most: int) -> list[int]:
    """Elements of a loop side by side in registers, up to `most` vectors: powers of two, since anything else is
    shuffled together. A loop narrower than a vector, or one that vectors do not divide, also gets narrower ones."""
    narrowest = lanes
    while narrowest > 1 and (narrowest > size or size % narrowest):
        narrowest //= 2
    return [value for value in powers(min(size, most * lanes)) if value >= max(narrowest, lanes // 4)] or [1]


def divisors(size: int, most: int) -> list[int]:
    """What divides the size, up to a bound."""
    return [value for value in range(1, min(size, most) + 1) if size % value == 0]


def unroll_domain(size: int, most: int) -> list[int]:
    """Iterations of a loop that are unrolled: what divides it, and powers of two."""
    return sorted({*powers(min(size, most)), *divisors(size, most)})


def parallel_loops(loops: Sequence[Loop]) -> list[int]:
    return [i for i, loop in enumerate(loops) if loop.kind == "parallel" and loop.size > 1]


def reduction_loops(loops: Sequence[Loop]) -> list[int]:
    return [i for i, loop in enumerate(loops) if loop.kind == "reduction" and loop.size > 1]


def shown(declarations: Declarations) -> dict[str, KnobValue]:
    """The default assignment, as a candidate would have it."""
    return {
        name: value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else int(str(value))
        for name, value in declarations.defaults.items()
    }

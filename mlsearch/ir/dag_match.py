"""The op that compares all that lies behind a handle with a dispatch's ops, and its place in a matcher.

Types of buffers are compared to the letter, and tell where the buffers lie. Where they may lie in several ways, each
gets a sequence of its own, and the matcher asks whether any of them takes the op.
"""

from __future__ import annotations

from collections.abc import Sequence

from iree.compiler import ir as mlir

from mlsearch.ir.module import Operation, string_literal, symbol_ref, walk
from mlsearch.ir.placement import Types, placements

_ANY = "!transform.any_op"
_VALUE = "!transform.any_value"
_COUNT = "!transform.param<i64>"
_HOLDER = "transform.match.operation_name"
_PLACE = "mlsearch.dag"


class DagMatch:
    """What is to be found behind one handle of a matcher. As text first, with places held; see `fill_in`.

    To be made, like `fill_in` to be called, within the ops' context and a location.
    """

    def __init__(self, entry: str, number: int, handle: str, dag: list[Operation]) -> None:
        """`number`: of this match among those of the entry. `dag`: in program order; the last one is the handle's."""
        self.dag = dag
        self.ways = placements(dag, _outside(dag))
        self._number = number
        self._handle = handle
        self._symbols = [symbol_ref(f"placed_{entry}_{number}_{way}") for way in range(len(self.ways))]

    @property
    def is_inline(self) -> bool:
        """The comparison stands in the matcher itself, as there is one way only."""
        return len(self.ways) == 1

    @property
    def steps(self) -> list[str]:
        """Of the matcher: they fail where something else is behind the handle."""
        return [_place(self._handle)] if self.is_inline else _any_of(self._symbols, self._handle, self._number)

    @property
    def sequences(self) -> list[str]:
        """Beside the matcher: `@placed_<entry>_<number>_<way>` for each way, if there are several."""
        return [] if self.is_inline else [line for symbol in self._symbols for line in _placed_sequence(symbol)]


def fill_in(sequences: Sequence[Operation], matches: Sequence[DagMatch]) -> None:
    """Put the comparisons in their places: in the matcher, which is the first of `sequences`, and in all the others."""
    matcher, *others = sequences
    inline = [match for match in matches if match.is_inline]
    for place, match in zip(_places(matcher), inline, strict=True):
        _put_dag_match(place, match.dag, match.ways[0])
    apart = [(match.dag, types) for match in matches if not match.is_inline for types in match.ways]
    for other, (dag, types) in zip(others, apart, strict=True):
        place, stand_in, _ = (op.operation for op in other.regions[0].blocks[0].operations)
        compared = _put_dag_match(place, dag, types)
        stand_in.results[0].replace_all_uses_with(compared.results[0])
        stand_in.erase()


def _places(matcher: Operation) -> list[Operation]:
    return [op for op in walk(matcher) if op.name == _HOLDER and _PLACE in str(op.attributes["op_names"])]


def _place(handle: str) -> str:
    """Holds a handle's place by name until the real match op stands there."""
    return f"{_HOLDER} {handle} [{string_literal(_PLACE)}] : {_ANY}"


def _placed_sequence(symbol: str) -> list[str]:
    """Gives the values that the match op takes from outside: none, if it fails and that is suppressed."""
    return [
        f"transform.named_sequence {symbol}(%op: {_ANY} {{transform.readonly}}) -> {_VALUE} {{",
        _place("%op"),
        f"%stand_in = transform.get_operand %op[0] : ({_ANY}) -> {_VALUE}",
        f"transform.yield %stand_in : {_VALUE}",
        "}",
    ]


def _any_of(symbols: Sequence[str], handle: str, number: int) -> list[str]:
    """Steps that fail if all the sequences do; a matcher has no other way to say 'or'."""
    found = [f"%found{number}_{way}" for way in range(len(symbols))]
    return [
        *(
            f"{value} = transform.include {symbol} failures(suppress) ({handle}) : ({_ANY}) -> {_VALUE}"
            for value, symbol in zip(found, symbols, strict=True)
        ),
        f"%found{number} = transform.merge_handles {', '.join(found)} : {_VALUE}",
        f"%count{number} = transform.num_associations %found{number} : ({_VALUE}) -> {_COUNT}",
        f"%none{number} = transform.param.constant 0 : i64 -> {_COUNT}",
        f"transform.match.param.cmpi gt %count{number}, %none{number} : {_COUNT}",
    ]


def _outside(dag: list[Operation]) -> list[mlir.Value]:
    """What `dag` takes from outside, in the order of use."""
    own = {hash(op) for root in dag for op in walk(root)}
    outside: dict[mlir.Value, None] = {}
    for op in dag:
        for value in op.operands:
            if not isinstance(value, mlir.OpResult) or hash(value.owner) not in own:
                outside[value] = None
    return list(outside)


def _put_dag_match(place: Operation, dag: list[Operation], types_there: Types) -> Operation:
    """Replace `place` with the op that matches `dag`, its values being of these types; what `dag` takes from outside
    is matched by type."""
    outside = _outside(dag)
    value_type = mlir.Type.parse("!transform.any_value")
    match = mlir.Operation.create(
        "transform.iree.match.cast_compatible_dag_from_root",
        results=[value_type, value_type],
        operands=[place.operands[0]],
        regions=1,
        ip=mlir.InsertionPoint(place),
    )
    types = [types_there[value] for value in outside]
    body = match.regions[0].blocks.append(*types, arg_locs=[mlir.Location.unknown()] * len(types))
    new_values = dict(zip(outside, body.arguments, strict=True))
    for op in dag:
        copy = op.clone(mlir.InsertionPoint(body))
        for number, value in enumerate(copy.operands):
            copy.operands[number] = new_values[value]
        for result, copied in zip(op.results, copy.results, strict=True):
            copied.set_type(types_there[result])
            new_values[result] = copied
    mlir.Operation.create("transform.yield", ip=mlir.InsertionPoint(body))
    place.erase()
    return match

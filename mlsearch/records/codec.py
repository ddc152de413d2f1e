"""Records as JSON and as an Optuna trial's user attributes, and back: what is read equals what was written.

Reading follows the type hints of the dataclasses in `candidate` and refuses anything else, so a file that was
damaged or edited never becomes half a record.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mlsearch.candidate import Record
from mlsearch.errors import StoreError
from mlsearch.trial_attributes import CANDIDATE

SCHEMA = 3
"""Version of the JSON form; goes up when a field or an outcome type is added, renamed or removed."""

_READABLE = (1, 2, SCHEMA)
"""2 added `Provenance.measured_on`; a record without it reads as one that was measured where it was searched. It also
added the outcomes `Spilled` and `OverLimits`. 3 added `Unmeasured`."""

RECORD = "mlsearch:record"
"""The attribute that holds the whole record; written last, so where it stands the others stand too."""

_Kind = TypeVar("_Kind")

_NOT_FINITE = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


def to_attributes(record: Record) -> dict[str, Any]:
    """User attributes for a trial: scalars for people and the dashboard, then the complete JSON."""
    scalars: dict[str, Any] = {
        CANDIDATE: record.candidate.key,
        "mlsearch:template": record.candidate.template,
        "mlsearch:outcome": record.outcome_name,
        "mlsearch:time_us": record.time_us,
        "mlsearch:message": _message(record),
        "mlsearch:compile_s": record.compile_s,
        "mlsearch:predicted": record.predicted,
        "mlsearch:artifact": record.artifact_digest,
    }
    for item in fields(record.provenance):
        scalars[f"mlsearch:{item.name}"] = getattr(record.provenance, item.name)
    attributes = {name: _plain(value) for name, value in scalars.items() if value is not None}
    attributes["mlsearch:version"] = attributes.pop("mlsearch:mlsearch")
    attributes[RECORD] = to_json(record)
    return attributes


def from_attributes(attributes: Mapping[str, Any]) -> Record | None:
    """The trial's record; None for a trial that has none. Raises StoreError for one that can't be read."""
    text = attributes.get(RECORD)
    return None if text is None else from_json(text)


def to_json(record: Record) -> str:
    """One line of strict JSON with the schema's version in it."""
    plain = {"schema": SCHEMA, **_plain(record)}
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def from_json(text: object) -> Record:
    """Raises StoreError: not JSON, of a newer schema, or not what a record consists of."""
    try:
        plain = json.loads(text) if isinstance(text, str) else None
    except ValueError as error:
        raise StoreError(f"a record is not valid JSON: {error}") from None
    return from_plain(plain)


def from_plain(plain: object) -> Record:
    """Like `from_json`, for JSON that is parsed already."""
    if not isinstance(plain, dict):
        raise StoreError("a record is not a JSON object")
    schema = plain.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise StoreError(
            f"a record was written by a newer mlsearch (schema {schema}, this one reads up to {SCHEMA}): "
            "upgrade mlsearch, or use another store"
        )
    if schema not in _READABLE or isinstance(schema, bool):
        raise StoreError(f"a record has schema {schema!r}; known: {', '.join(map(str, _READABLE))}")
    try:
        return read_value(Record, {name: value for name, value in plain.items() if name != "schema"}, "record")
    except StoreError as error:
        raise StoreError(f"a record can't be read: {error}") from None


def plain_value(value: object) -> Any:
    """Any frozen dataclass of plain fields in JSON's own types, for files that hold more than records."""
    return _plain(value)


def read_value(kind: type[_Kind], plain: object, where: str) -> _Kind:
    """The value of dataclass `kind` that `plain_value` made `plain` of. Raises StoreError, naming the field."""
    try:
        value: _Kind = _read(kind, plain, where)
    except _MismatchError as error:
        raise StoreError(str(error)) from None
    return value


class _MismatchError(Exception):
    pass


def _message(record: Record) -> str | None:
    message = getattr(record.outcome, "message", None)
    return message.strip().partition("\n")[0][:200] if isinstance(message, str) else None


def _plain(value: object) -> Any:
    """JSON's own types. A dataclass becomes an object; of a union of them, `_read` tells by `type` which."""
    if is_dataclass(value) and not isinstance(value, type):
        plain = {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
        return {"type": type(value).__name__, **plain}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Path):
        return str(value)
    assert value is None or isinstance(value, bool | int | float | str), f"no JSON form for {value!r}"
    return value


def _read(hint: Any, plain: Any, where: str) -> Any:
    """The value of type `hint` that `_plain` made `plain` of."""
    if get_origin(hint) in (Union, types.UnionType):
        return _read(_member(get_args(hint), plain, where), plain, where)
    if get_origin(hint) is tuple:
        return _read_tuple(get_args(hint), plain, where)
    if get_origin(hint) is Literal:
        if plain not in get_args(hint):
            raise _MismatchError(f"{where} is {plain!r}, not one of {', '.join(map(repr, get_args(hint)))}")
        return plain
    if is_dataclass(hint):
        return _read_dataclass(hint, plain, where)
    if hint is float and isinstance(plain, str) and plain in _NOT_FINITE:
        return _NOT_FINITE[plain]
    if hint is float and isinstance(plain, int) and not isinstance(plain, bool):
        try:
            return float(plain)
        except OverflowError:
            raise _MismatchError(f"{where} is too large a number") from None
    if hint is Path and isinstance(plain, str):
        return Path(plain)
    if not _has_type(hint, plain):
        raise _MismatchError(f"{where} is {plain!r}, not {getattr(hint, '__name__', hint)}")
    return plain


def _member(members: tuple[Any, ...], plain: Any, where: str) -> Any:
    """The member of a union that `plain` belongs to."""
    if plain is None and type(None) in members:
        return type(None)
    if isinstance(plain, dict):
        chosen = [hint for hint in members if is_dataclass(hint) and hint.__name__ == plain.get("type")]  # type: ignore[union-attr]
    else:
        scalars = [hint for hint in members if hint is not type(None) and not is_dataclass(hint)]
        chosen = [hint for hint in scalars if _has_type(hint, plain)] or scalars
    if not chosen:
        raise _MismatchError(f"{where} is of unknown type {plain.get('type') if isinstance(plain, dict) else plain!r}")
    return chosen[0]


def _read_tuple(items: tuple[Any, ...], plain: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise _MismatchError(f"{where} is not a list")
    hints = [items[0]] * len(plain) if items[-1:] == (Ellipsis,) else list(items)
    if len(hints) != len(plain):
        raise _MismatchError(f"{where} has {len(plain)} items, not {len(hints)}")
    return tuple(_read(hint, item, f"{where}[{i}]") for i, (hint, item) in enumerate(zip(hints, plain, strict=True)))


def _read_dataclass(kind: Any, plain: Any, where: str) -> Any:
    if not isinstance(plain, dict) or plain.get("type") != kind.__name__:
        raise _MismatchError(f"{where} is not a {kind.__name__}")
    hints = _hints(kind)
    unknown = plain.keys() - hints.keys() - {"type"}
    if unknown:
        raise _MismatchError(f"{where} has unknown field(s) {', '.join(sorted(unknown))}")
    values = {}
    for item in fields(kind):
        if item.name in plain:
            values[item.name] = _read(hints[item.name], plain[item.name], f"{where}.{item.name}")
        elif item.default is MISSING:
            raise _MismatchError(f"{where} has no '{item.name}'")
    return kind(**values)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_type(hint: Any, plain: Any) -> bool:
    if hint is type(None):
        return plain is None
    return isinstance(plain, hint) and (hint is bool or not isinstance(plain, bool))

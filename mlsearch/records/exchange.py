"""Records as a file of JSON lines, to keep, to compare or to carry to another store.

The first line names the form, e.g. `{"mlsearch_records": 1}`; each further line is one record with the study
it comes from and needs nothing else to be understood.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TextIO

from mlsearch.candidate import digest
from mlsearch.errors import StoreError
from mlsearch.records import codec
from mlsearch.records.store import Store, StoredRecord

FORMAT = 1
"""Version of the lines around the records, see `codec.SCHEMA` for the records themselves."""
IMPORTED = "imported:"
"""Begins the names of studies of imported records: these have no parameters, so no sampler goes on there."""

_HEADER = "mlsearch_records"


@dataclass(frozen=True)
class Imported:
    added: int
    duplicates: int
    """Records that the store, or an earlier line, held already."""


def export_records(records: Iterable[StoredRecord], stream: TextIO) -> int:
    """Write a header and a line for each record; the number of records."""
    stream.write(json.dumps({_HEADER: FORMAT}) + "\n")
    count = 0
    for stored in records:
        line = {
            "study": stored.study,
            "number": stored.number,
            "record": json.loads(codec.to_json(stored.record)),
        }
        stream.write(json.dumps(line, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n")
        count += 1
    return count


def import_records(store: Store, stream: TextIO) -> Imported:
    """Add the records that the store does not hold yet, to studies named after those they come from.

    Raises StoreError, naming the line, and adds nothing unless every line is a record.
    """
    incoming = _read(stream)
    held = {_content(stored) for stored in store.records()}
    studies = {}
    added = 0
    for stored in incoming:
        content = _content(stored)
        if content in held:
            continue
        held.add(content)
        name = IMPORTED + stored.study.removeprefix(IMPORTED)
        if name not in studies:
            studies[name] = store.study(name)
        store.add(studies[name], stored.record)
        added += 1
    return Imported(added, len(incoming) - added)


def _content(stored: StoredRecord) -> str:
    return digest(codec.to_json(stored.record))


def _read(stream: TextIO) -> list[StoredRecord]:
    try:
        lines = [(number, line) for number, line in enumerate(stream, start=1) if line.strip()]
    except UnicodeDecodeError:
        raise StoreError("not a file of exported records: it is not UTF-8 text") from None
    if not lines or not _is_header(lines[0][1]):
        raise StoreError(f'not a file of exported records: line 1 is not {{"{_HEADER}": {FORMAT}}}')
    return [_stored(number, line) for number, line in lines[1:]]


def _is_header(line: str) -> bool:
    try:
        header = json.loads(line)
    except ValueError:
        return False
    version = header.get(_HEADER) if isinstance(header, dict) else None
    if isinstance(version, int) and version > FORMAT:
        raise StoreError(f"line 1: exported by a newer mlsearch (format {version}): upgrade mlsearch")
    return bool(version == FORMAT)


def _stored(number: int, line: str) -> StoredRecord:
    try:
        plain = json.loads(line)
    except ValueError as error:
        raise StoreError(f"line {number}: not valid JSON: {error}") from None
    if not isinstance(plain, dict) or not isinstance(plain.get("study"), str):
        raise StoreError(f"line {number}: not an exported record: it names no study")
    try:
        record = codec.from_plain(plain.get("record"))
    except StoreError as error:
        raise StoreError(f"line {number}: {error}") from None
    origin = plain.get("number")
    return StoredRecord(plain["study"], origin if isinstance(origin, int) else 0, record)

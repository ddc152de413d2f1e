"""`mlsearch records`: look at what was tried, carry it elsewhere."""

from __future__ import annotations

import io
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mlsearch.candidate import Record, digest
from mlsearch.cli import options as shared
from mlsearch.cli.output import check_writable, json_text, refuse_to_overwrite, text_stream, write_text
from mlsearch.errors import StoreError

if TYPE_CHECKING:
    from mlsearch.records.store import Store

EXAMPLES = """\b
Examples:
  mlsearch records list
  mlsearch records show 3f2a91c0
  mlsearch records export records.jsonl
  mlsearch records import records.jsonl --store other.journal
"""

_SHORT_ID = 8


@click.group("records", epilog=EXAMPLES)
def records_command() -> None:
    """List, show, export and import the records of past trials."""


@records_command.command("list")
@shared.store_option
@click.option("--workload", metavar="KEY", show_default="all", help="Only records of this workload.")
@click.option("--study", metavar="NAME", show_default="all", help="Only records of this study.")
@shared.debug_option
def list_command(store: str, workload: str | None, study: str | None) -> None:
    """List records: one line each, by study."""
    found = list(_existing(store).records(study=study, workload=workload))

    from rich.text import Text

    from mlsearch.report import open_console
    from mlsearch.report.tables import add_row, new_table
    from mlsearch.report.text import count_text, one_line, time_text

    console = open_console(sys.stdout)
    for name, group in groupby(found, key=lambda stored: stored.study):
        table = new_table("id", "trial", "template", "outcome", "time", numbers=("trial", "time"))
        for stored in group:
            record = stored.record
            add_row(
                table,
                record_id(record)[:_SHORT_ID],
                str(stored.number),
                one_line(record.candidate.template),
                record.outcome_name,
                time_text(record.time_us),
            )
        console.print(Text(f"study {one_line(name)}", style="bold"), soft_wrap=True)
        console.print(table)
    console.print(Text(count_text(len(found), "record")))


@records_command.command("show")
@click.argument("id_", metavar="ID")
@shared.store_option
@shared.debug_option
def show_command(id_: str, store: str) -> None:
    """Show one record in full, as JSON. ID is what `mlsearch records list` prints, or the start of it."""
    matches = {}
    for stored in _existing(store).records():
        name = record_id(stored.record)
        if name.startswith(id_.lower()):
            matches[name] = stored
    if not matches:
        raise StoreError(f"no record {id_} in {store}; `mlsearch records list` names them")
    if len(matches) > 1:
        raise StoreError(f"{id_} fits {len(matches)} records in {store}: {', '.join(sorted(matches)[:5])}")

    from mlsearch.records import codec

    [(name, stored)] = matches.items()
    record = json.loads(codec.to_json(stored.record))
    write_text(json_text({"id": name, "study": stored.study, "number": stored.number, "record": record}), "-")


@records_command.command("export")
@click.argument("destination", metavar="FILE|-")
@shared.store_option
@shared.debug_option
def export_command(destination: str, store: str) -> None:
    """Write all records as JSON lines; - is stdout."""
    refuse_to_overwrite(destination, store)
    check_writable(destination)
    source = _existing(store)

    from mlsearch.records.exchange import export_records
    from mlsearch.report.text import count_text

    text = io.StringIO()
    count = export_records(source.records(), text)
    write_text(text.getvalue(), destination)
    click.echo(f"exported {count_text(count, 'record')}", file=text_stream(destination))


@records_command.command("import")
@click.argument("source", metavar="FILE")
@shared.store_option
@shared.debug_option
def import_command(source: str, store: str) -> None:
    """Add the records of an exported file. Those that the store holds already are not added again."""
    try:
        text = Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise StoreError(f"can't read {source}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise StoreError(f"{source} is not a file of exported records: it is not UTF-8 text") from error

    from mlsearch.records.exchange import import_records
    from mlsearch.records.store import Store
    from mlsearch.report.text import count_text

    try:
        done = import_records(Store.open(store), io.StringIO(text))
    except StoreError as error:
        raise StoreError(f"{source}: {error}") from error
    click.echo(f"imported {count_text(done.added, 'record')}, {done.duplicates} known already")


def record_id(record: Record) -> str:
    """Content hash, 16 hex digits: the same record has the same id in every store."""
    from mlsearch.records import codec

    return digest(codec.to_json(record))


def _existing(location: str) -> Store:
    """The store, which must be there: opening would make an empty one of a mistyped path."""
    if "://" not in location and not Path(location).exists():
        raise StoreError(f"no record store {location}; name one with --store")

    from mlsearch.records.store import Store

    return Store.open(location)

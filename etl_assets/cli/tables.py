"""`etl-assets tables`: where every table stands, and where to read it."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from etl_assets.observability.table_states import TableState


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets tables\n"
        "  etl-assets tables --json | jq -r '.[] | select(.name == \"raw_events\") | .uri'\n"
    )
)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def tables(as_json: bool) -> None:
    """Show every table: version, rows, and what it has consumed of its inputs.

    Other readers open a table by its uri at that version. A table that does not exist yet has no version. The cursor of
    raw_events is its last batch of files; those of the others are versions of their inputs, for each day.
    """
    from etl_assets.observability.table_states import table_states
    from etl_assets.settings import load_settings

    states = table_states(load_settings().placement().reader())
    if as_json:
        click.echo(json.dumps([state.as_json() for state in states]))
    else:
        _show(states)


def _show(states: list[TableState]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table()
    table.add_column("table", no_wrap=True)
    table.add_column("version", justify="right")
    table.add_column("rows", justify="right")
    table.add_column("cursor")
    table.add_column("last commit (UTC)", no_wrap=True)
    for state in states:
        table.add_row(
            state.name,
            "" if state.version is None else str(state.version),
            "" if state.version is None else f"{state.rows:,}",
            "\n".join(_in_short(state.cursor)),
            "not there yet" if state.last_commit_at is None else _time(state.last_commit_at),
        )
    console = Console()
    console.print(table)
    for root in dict.fromkeys(state.root for state in states):
        click.echo(f"Tables: {root}   their uris: etl-assets tables --json")


def _in_short(cursor: Mapping[str, int]) -> Iterator[str]:
    """One line an input: the version it has been read up to, or the range of versions over its days."""
    for source, names in groupby(cursor, key=lambda name: name.partition("/")[0]):
        days = list(names)
        versions = [cursor[name] for name in days]
        span = f"{min(versions)}" if min(versions) == max(versions) else f"{min(versions)} to {max(versions)}"
        whole = len(days) == 1 and days[0].partition("/")[2] in ("", "*")
        yield (
            f"{source} {span}"
            if whole
            else f"{source} {span} ({len(days):,} {'day' if len(days) == 1 else 'days'})"
        )


def _time(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")

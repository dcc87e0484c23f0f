"""Preview of an undo for people and machines."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from etl_assets.undo.undo import Undo

MAX_DAYS_SHOWN = 31


def show(undo: Undo, *, first: str | None = None) -> None:
    """Print the rows by day of the table `first`, and the number of rows to rebuild in each later table."""
    for each in undo.tables:
        if each.name == first:
            _show_days(undo, first)
            continue
        total = each.total()
        rows = _counted(total.gone - total.kept, "row")
        kept = f"; {total.kept:,} that an operator decided on stay" if total.kept else ""
        if None in each.days:
            click.echo(f"{each.name}: all {rows} go and are made again; it is empty until then")
        else:
            click.echo(
                f"{each.name}: {rows} of {_counted(len(each.days), 'day')} go and are made again{kept}"
            )


def span(days: tuple[dt.date, ...]) -> str:
    """Return days in short form."""
    if len(days) == 1:
        return days[0].isoformat()
    return f"{len(days):,} days from {days[0]} to {days[-1]}"


def as_json(undo: Undo, **more: Any) -> str:
    """Return the preview as JSON."""
    tables = [
        {
            "name": each.name,
            "version": each.replacement.base_version,
            "days": [
                {
                    "day": None if change.day is None else change.day.isoformat(),
                    "rows": change.before,
                    "gone": change.gone,
                    "back": change.back,
                    "kept": change.kept,
                }
                for change in each.changes()
            ],
        }
        for each in undo.tables
    ]
    return json.dumps({**more, "tables": tables})


def _show_days(undo: Undo, name: str) -> None:
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=name, title_justify="left")
    shown.add_column("day", no_wrap=True)
    for column in ("rows now", "go", "come back", "rows then"):
        shown.add_column(column, justify="right")
    (changes,) = (each.changes() for each in undo.tables if each.name == name)
    for change in changes[-MAX_DAYS_SHOWN:]:
        figures = (change.before, change.gone, change.back, change.after)
        day = "all" if change.day is None else change.day.isoformat()
        shown.add_row(day, *(f"{figure:,}" for figure in figures))
    Console().print(shown)
    if len(changes) > MAX_DAYS_SHOWN:
        click.echo(f"and {len(changes) - MAX_DAYS_SHOWN:,} days before these; --json shows all")


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"

"""`etl-assets pipelines schedules`: the next and the last tick of each schedule."""

from __future__ import annotations

import datetime as dt
import json
from contextlib import closing
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def schedules(as_json: bool) -> None:
    """List the pipelines with a schedule: next tick, last tick and what became of it. Times are in UTC."""
    from etl_assets.control.schedule_view import schedule_views
    from etl_assets.control.store import open_store
    from etl_assets.settings import load_installation

    settings = load_installation()
    with closing(open_store(settings)) as store:
        found = [*schedule_views(settings.catalog().pipelines, store, dt.datetime.now(dt.UTC))]
    if as_json:
        click.echo(json.dumps([{name: _text(each) for name, each in asdict(row).items()} for row in found]))
        return
    if not found:
        click.echo("no pipeline has a schedule; each runs as soon as its source has something new")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table()
    for column in ("pipeline", "schedule", "next tick", "last tick", "outcome"):
        table.add_column(column, no_wrap=column == "pipeline")
    for row in found:
        shown = (row.pipeline, row.schedule, _text(row.next_tick), _text(row.last_tick), row.outcome)
        table.add_row(*(str(each or "").replace("[", "\\[") for each in shown))
    Console().print(table)


def _text(value: object) -> object:
    return value.isoformat(timespec="seconds") if isinstance(value, dt.datetime) else value

"""`etl-assets effects`: effects of sinks outside of the platform that are under way."""

from __future__ import annotations

import datetime as dt
import json

import click

from etl_assets.cli.dead_letter_options import JSON


@click.group()
def effects() -> None:
    """Effects of sinks outside of the platform: who is doing what."""


@effects.command(name="list", epilog="\b\nExample:\n  etl-assets effects list --sink invoices --json\n")
@click.option("--sink", metavar="NAME", help="Only those of this sink.")
@JSON
def list_command(sink: str | None, as_json: bool) -> None:
    """List effects that are reserved and not completed, the oldest first.

    An effect whose owner died stays until another process reserves it, which takes it over. Ages are by the
    clocks of two machines.
    """
    from etl_assets.observability.reservations import reservations
    from etl_assets.settings import load_installation

    found = reservations(load_installation().placement().reader(), sink=sink)
    if as_json:
        click.echo(json.dumps([each.as_json() for each in found]))
        return
    if not found:
        click.echo("no effect is reserved")
    for each in found:
        age = max(dt.timedelta(), dt.datetime.now(dt.UTC) - each.reserved_at)
        owner = f"{each.owner_process} in {each.owner_domain}"
        fenced = ", fenced: the next one that asks gets it" if each.is_fenced else ""
        click.echo(
            f"{each.sink} {each.key}: attempt {each.attempt}, for {age.total_seconds():,.0f} s by"
            f" {owner}{fenced}"
        )

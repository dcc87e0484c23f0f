"""`etl-assets reprocess`: rebuild a range of days with the current code, in place of older code's rows.

Belongs here: the options, and the order of planning, undoing and running. Does not belong here: what is
removed (`undo/plan.py`), and how days are run (`runs.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import click

from etl_assets.cli.dead_letter_options import DAY
from etl_assets.cli.remake import undo_and_remake
from etl_assets.cli.restore import looking

if TYPE_CHECKING:
    from etl_assets.pipelines.catalog import Catalog
    from etl_assets.settings import Settings


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets reprocess --from 2026-03-01 --to 2026-03-03\n"
        "  etl-assets reprocess --from 2026-03-01 --to 2026-03-03 --yes\n"
        "  etl-assets reprocess --tables film_ratings --yes\n"
    )
)
@click.option("--from", "first", type=DAY, metavar="DAY", help="First day of arrival.")
@click.option("--to", "last", type=DAY, metavar="DAY", help="Last day.")
@click.option(
    "--tables",
    "names",
    multiple=True,
    metavar="TABLE",
    help="Begin with this table, with what follows it; may be repeated. Needed where no built-in pipeline"
    " has a default.",
)
@click.option("--yes", is_flag=True, help="Do it; without, nothing is changed.")
@click.option("--json", "as_json", is_flag=True, help="Print one object, for machines.")
def reprocess(
    first: dt.datetime | None,
    last: dt.datetime | None,
    names: tuple[str, ...],
    yes: bool,
    as_json: bool,
) -> None:
    """Run a range of days through the current code, though they were read already.

    Rows that older code made of these days are removed, and rebuilt from the records that the source
    accepted. If that fails, the tables get back the rows they had. Then their sinks are delivered to.
    Without --yes it says what would be done. Killed at any moment, run it again. Without --from and --to,
    which only tables without days allow, it is all days.
    """
    from etl_assets.cli import undo_preview
    from etl_assets.cli.withdraw import said_of_sinks, sinks_as_json, withdraw
    from etl_assets.settings import load_installation
    from etl_assets.undo.plan import plan_days

    settings = load_installation()
    catalog = settings.catalog()
    _refuse_undeclared(settings, names)
    begin = _checked(catalog, names) or catalog.reprocess_from
    if not begin:
        raise click.UsageError(
            "--tables is needed: name one of"
            f" {', '.join(catalog.made_again) or 'those of a pipeline: there is none yet'}"
        )
    for option, given in (("--from", first), ("--to", last)):
        if given is None and any(catalog.table(name).is_daily for name in begin):
            raise click.UsageError(f"{option} is needed: {begin[0]} has days")
    since = dt.date.min if first is None else first.date()
    until = dt.date.max if last is None else last.date()
    if until < since:
        raise click.UsageError("--to is before --from")
    days = _days_with_records(settings, begin, since, until)
    undo = plan_days(looking(settings), begin, days)
    undone = catalog.downstream_of(begin)
    shown, sinks = [day.isoformat() for day in days], sinks_as_json(catalog, undone)
    if as_json and not yes:
        click.echo(undo_preview.as_json(undo, days=shown, done=False, sinks=sinks))
    elif not as_json:
        click.echo(f"{undo_preview.span(days)} to be made again from {', '.join(begin)} on")
        undo_preview.show(undo)
        for sentence in said_of_sinks(catalog, undone):
            click.echo(sentence)
    if not yes:
        tables = "".join(f" --tables {name}" for name in names)
        click.echo(
            "nothing was changed. To do it with the code that is installed now:\n"
            f"  etl-assets reprocess --from {days[0] if first is None else since}"
            f" --to {days[-1] if last is None else until}{tables} --yes",
            err=True,
        )
        return
    assets = catalog.made_again_from(begin)
    plan = partial(plan_days, names=begin, days=days)
    undo_and_remake(settings, plan, of=begin, assets=assets, days=days)
    withdraw(settings, undone)
    if as_json:
        # Only after the work, because readers rely on `done`.
        click.echo(undo_preview.as_json(undo, days=shown, done=True, sinks=sinks))
    click.echo(f"{undo_preview.span(days)} made again", err=True)


def _refuse_undeclared(settings: Settings, names: Sequence[str]) -> None:
    from etl_assets.cli.undeclared import materialize_again
    from etl_assets.errors import InputError
    from etl_assets.steps.step import platform_table

    domain = settings.placement().reader()
    for name in names:
        table = platform_table(name, domain)
        if table.contract is None:
            raise InputError(
                f"{name} is not reprocessed: no pipeline makes its rows, an asset of your own does",
                fix=materialize_again(table),
                table=name,
            )


def _checked(catalog: Catalog, names: Sequence[str]) -> tuple[str, ...]:
    from etl_assets.errors import InputError

    for name in names:
        catalog.table(name)
        stage = catalog.stage_of(name)
        if stage is not None and not stage.keeps_records:
            raise InputError(
                f"{name} is not made again: {stage.undo.refusal}", fix=stage.undo.fix, table=name
            )
        if name not in catalog.made_again:
            raise InputError(
                f"{name} is not made again: it is not made from other tables of the platform, or not by"
                " itself",
                fix=f"name one of {', '.join(catalog.made_again)}",
                table=name,
            )
    return tuple(dict.fromkeys(names))


def _days_with_records(
    settings: Settings, names: Collection[str], first: dt.date, last: dt.date
) -> tuple[dt.date, ...]:
    """Return the days on which the sources of some tables accepted records."""
    from etl_assets.errors import InputError, NotFound
    from etl_assets.steps.step import platform_table

    sources = settings.catalog().sources_of(names)
    domain = settings.placement().reader()
    found: set[dt.date] = set()
    for name in sources:
        snapshot = platform_table(name, domain).snapshot()
        rows = {} if snapshot is None else snapshot.rows_by("partition_date")
        found |= {dt.date.fromisoformat(day) for (day,) in rows}
    days = sorted(day for day in found if first <= day <= last)
    if not days:
        raise NotFound(
            f"no record arrived from {first} to {last}",
            fix=f"name days of arrival that `{'`, `'.join(sources)}`"
            f" {'has' if len(sources) == 1 else 'have'}",
        )
    if days[0] < settings.start_date:
        raise InputError(
            f"there are no partitions for {days[0]}: they start on {settings.start_date}",
            fix=f"set start_date to {days[0]} or earlier in the platform file, or begin later",
        )
    return tuple(days)

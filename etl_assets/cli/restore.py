"""`etl-assets tables restore`: restore a table to an older version, and undo what depends on newer rows.

Belongs here: the options, and the order of planning, reporting and undoing. Does not belong here: what is
removed and restored (`undo/plan.py`).
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import TYPE_CHECKING

import click

from etl_assets.cli.undeclared import materialize_again

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.settings import Settings
    from etl_assets.undo.undo import Domains, Undo


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets tables restore film_ratings --to-time 2026-03-01T22:00:00+01:00\n"
        "  etl-assets tables restore film_ratings --to-version 41 --yes\n"
    )
)
@click.argument("table")
@click.option("--to-version", "version", type=click.IntRange(0), metavar="N", help="The version it had.")
@click.option("--to-time", "time", metavar="T", help="Its version at a time (ISO 8601 with zone).")
@click.option("--yes", is_flag=True, help="Do it; without, nothing is changed.")
@click.option("--no-run", is_flag=True, help="Leave the tables and sinks after it to the next run.")
@click.option("--json", "as_json", is_flag=True, help="Print one object, for machines.")
def restore(
    table: str, version: int | None, time: str | None, yes: bool, no_run: bool, as_json: bool
) -> None:
    """Give a table the content of an older version, by a new commit.

    Rows that were derived from removed rows are removed from the later tables, and rebuilt at once from the
    table's restored content, with the code that is installed now. If that fails, all tables are restored to
    what they had. Then the sinks of these tables are delivered to. The cursors of the table are set back too:
    the next run of these days brings it up to date. Without --yes it says what would be done.
    """
    from etl_assets.cli import undo_preview
    from etl_assets.cli.withdraw import said_of_sinks, sinks_as_json
    from etl_assets.settings import load_installation
    from etl_assets.undo.plan import existing, plan_restore, version_at

    if (version is None) == (time is None):
        raise click.UsageError("say --to-version or --to-time")
    settings = load_installation()
    domains = looking(settings)
    found = existing(domains, table)
    wanted = version_at(found, _moment(time)) if time is not None else version
    assert wanted is not None
    catalog = settings.catalog()
    undone = catalog.downstream_of([table])
    # 1. Plan and show.
    undo = plan_restore(domains, table, wanted)
    if not as_json:
        click.echo(f"{_at(found, found.version())}, to be restored to {_at(found, wanted)}")
        undo_preview.show(undo, first=table)
        for sentence in said_of_sinks(catalog, undone if undo.tables else ()):
            click.echo(sentence)
    # 2. Restore the table, and rebuild what was derived from it. Then the sinks follow.
    done = _carry_out(settings, undo, table, wanted, no_run=no_run) if yes else {}
    # 3. Report.
    if as_json:
        # Only after the work, because readers rely on `done`.
        sinks = sinks_as_json(catalog, undone)
        click.echo(undo_preview.as_json(undo, table=table, to_version=wanted, done=yes, sinks=sinks))
    if not undo.tables:
        click.echo(f"{table} has the content of version {wanted}: there is nothing to do", err=True)
        return
    if yes:
        click.echo(f"done: {', '.join(f'{name} is at {now}' for name, now in done.items())}", err=True)
    if found.contract is None:
        click.echo(_next_of_own(found, wanted, done=yes), err=True)
        return
    again = table in catalog.made_again
    click.echo(_next(undo, table, wanted, done=yes, can_be_made_again=again), err=True)


def _carry_out(settings: Settings, undo: Undo, table: str, version: int, *, no_run: bool) -> dict[str, int]:
    """Restore, rebuild and deliver, or complete what was killed; return the new versions of tables."""
    from etl_assets.cli.remake import finish, undo_and_remake
    from etl_assets.cli.withdraw import withdraw
    from etl_assets.undo.plan import plan_restore

    catalog = settings.catalog()
    after = [] if no_run else [each for each in catalog.made_again_from([table]) if each != table]
    done: dict[str, int] = {}
    if undo.tables:
        plan = partial(plan_restore, name=table, version=version)
        done = undo_and_remake(settings, plan, of=[table], assets=after, days=undo.days)
    else:
        finish(settings, after)
    if not no_run:
        withdraw(settings, catalog.downstream_of([table]))
    return done


def looking(settings: Settings) -> Domains:
    """Return a function from a table's name to the domain that reads it.

    Reading prepares nothing for writing.
    """
    reader = settings.placement().reader()
    return lambda name: reader


def _moment(text: str) -> dt.datetime:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{text!r} is no time: write it as 2026-03-01T22:00:00+01:00", param_hint="--to-time"
        ) from error
    if moment.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} has no zone: add one, as in {text}Z or {text}+01:00", param_hint="--to-time"
        )
    return moment


def _at(table: Table, version: int) -> str:
    from etl_assets.delta.log.entries import commit_notes

    note = next(commit_notes(table.path, version), None)
    time = "" if note is None else f" of {note.at.strftime('%Y-%m-%d %H:%M:%S UTC')}"
    return f"{table.name} is at version {version}{time}" if version == table.version() else f"{version}{time}"


def _next_of_own(table: Table, version: int, *, done: bool) -> str:
    if not done:
        return (
            "nothing was changed. Assets that read it keep what they have. To do it:\n"
            f"  etl-assets tables restore {table.name} --to-version {version} --yes"
        )
    return (
        f"to have rows again that went, {materialize_again(table)}; a run that had appended rows which went"
        " adds them when it is executed again"
    )


def _next(undo: Undo, table: str, version: int, *, done: bool, can_be_made_again: bool) -> str:
    from etl_assets.cli.undo_preview import span

    if not done:
        return (
            "nothing was changed. The tables after it are made again with the code that is installed:"
            " install the right one"
            f" first. To do it:\n  etl-assets tables restore {table} --to-version {version} --yes"
        )
    if not can_be_made_again:
        return (
            "rows that were made with its content keep what they have: `etl-assets reprocess` makes days"
            " again"
        )
    days = f" for {span(undo.days)}" if undo.days else ""
    return (
        f"the next run brings {table} up to date with its inputs again{days}, with the code that is"
        " installed then:\n"
        "  etl-assets run"
    )

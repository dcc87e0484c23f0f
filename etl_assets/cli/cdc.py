"""`etl-assets cdc`: reading the log of a PostgreSQL server (change data capture)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from etl_assets.cli.shown_findings import show_findings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import psycopg

    from etl_assets.observability.cdc_checks import CdcTarget
    from etl_assets.observability.findings import Finding
    from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
    from etl_assets.settings.connections import PostgresConnection

_CONNECTION = "connection"


@click.group()
def cdc() -> None:
    """Change data capture from PostgreSQL."""


@cdc.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets cdc check films\n"
        "  etl-assets cdc check shop     # all tables of the capture shop\n"
        "  etl-assets cdc check --connection shop --table public.films --publication films --json\n"
    )
)
@click.argument("name", metavar="[PIPELINE|CAPTURE]", required=False)
@click.option("--connection", metavar="NAME", help="A connection of type `postgres`, in place of a name.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="TABLE",
    help="Such as public.films; repeatable. By default those of the publication.",
)
@click.option("--publication", metavar="NAME", help="The publication that the tables are to be in.")
@click.option("--slot", metavar="NAME", help="The replication slot, if it exists.")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def check(
    name: str | None,
    connection: str | None,
    tables: tuple[str, ...],
    publication: str | None,
    slot: str | None,
    as_json: bool,
) -> None:
    """Check whether the log of a PostgreSQL server can be read, for a pipeline, a capture or a connection.

    Of a capture, all tables that it matches are checked.

    Looks at settings, free slots, privileges, publication, replica identity and columns. Changes nothing.
    Every problem comes with the statement that fixes it. Exit code 1 if a check fails; warnings do not
    count.
    """
    if (name is None) is (connection is None):
        raise click.UsageError("name a pipeline or a capture, or --connection")
    if name is not None and (tables or publication or slot):
        raise click.UsageError(
            "a pipeline or capture names its tables, publication and slot; leave the options out"
        )
    if connection is not None:
        findings = _connection_findings(connection, tables, publication=publication, slot=slot)
    else:
        assert name is not None  # one of both was given
        findings = _capture_findings(name) if _is_capture(name) else _pipeline_findings(name)
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings]))
    else:
        show_findings(findings)
    if any(finding.status == "fail" for finding in findings):
        sys.exit(1)


@cdc.command()
@click.argument("capture", required=False)
def discover(capture: str | None) -> None:
    """Look for new, changed and removed tables of a capture, or of all.

    The worker does it by itself, every `discovery_interval_seconds`. Makes the publication if it is missing.
    """
    from etl_assets.captures import discover as discovered
    from etl_assets.captures import write_declarations
    from etl_assets.pipelines.capture_files import usable_captures
    from etl_assets.settings import load_settings

    settings = load_settings()
    names = sorted(usable_captures(settings.home)) if capture is None else [capture]
    for name in names:
        found = discovered(settings, name)
        for what in ("added", "changed", "left", "errored"):
            for table in getattr(found, what):
                click.echo(f"{name}: {table}: {what}")
        if not any((found.added, found.changed, found.left, found.errored)):
            click.echo(f"{name}: nothing has changed")
    write_declarations(settings)  # without those of captures that were removed


@cdc.command()
@click.argument("capture", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects, for machines.")
def tables(capture: str | None, as_json: bool) -> None:
    """Show the tables of a capture, or of all: phase, copied rows, lag, and errors with what to do.

    Asks the server how long its log is. Exit code 1 if a table is in error.
    """
    from etl_assets.captures import table_views
    from etl_assets.settings import load_settings

    found = list(table_views(load_settings(), capture))
    if as_json:
        click.echo(json.dumps([each.as_json() for each in found]))
    else:
        for each in found:
            click.echo(each.line())
    if any(each.state.error is not None for each in found):
        sys.exit(1)


@cdc.command()
@click.argument("capture")
@click.argument("table")
@click.option("--copy", "copies", is_flag=True, help="Copy the table again; it is emptied first.")
def rollback(capture: str, table: str, copies: bool) -> None:
    """Let a table in error go on from the phase before, or copy it again.

    Says so if changes are missing, in which case only --copy helps.
    """
    from etl_assets.captures import roll_back
    from etl_assets.settings import load_settings

    state = roll_back(load_settings(), capture, table, copies=copies)
    click.echo(f"{state.table}: {state.phase}")


@cdc.command()
@click.argument("capture")
def retry(capture: str) -> None:
    """Let all tables of a capture in error go on, after one cause was corrected for all of them.

    Tables that are tried again after a pause are tried now. Tables that have to be copied again stay in
    error, and are named with the command. Exit code 1 if there are such tables.
    """
    from etl_assets.captures import retry_errored
    from etl_assets.settings import load_settings

    found = retry_errored(load_settings(), capture)
    if not found:
        click.echo(f"{capture}: no table is in error")
    for state in found:
        click.echo(f"{state.table}: {state.phase}")
        if state.error is not None:
            click.echo(f"    {state.error.reason}\n    fix: {state.error.solution}")
            click.echo(f"    then: {state.ended_by()}")
    if any(each.error is not None for each in found):
        sys.exit(1)


def _is_capture(name: str) -> bool:
    from etl_assets.pipelines.capture_files import read_captures
    from etl_assets.settings import load_settings

    return any(each.name == name for each in read_captures(load_settings().home))


def _connection_findings(
    connection: str, tables: Sequence[str], *, publication: str | None, slot: str | None
) -> list[Finding]:
    from etl_assets.captures import own_tables
    from etl_assets.observability.cdc_checks import CdcTarget

    target = CdcTarget(publication=publication, slot=slot, own_tables=own_tables())
    return _findings(_connection_of(connection), connection, target, tables)


def _pipeline_findings(name: str) -> list[Finding]:
    from etl_assets.captures import own_tables
    from etl_assets.observability.cdc_checks import CdcTarget
    from etl_assets.sources.postgres_cdc.source_table import quoted_table

    source = _source_of(name)
    target = CdcTarget(
        publication=source.publication,
        slot=source.slot,
        makes_publication=True,
        own_tables=own_tables(),
        failover=source.failover,
    )
    connection = _connection_of(source.connection)
    return _findings(connection, source.connection, target, [quoted_table(source.table)])


def _source_of(name: str) -> PostgresCdcSource:
    from etl_assets.errors import NotFound
    from etl_assets.pipelines.pipeline_file import pipelines_folder, read_pipeline_files
    from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
    from etl_assets.settings import load_settings

    specs = [each.spec for each in read_pipeline_files(pipelines_folder(load_settings().home))]
    sources = {each.name: each.source for each in specs if each is not None}
    found = sources.get(name)
    if isinstance(found, PostgresCdcSource):
        return found
    known = [each for each, source in sources.items() if isinstance(source, PostgresCdcSource)]
    raise NotFound(
        f"there is no valid pipeline file {name!r} with a source of type postgres_cdc",
        fix=f"`etl-assets pipelines validate` says what is wrong with files; such pipelines: "
        f"{', '.join(known) or 'none'}",
    )


def _connection_of(name: str) -> PostgresConnection:
    from etl_assets.errors import NotFound
    from etl_assets.settings import load_settings
    from etl_assets.settings.connections import PostgresConnection

    connections = load_settings().connections
    found = connections.get(name)
    if isinstance(found, PostgresConnection):
        return found
    known = [each for each, one in connections.items() if isinstance(one, PostgresConnection)]
    raise NotFound(
        f"the platform file has no connection {name!r} of type postgres",
        fix=f"add it under `connections:`, or use one of: {', '.join(known) or 'none is there'}",
    )


def _findings(
    connection: PostgresConnection, name: str, target: CdcTarget, tables: Sequence[str]
) -> list[Finding]:
    from etl_assets.observability.cdc_checks import check_cdc
    from etl_assets.sources.postgres_cdc.server_state import read_server_state

    def asked(session: psycopg.Connection) -> Iterator[Finding]:
        return check_cdc(read_server_state(session, publication=target.publication, tables=tables), target)

    return _asked(connection, name, asked)


def _capture_findings(name: str) -> list[Finding]:
    """Return the findings of a capture: of its server, and of every table that it matches."""
    from etl_assets.captures import own_tables
    from etl_assets.observability.capture_checks import MatchedTables, check_capture
    from etl_assets.pipelines.capture_files import find_capture
    from etl_assets.settings import load_settings
    from etl_assets.sources.captures.matched_tables import find_matched, is_made_here, keyless
    from etl_assets.sources.postgres_cdc.server_state import read_server_state
    from etl_assets.sources.postgres_cdc.source_table import quoted_table

    capture = find_capture(load_settings().home, name)

    def asked(session: psycopg.Connection) -> Iterator[Finding]:
        tables = find_matched(session, capture)
        found = MatchedTables(
            tables=tables, keyless=keyless(session, tables), adds_tables=is_made_here(session, capture)
        )
        quoted = [quoted_table(each) for each in tables]
        state = read_server_state(session, publication=capture.publication, tables=quoted)
        return check_capture(capture, state, found, own_tables())

    return _asked(_connection_of(capture.connection), capture.connection, asked)


def _asked(
    connection: PostgresConnection, name: str, ask: Callable[[psycopg.Connection], Iterator[Finding]]
) -> list[Finding]:
    """Return the findings of a server; one that does not answer is a finding."""
    import psycopg

    from etl_assets.observability.findings import fail
    from etl_assets.sources.sql.connect import postgres_address

    try:
        with psycopg.connect(postgres_address(connection), autocommit=True) as session:
            return list(ask(session))
    except psycopg.Error as error:
        first = (str(error).strip().splitlines() or ["no more is known"])[0]
        return [
            fail(
                _CONNECTION,
                f"the server of {name} does not answer ({type(error).__name__}): {first}",
                f"start it, or correct `connections.{name}` in the platform file",
            )
        ]

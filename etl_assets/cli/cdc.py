"""`etl-assets cdc`: reading the log of a PostgreSQL server (change data capture)."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from etl_assets.cli.shown_findings import show_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etl_assets.observability.cdc_checks import CdcTarget
    from etl_assets.observability.findings import Finding
    from etl_assets.settings.connections import PostgresConnection

_CONNECTION = "connection"


@click.group()
def cdc() -> None:
    """Change data capture from PostgreSQL."""


@cdc.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets cdc check --connection shop --table public.films\n"
        "  etl-assets cdc check --connection shop --publication films --json\n"
    )
)
@click.option("--connection", required=True, metavar="NAME", help="A connection of type `postgres`.")
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
    connection: str, tables: tuple[str, ...], publication: str | None, slot: str | None, as_json: bool
) -> None:
    """Check whether the log of a PostgreSQL server can be read: settings, free slots, privileges,
    publication, replica identity and columns.

    Changes nothing. Every problem comes with the statement that fixes it. Exit code 1 if a check fails;
    warnings do not count.
    """
    from etl_assets.observability.cdc_checks import CdcTarget
    from etl_assets.pipelines.sink_specs.postgres import POSITIONS

    target = CdcTarget(
        publication=publication, slot=slot, own_tables=frozenset({POSITIONS, *_tables_of_run_control()})
    )
    findings = _findings(_connection_of(connection), connection, target, tables)
    if as_json:
        click.echo(json.dumps([finding.as_json() for finding in findings]))
    else:
        show_findings(findings)
    if any(finding.status == "fail" for finding in findings):
        sys.exit(1)


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
    from etl_assets.observability.findings import fail
    from etl_assets.sources.sql.connect import postgres_address

    address = postgres_address(connection)
    import psycopg

    from etl_assets.sources.postgres_cdc.server_state import read_server_state

    try:
        with psycopg.connect(address, autocommit=True) as session:
            state = read_server_state(session, publication=target.publication, tables=tables)
    except psycopg.Error as error:
        first = (str(error).strip().splitlines() or ["no more is known"])[0]
        return [
            fail(
                _CONNECTION,
                f"the server of {name} does not answer ({type(error).__name__}): {first}",
                f"start it, or correct `connections.{name}` in the platform file",
            )
        ]
    return list(check_cdc(state, target))


def _tables_of_run_control() -> frozenset[str]:
    from etl_assets.control.schema import METADATA

    return frozenset(METADATA.tables)

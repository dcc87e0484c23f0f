"""`etl-assets tables path`: the folder and version by which other programs open a table."""

from __future__ import annotations

import json

import click

WHOLE_TRANSACTIONS = click.option(
    "--whole-transactions",
    is_flag=True,
    help="The last version that has no part of a transaction whose other parts are not there yet.",
)
"""Of very large transactions of PostgreSQL's log."""


@click.command(
    epilog=(
        "\b\n"
        "Examples:\n"
        "  etl-assets tables path film_ratings\n"
        "  etl-assets tables path film_ratings --json | jq .version\n"
    )
)
@click.argument("name", metavar="TABLE")
@click.option(
    "--json", "as_json", is_flag=True, help="Print uri, acknowledged version and domain, for machines."
)
@WHOLE_TRANSACTIONS
def path(name: str, as_json: bool, whole_transactions: bool) -> None:
    """Print the uri of the folder at which a table can be read now.

    With several failure domains it is that of a replica which has the newest acknowledged version. Its log
    may have newer versions that are not acknowledged: read the version that --json tells.
    """
    from etl_assets.query.opened_table import open_table

    found = open_table(name, whole_transactions=whole_transactions)
    click.echo(json.dumps(found.as_json()) if as_json else found.uri)

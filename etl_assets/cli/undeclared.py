"""What commands say of tables that no pipeline declares: those of users' own assets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.pipelines.catalog import Catalog


def warn_of_unlisted(catalog: Catalog) -> None:
    """Print on stderr why tables of users' assets may be missing from what was printed."""
    for why in catalog.unlisted():
        click.echo(f"warning: {why}; tables of your own assets may be missing here", err=True)


def materialize_again(table: Table) -> str:
    """Return how the rows of a table of a user's asset are made again."""
    from etl_assets.delta.asset_record import record_in

    snapshot = table.snapshot()
    record = None if snapshot is None else record_in(snapshot)
    asset = "KEY" if record is None else record.asset
    return (
        "materialize the partitions of its asset again in Dagster: in the UI, or by"
        f" `dagster asset materialize -m YOUR_MODULE --select {asset} --partition PARTITION`"
    )

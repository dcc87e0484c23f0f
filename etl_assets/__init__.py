"""A Dagster asset platform that takes events in, makes each count exactly once, and keeps doing so.

Belongs here: the version, and what other programs import. Does not belong here: imports of the platform's modules, so that every
command, and every program that reads one table, pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.query.opened_table import OpenedTable

__version__ = "0.1.0"


def open_table(name: str, home: str | Path | None = None) -> OpenedTable:
    """Open the newest acknowledged version of a table, to read it by Polars, pandas, delta-rs, pyarrow or Spark.

    Args:
        name: A table of the platform.
        home: The installation's home folder; by default `ETL_ASSETS_HOME`, as for commands.

    Raises:
        NoInstallation: there is none in the home folder.
        NotFound: there is no such table, or it has not been made yet.
        QuorumUnavailable: too few failure domains answer to tell what is acknowledged.
    """
    from etl_assets.query import opened_table

    return opened_table.open_table(name, home)

"""A Dagster asset platform that ingests events, makes each count exactly once, and keeps doing so.

Belongs here: the version, and what other programs import: `open_table`, and the types of components that
Dagster projects name in `defs.yaml`. Does not belong here: imports of the platform's modules. Every command,
and every program that reads one table, thus pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.components.pipeline import PipelineComponent as Pipeline
    from etl_assets.components.platform import PlatformComponent as Platform
    from etl_assets.query.opened_table import OpenedTable

__version__ = "0.1.0"
__all__ = ["Pipeline", "Platform", "open_table"]


def open_table(name: str, home: str | Path | None = None) -> OpenedTable:
    """Open the newest acknowledged version of a table for Polars, pandas, delta-rs, pyarrow or Spark.

    Args:
        name: A table of the platform.
        home: The installation's home folder; by default `ETL_ASSETS_HOME`, as for commands.

    Raises:
        NoInstallation: the home folder holds no installation.
        NotFound: the table does not exist, or has not been created yet.
        QuorumUnavailable: too few failure domains answer to determine the acknowledged version.
    """
    from etl_assets.query import opened_table

    return opened_table.open_table(name, home)


def __getattr__(name: str) -> object:
    """Import a component type when it is first asked for: it needs Dagster, and most programs do not."""
    match name:
        case "Pipeline":
            from etl_assets.components.pipeline import PipelineComponent

            return PipelineComponent
        case "Platform":
            from etl_assets.components.platform import PlatformComponent

            return PlatformComponent
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return all names, with those of component types: Dagster finds them by these."""
    return sorted({*globals(), *__all__})

"""A Dagster asset platform that ingests events, makes each count exactly once, and keeps doing so.

Belongs here: the version, and what other programs import: `open_table`, `produce`, and the types of
components that Dagster projects name in `defs.yaml`. Does not belong here: imports of the platform's modules.
Every command, and every program that reads one table, thus pays only for what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.components.pipeline import PipelineComponent as Pipeline
    from etl_assets.components.platform import PlatformComponent as Platform
    from etl_assets.query.opened_table import OpenedTable
    from etl_assets.sinks.kafka.producer import KafkaProducer

__version__ = "0.1.0"
__all__ = ["Pipeline", "Platform", "open_table", "produce"]


def open_table(name: str, home: str | Path | None = None, *, whole_transactions: bool = False) -> OpenedTable:
    """Open the newest acknowledged version of a table for Polars, pandas, delta-rs, pyarrow or Spark.

    Args:
        name: A table of the platform.
        home: The installation's home folder; by default `ETL_ASSETS_HOME`, as for commands.
        whole_transactions: Instead, open the last version without a part of a transaction whose other parts
            are not there yet.

    Raises:
        NoInstallation: the home folder holds no installation.
        NotFound: the table does not exist, or has not been created yet.
        QuorumUnavailable: too few failure domains answer to determine the acknowledged version.
    """
    from etl_assets.query import opened_table

    return opened_table.open_table(name, home, whole_transactions=whole_transactions)


def produce(connection: str, topic: str, *, input_id: str, home: str | Path | None = None) -> KafkaProducer:
    """Open a producer for a Kafka topic, in a `with` statement: it commits at its end, or aborts on an error.

    Args:
        connection: A connection of the platform file whose `write` names the topic.
        topic: The topic.
        input_id: Identifies what is sent. The same input sent again has the same event ids.
        home: The installation's home folder; by default `ETL_ASSETS_HOME`, as for commands.

    Raises:
        SinkRefused: there is no such connection, or it does not allow the topic.
        SettingsError: a secret of the connection is not set.
    """
    import os

    from etl_assets.environment import HOME
    from etl_assets.settings import load_settings
    from etl_assets.sinks.kafka.open_producer import Target, open_producer

    settings = load_settings(None if home is None else {**os.environ, HOME.name: str(home)})
    return open_producer(Target(connection=connection, topic=topic), settings, input_id=input_id)


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

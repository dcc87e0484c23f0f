"""Opening the sink of a declaration."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from etl_assets.settings.connections import KafkaConnection
from etl_assets.sinks.kafka.sink import KafkaSink
from etl_assets.sinks.kafka.topics import NewTopicSettings

if TYPE_CHECKING:
    from etl_assets.pipelines.sink_specs.base import BaseSinkSpec
    from etl_assets.pipelines.sink_specs.kafka import KafkaSinkSpec
    from etl_assets.settings import Settings
    from etl_assets.settings.connections import Connection


def open_kafka(spec: BaseSinkSpec, connection: Connection, settings: Settings, pipeline: str) -> KafkaSink:
    """Open the sink; nothing is sent yet.

    Raises:
        SettingsError: a secret of the connection is not set.
    """
    assert isinstance(connection, KafkaConnection)
    declared = cast("KafkaSinkSpec", spec)
    create = declared.create
    return KafkaSink(
        connection.client_options(),
        declared.topic,
        pipeline=pipeline,
        name=declared.sink_name,
        create=None
        if create is None
        else NewTopicSettings(partitions=create.partitions, replication=create.replication),
        transaction_timeout_seconds=declared.transaction_timeout_seconds,
    )

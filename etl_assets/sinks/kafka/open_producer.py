"""Opening a producer: by the connection and topic of a pipeline's source, or by their names.

Belongs here: which topic is written, and what its pipeline needs of a record. Does not belong here: sending
(`producer.py`).
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import InputError, SinkRefused
from etl_assets.pipelines.source_specs import KafkaSource, ValueFormat
from etl_assets.settings.connections import KafkaConnection
from etl_assets.sinks.kafka.producer import EVENT_ID, KafkaProducer

if TYPE_CHECKING:
    from etl_assets.settings import Settings

_HEADER_ID = f"kafka.headers.{EVENT_ID}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where records are sent.

    Attributes:
        connection: Name of the connection.
        topic: The topic.
        id_field: The field in which the pipeline expects the id of a record; None: it is none of the value.
    """

    connection: str
    topic: str
    id_field: str | None = None


def target_of_pipeline(name: str, settings: Settings) -> Target:
    """Return where records of a pipeline are sent.

    Raises:
        InputError: there is no such pipeline, it reads no JSON from Kafka, or records that are sent again
            would count twice.
    """
    specs = [each.spec for each in settings.installed().files if each.spec is not None]
    known = {each.name: each.source for each in specs if isinstance(each.source, KafkaSource)}
    if (source := known.get(name)) is None:
        near = difflib.get_close_matches(name, known, n=1)
        raise InputError(
            f"no pipeline {name!r} reads from Kafka",
            fix=f"did you mean {near[0]!r}?" if near else "name one with `source: {type: kafka}`",
        )
    if source.format is not ValueFormat.JSON:
        raise InputError(
            f"the pipeline {name} reads {source.format}, and only JSON is sent",
            fix="send these records by a serializer of the schema registry",
        )
    if not source.id:
        raise InputError(
            f"the pipeline {name} has no `id`: records that are sent again would count twice",
            fix=f"add `id: [<field>]` to its source, or `include: [headers.{EVENT_ID}]` with"
            f" `id: [{_HEADER_ID}]`",
        )
    field = source.id[0] if len(source.id) == 1 and not source.id[0].startswith("kafka.") else None
    return Target(connection=source.connection, topic=source.topic, id_field=field)


def open_producer(
    target: Target, settings: Settings, *, input_id: str, records_per_transaction: int = 10_000
) -> KafkaProducer:
    """Open a producer; nothing is sent yet.

    Raises:
        SinkRefused: there is no such connection, or it does not allow the topic.
        SettingsError: a secret of the connection is not set.
    """
    connection = settings.connections.get(target.connection)
    if not isinstance(connection, KafkaConnection):
        raise SinkRefused(
            f"the platform file has no connection {target.connection!r} of type kafka",
            fix="add it to `connections` of the platform file",
            sink=target.topic,
        )
    if not connection.allows(target.topic):
        raise SinkRefused(
            f"the connection {target.connection} does not allow to write {target.topic}",
            fix=f"add it to connections.{target.connection}.write of the platform file, now"
            f" [{', '.join(connection.write)}]",
            sink=target.topic,
        )
    return KafkaProducer(
        connection.client_options(),
        target.topic,
        input_id=input_id,
        records_per_transaction=records_per_transaction,
    )

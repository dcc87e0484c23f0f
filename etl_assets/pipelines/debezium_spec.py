"""Declaration of a source of Debezium's change events, and the columns that it gives its pipeline.

Belongs here: the fields, and the rules of one block. Does not belong here: reading events
(`sources/debezium/`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from etl_assets.pipelines.file_path import FileFormat
from etl_assets.pipelines.files_spec import FilesSource
from etl_assets.pipelines.source_specs import KafkaSource, TombstonePolicy
from etl_assets.pipelines.spec_fields import Spec

DEBEZIUM = "debezium"
"""Name of the source of change events of a topic, in the columns `source` of its tables."""
CHANGE_FIELD, POSITION_FIELD, UNAVAILABLE_FIELD, ID_FIELD, TIME_FIELD = (
    "debezium.change",
    "debezium.position",
    "debezium.unavailable",
    "debezium.id",
    "debezium.source_ts_ms",
)
"""Fields that the source adds: what a change does, its place in the database's log as a text that sorts, the
fields whose values the event does not have, what identifies the change, and when the database made it."""
CHANGE_COLUMN, POSITION_COLUMN, UNAVAILABLE_COLUMN = (
    "change_in_source",
    "position_in_source",
    "unavailable_in_source",
)
"""Columns that the platform adds. The first one is not stored; the second one is the table's sequence."""
OF_DEBEZIUM = {
    CHANGE_COLUMN: {"type": "string", "from": CHANGE_FIELD},
    POSITION_COLUMN: {"type": "string", "from": POSITION_FIELD},
    UNAVAILABLE_COLUMN: {"type": "string", "from": UNAVAILABLE_FIELD},
}
"""Their declarations."""
UNAVAILABLE_VALUE = "__debezium_unavailable_value"


class Connector(StrEnum):
    """Debezium's connectors whose positions are known."""

    MYSQL = "mysql"
    MARIADB = "mariadb"
    POSTGRESQL = "postgresql"
    SQLSERVER = "sqlserver"
    ORACLE = "oracle"
    MONGODB = "mongodb"


_TYPE = re.compile(r"date|(timestamp|time)_(millis|micros|nanos)|decimal\((0|[1-9][0-9]?)\)")


def _logical_type(value: str) -> str:
    found = value.replace(" ", "")
    if not _TYPE.fullmatch(found):
        raise ValueError(
            "it is no type of Debezium's values; use date, timestamp_millis, timestamp_micros,"
            " timestamp_nanos, time_millis, time_micros, time_nanos, or decimal(2) with the scale"
        )
    return found


def _read_from(value: FilesSource | KafkaSource) -> FilesSource | KafkaSource:
    if value.id:
        raise ValueError("an event is identified by its place in the log; leave id out")
    if isinstance(value, FilesSource):
        if value.file_format is not FileFormat.JSON_LINES:
            raise ValueError("events in files are JSON, one on each line; use a path that ends with .jsonl")
        return value
    if value.include:
        raise ValueError("columns take the fields of rows; leave include out")
    if value.tombstones is not TombstonePolicy.REJECT:
        raise ValueError("a tombstone says nothing that the delete before it does not; leave tombstones out")
    return value


class DebeziumSource(Spec):
    """Change events of one table, as Debezium's connectors write them to a Kafka topic or to files.

    Events have Debezium's envelope, with or without its schema, or the flat form of `ExtractNewRecordState`.
    The table of the pipeline applies the changes by their place in the database's log, so that it does not
    matter in which order and how often they arrive.
    """

    type: Literal["debezium"]
    from_: Annotated[
        FilesSource | KafkaSource,
        AfterValidator(_read_from),
        Field(
            alias="from",
            discriminator="type",
            description="where the events are: a source of type `kafka`, or `files` with JSON Lines",
        ),
    ]
    connector: Annotated[
        Connector | None,
        Field(
            description=(
                "the connector that wrote the events; by default what each event says in `source.connector`,"
                " which flat events do not have"
            )
        ),
    ] = None
    table: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=255,
            examples=["inventory.products"],
            description=(
                "the table or collection, with schema or database where that is needed, if there are events"
                " of others too: these are skipped"
            ),
        ),
    ] = None
    types: Annotated[
        dict[str, Annotated[str, AfterValidator(_logical_type)]],
        Field(
            examples=[{"created_at": "timestamp_micros", "price": "decimal(2)"}],
            description=(
                "What numbers and base64 texts of JSON events without schema are, by field: `date`,"
                " `timestamp_millis`, `timestamp_micros`, `timestamp_nanos`, `time_…`, or `decimal(scale)`."
                " Schemas say it themselves"
            ),
        ),
    ] = Field(default_factory=dict)
    unavailable_value: Annotated[
        str,
        Field(
            min_length=1,
            max_length=255,
            description="what the connector writes for a value that it does not have"
            " (`unavailable.value.placeholder`)",
        ),
    ] = UNAVAILABLE_VALUE

    @property
    def id(self) -> tuple[str, ...]:
        """The field that identifies a change."""
        return (ID_FIELD,)

    @property
    def max_record_bytes(self) -> int:
        """Longer events are dead letters."""
        return self.from_.max_record_bytes

"""Declarations of sources that are read in ranges.

Belongs here: their fields, and the rules of one block. Does not belong here: sources of files (`spec.py`),
and reading (`sources/`).
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from etl_assets.errors import QueryRefused
from etl_assets.pipelines.query_text import single_query
from etl_assets.pipelines.spec_fields import Spec

KAFKA = "kafka"
"""Name of the source of a Kafka topic, in the columns `source` of its tables."""
SQL = "sql"
"""Name of the source of a query, in the columns `source` of its tables."""
METADATA = ("key", "timestamp", "partition", "offset")
_HEADER = "headers."


class OnLost(StrEnum):
    """What happens if records between the position and what is left of a topic are gone."""

    FAIL = "fail"
    EARLIEST = "earliest"


class TombstonePolicy(StrEnum):
    """What becomes of a record without a value."""

    REJECT = "reject"
    KEEP = "keep"


class ValueFormat(StrEnum):
    """What the values of a topic's records are."""

    JSON = "json"
    AVRO = "avro"
    JSON_SCHEMA = "json_schema"


def id_fields(value: tuple[str, ...]) -> tuple[str, ...]:
    """Check the names of the fields that identify a record."""
    if "" in value:
        raise ValueError("a field has no name; name the fields that identify a record")
    if len(set(value)) < len(value):
        raise ValueError("a field stands twice; name each once")
    return value


def _start(value: str) -> str:
    if value in ("earliest", "latest"):
        return value
    try:
        time = dt.datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("use earliest, latest, or a time such as 2026-01-31T00:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError("the time has no zone; end it with Z for UTC")
    return value


def _metadata(value: tuple[str, ...]) -> tuple[str, ...]:
    for each in value:
        if each not in METADATA and not (each.startswith(_HEADER) and each != _HEADER):
            raise ValueError(f"{each} is not known; use {', '.join(METADATA)} or headers.<name>")
    return value


class HttpSource(Spec):
    """Records that clients send to `etl-assets serve`.

    A request is answered once its records are durable, and a record counts once however often it is sent, if
    it has an id.
    """

    type: Literal["http"]
    id: Annotated[
        tuple[str, ...],
        AfterValidator(id_fields),
        Field(
            description=(
                "Fields that identify a record. A record with a known id is a duplicate if it is the same,"
                " and otherwise a dead letter. Without them every record that was sent is one, and only an"
                " `Idempotency-Key` keeps a repeated request from counting twice."
            ),
        ),
    ] = ()
    include: Annotated[
        tuple[Literal["headers.traceparent"], ...],
        Field(
            max_length=1,
            examples=[["headers.traceparent"]],
            description=(
                "What columns may take beside a record's fields: the W3C trace context of its request, as"
                " the field `http.headers.traceparent`. It does not count when two records with one id are"
                " compared."
            ),
        ),
    ] = ()
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer records are refused")
    ] = 1_048_576


class KafkaSource(Spec):
    """Records from a Kafka topic, whose values are JSON objects or Avro records.

    Each record of a committed transaction is read once, in the order of its Kafka partition. It belongs to
    the day (UTC) of its timestamp, or to the day on which it is read if that is earlier. Positions are
    committed with the rows; no consumer group is needed.
    """

    type: Literal["kafka"]
    connection: Annotated[
        str, Field(min_length=1, description="a connection of type `kafka` in the platform file")
    ]
    topic: Annotated[
        str,
        Field(pattern=r"^[a-zA-Z0-9._-]{1,249}$", examples=["payments"], description="name of the topic"),
    ]
    format: Annotated[
        ValueFormat,
        Field(
            description=(
                "what values are: `json`; `avro` or `json_schema` with the id of a schema before them, which"
                " the `schema_registry` of the connection has"
            )
        ),
    ] = ValueFormat.JSON
    id: Annotated[
        tuple[str, ...],
        AfterValidator(id_fields),
        Field(
            description=(
                "Fields that identify a record. A record with a known id is a duplicate if it is the same,"
                " and otherwise a dead letter. Without them each offset has a record of its own."
            ),
        ),
    ] = ()
    start: Annotated[
        str,
        AfterValidator(_start),
        Field(
            examples=["earliest", "latest", "2026-01-31T00:00:00Z"],
            description="where the first run begins: `earliest`, `latest`, or a time with its zone",
        ),
    ] = "earliest"
    on_lost: Annotated[
        OnLost,
        Field(
            description=(
                "what happens if retention removed records before they were read, or the topic was created"
                " again: `fail` names what is lost, `earliest` goes on at the oldest record with a note"
            )
        ),
    ] = OnLost.FAIL
    include: Annotated[
        tuple[str, ...],
        AfterValidator(_metadata),
        Field(
            examples=[["key", "headers.traceparent"]],
            description=(
                "What columns may take beside the fields of the value: `key`, `timestamp` (milliseconds),"
                " `partition`, `offset` and `headers.<name>`, as fields `kafka.key` and so on. They do not"
                " count when two records with one id are compared."
            ),
        ),
    ] = ()
    tombstones: Annotated[
        TombstonePolicy,
        Field(
            description=(
                "what becomes of a record without a value: `reject` makes it a dead letter, `keep` a record"
                " with the field `kafka.tombstone` and those of `include`"
            )
        ),
    ] = TombstonePolicy.REJECT
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer records are dead letters")
    ] = 1_048_576
    max_batch_records: Annotated[
        int, Field(ge=1, le=10_000_000, description="most offsets of one batch, over all partitions")
    ] = 2_000_000

    @field_validator("start", mode="before")
    @classmethod
    def _times_are_texts(cls, value: object) -> object:
        return value.isoformat() if isinstance(value, dt.datetime) else value


def _query(value: str) -> str:
    try:
        return single_query(value)
    except QueryRefused as refused:
        raise ValueError(f"{refused.message.partition(': ')[2]}; {refused.fix}") from None


class SqlLoad(StrEnum):
    """Which rows of a query a load reads.

    INCREMENTAL: those that are new or changed since the last one, by an ascending key.
    FULL: all rows, so that rows which are gone are noticed too.
    """

    INCREMENTAL = "incremental"
    FULL = "full"


class SqlSource(Spec):
    """Rows of a query over a database, read incrementally by an ascending key, or as a whole each time.

    Incrementally, a row that is new or has a higher key than before is a record. In a full load every row
    that differs from the last load is one, and every row that is gone is one with `sql.deleted`. Records
    belong to the day (UTC) on which they are read. Positions are committed with the rows.
    """

    type: Literal["sql"]
    connection: Annotated[
        str, Field(min_length=1, description="a connection of type `postgres` or `sql` in the platform file")
    ]
    query: Annotated[
        str,
        AfterValidator(_query),
        Field(
            min_length=1,
            max_length=100_000,
            examples=["SELECT id, title, updated_at FROM films"],
            description="one statement that reads, in the SQL of the database; nothing in it is replaced",
        ),
    ]
    load: Annotated[
        SqlLoad,
        Field(
            description=(
                "`incremental` reads rows above the last `incremental_key`; `full` compares all rows with the"
                " last load, so that the table has exactly the rows that the query returns"
            )
        ),
    ] = SqlLoad.INCREMENTAL
    incremental_key: Annotated[
        str | None,
        Field(
            min_length=1,
            examples=["updated_at"],
            description=(
                "incremental: column of the result that rises whenever a row is added or changed: a time,"
                " date, integer, numeric, uuid or text. A row without one is a dead letter."
            ),
        ),
    ] = None
    incremental_id_key: Annotated[
        str | None,
        Field(
            min_length=1,
            examples=["id"],
            description=(
                "incremental: column of the result that identifies a row among those of one incremental key,"
                " and for `detect_deletes_interval_seconds` among all"
            ),
        ),
    ] = None
    overlap: Annotated[
        Decimal | None,
        Field(
            gt=0,
            max_digits=20,
            description=(
                "incremental: how far before the last key to look for late rows: seconds for a time,"
                " otherwise a number. Rows that are known already change nothing."
            ),
        ),
    ] = None
    detect_deletes_interval_seconds: Annotated[
        float | None,
        Field(
            ge=1,
            examples=[86_400],
            description=(
                "incremental: how often to read all ids of the query and to delete rows whose id is gone; by"
                " default never"
            ),
        ),
    ] = None
    id: Annotated[
        tuple[str, ...],
        AfterValidator(id_fields),
        Field(
            max_length=2,
            examples=[["id"]],
            description=(
                "full: one or two columns of the result that identify a row: times, dates, integers, numeric,"
                " uuids or texts. A row without one is a dead letter."
            ),
        ),
    ] = ()
    load_interval_seconds: Annotated[
        float | None,
        Field(
            ge=1,
            examples=[3_600],
            description=(
                "full: how long after the beginning of a load the next one begins. By default the database"
                " computes a digest of the result each time that something looks for new records, and a load"
                " begins when it has changed"
            ),
        ),
    ] = None
    keep_records: Annotated[
        bool,
        Field(
            description=(
                "`false` loads rows straight into the table, as typed columns, and keeps no table"
                " `<name>_source` of records: several times faster, but rows cannot be made again without"
                " the database. For incremental loads from PostgreSQL into a table with keys"
            )
        ),
    ] = True
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer records are dead letters")
    ] = 1_048_576
    max_batch_records: Annotated[
        int, Field(ge=1, le=10_000_000, description="most rows of one batch, beside those of the overlap")
    ] = 500_000

    @property
    def keys(self) -> tuple[str, str]:
        """The columns by which rows are read in order; the second may be the first again."""
        if self.load is SqlLoad.FULL:
            return self.id[0], self.id[-1]
        assert self.incremental_key is not None  # validated
        assert self.incremental_id_key is not None  # validated
        return self.incremental_key, self.incremental_id_key

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a row."""
        return self.id if self.load is SqlLoad.FULL else self.keys[1:]

    @property
    def reports_deletes(self) -> bool:
        """Whether some records say that a row is gone."""
        return self.load is SqlLoad.FULL or self.detect_deletes_interval_seconds is not None

    @field_validator("incremental_id_key")
    @classmethod
    def _is_another_column(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and value == info.data.get("incremental_key"):
            raise ValueError("it is the incremental key itself; name the column that identifies a row")
        return value

    @model_validator(mode="after")
    def _fields_go_with_the_load(self) -> SqlSource:
        others = _OF_INCREMENTAL if self.load is SqlLoad.FULL else _OF_FULL
        if wrong := [name for name in others if getattr(self, name)]:
            raise ValueError(f"load: {self.load} takes no {wrong[0]}; remove it, or change load")
        needed = ("id",) if self.load is SqlLoad.FULL else ("incremental_key", "incremental_id_key")
        if missing := [name for name in needed if not getattr(self, name)]:
            raise ValueError(
                f"load: {self.load} needs {' and '.join(missing)}: columns of the result"
                + ("" if self.load is SqlLoad.FULL else "; to read all rows each time: load: full")
            )
        return self


_OF_INCREMENTAL = (
    *("incremental_key", "incremental_id_key"),
    *("overlap", "detect_deletes_interval_seconds"),
)
_OF_FULL = ("id", "load_interval_seconds")

"""Declaration of a source that reads PostgreSQL's log, and the columns that it gives its pipeline.

Belongs here: the fields, and the rules of one block. Does not belong here: reading
(`sources/postgres_cdc/`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from etl_assets.pipelines.spec_fields import Spec

POSTGRES_CDC = "postgres_cdc"
"""Name of the source of PostgreSQL's log, in the columns `source` of its tables."""
CHANGE_FIELD, LSN_FIELD, SEQUENCE_FIELD, UNAVAILABLE_FIELD, OPERATION_FIELD, COMMITTED_AT_FIELD = (
    "postgres.change",
    "postgres.lsn",
    "postgres.sequence",
    "postgres.unavailable",
    "postgres.operation",
    "postgres.committed_at",
)
"""Fields that the source adds: what a change does, where its commit is in the log, its place in that, the
fields whose values the log does not have, what the database did, and when it committed that."""
CHANGE_COLUMN, LSN_COLUMN, UNAVAILABLE_COLUMN = "change_in_source", "lsn_in_source", "unavailable_in_source"
"""Columns that the platform adds: the first one is not stored, the second one is the table's sequence."""
OF_LOG = {
    CHANGE_COLUMN: {"type": "string", "from": CHANGE_FIELD},
    LSN_COLUMN: {"type": "bigint", "from": LSN_FIELD},
    UNAVAILABLE_COLUMN: {"type": "string", "from": UNAVAILABLE_FIELD},
}
"""Their declarations."""


class OnLostLog(StrEnum):
    """What happens if the server no longer has the log after the position."""

    FAIL = "fail"
    COPY = "copy"


class SchemaChangePolicy(StrEnum):
    """Which changes of the source table's columns are taken.

    REJECT: none. ADD: of columns that the pipeline does not declare. WIDEN: also types whose values the
    declared columns hold. QUARANTINE: as WIDEN; rows after another change are dead letters.
    """

    REJECT = "reject"
    ADD = "add"
    WIDEN = "widen"
    QUARANTINE = "quarantine"


class PostgresCdcSource(Spec):
    """Changes of a PostgreSQL table, by its log: inserts, updates, deletes and truncates.

    At first the table is copied. Then every committed transaction is read once, as a whole, in the order of
    the commits. The table of the pipeline applies the changes by their place in the log. Positions are
    committed with the rows, and confirmed to the server afterwards.
    """

    type: Literal["postgres_cdc"]
    connection: Annotated[
        str, Field(min_length=1, description="a connection of type `postgres` in the platform file")
    ]
    table: Annotated[
        str,
        Field(
            pattern=r"^[^.\s\"]+\.[^.\s\"]+$",
            max_length=127,
            examples=["public.films"],
            description="the table, with its schema, as the database's catalog has their names",
        ),
    ]
    publication: Annotated[
        str,
        Field(
            pattern=r"^[a-z_][a-z0-9_]{0,62}$",
            examples=["films"],
            description="publication that has the table; it is made for the table alone if there is none",
        ),
    ]
    slot: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9_]{1,63}$",
            examples=["films"],
            description="replication slot, for this pipeline alone; it is made if there is none",
        ),
    ]
    on_lost: Annotated[
        OnLostLog,
        Field(
            description=(
                "what happens if the slot is gone or was moved on by another reader: `fail` says so, `copy`"
                " copies the table again, after which it has exactly the rows of the source"
            )
        ),
    ] = OnLostLog.FAIL
    failover: Annotated[
        bool,
        Field(
            description=(
                "whether the slot is made as a failover slot, which standbys of the server keep in step and"
                " a promoted one goes on with; PostgreSQL 17 or later, without effect before"
            )
        ),
    ] = False
    capture: Annotated[
        str | None,
        Field(
            pattern=r"^[a-z][a-z0-9_]*$",
            description=(
                "in declarations that a capture generates: the capture, whose slot and reader serve"
                " all of its tables"
            ),
        ),
    ] = None
    schema_changes: Annotated[
        SchemaChangePolicy,
        Field(
            description=(
                "what happens when columns of the table change: `reject` stops the pipeline; `add` goes on if"
                " the pipeline does not declare the column; `widen` also if its declared type holds all"
                " values of the new type; `quarantine` as `widen`, and rows after any other change are dead"
                " letters"
            )
        ),
    ] = SchemaChangePolicy.WIDEN
    keep_records: Annotated[
        bool,
        Field(
            description=(
                "`false` applies rows and changes to the table as typed columns, and keeps no table"
                " `<name>_source` of records: several times faster, but rows cannot be made again without"
                " another copy"
            )
        ),
    ] = True
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer records are dead letters")
    ] = 1_048_576
    max_batch_records: Annotated[
        int,
        Field(
            ge=1,
            le=10_000_000,
            description="about how many rows or changes one batch has; a transaction is never divided",
        ),
    ] = 500_000

    @property
    def id(self) -> tuple[str, ...]:
        """The fields that identify a change."""
        return (LSN_FIELD, SEQUENCE_FIELD, CHANGE_FIELD)

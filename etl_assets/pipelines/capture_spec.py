"""The declaration of a capture: many tables of one PostgreSQL database, followed by one slot.

Belongs here: the fields, and which tables they match. Does not belong here: reading files
(`capture_files.py`), and the declarations of single tables (`sources/captures/discovery.py`).
"""

from __future__ import annotations

import re
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from etl_assets.pipelines.postgres_cdc_spec import (
    MAX_TRANSACTION_MEANING,
    MAX_TRANSACTION_RECORDS,
    OnLostLog,
    SchemaChangePolicy,
)
from etl_assets.pipelines.spec_fields import MAX_NAME_CHARACTERS, Name, Spec

_TABLE = re.compile(r"[^.\s\"]+\.[^.\s\"]+")


class AddedColumns(StrEnum):
    """What becomes of rows that have values in a column that the source table got while it is followed.

    COPY: the table is copied again, so that it equals the source. FOLLOW: rows have null in the column until
    they change the next time after the discovery that found it.
    """

    COPY = "copy"
    FOLLOW = "follow"


class CaptureSpec(Spec):
    """A capture: every matched table becomes a table of the platform that is kept current.

    Every table has a generated pipeline of its own, named after the capture and the table. One slot and one
    reader serve all of them.
    """

    name: Name
    connection: Annotated[
        str, Field(min_length=1, description="a connection of type `postgres` in the platform file")
    ]
    publication: Annotated[
        str,
        Field(
            pattern=r"^[a-z_][a-z0-9_]{0,62}$",
            examples=["shop"],
            description=(
                "publication that has the tables; where there is none it is made for the matched ones, and"
                " tables that come later are added to it"
            ),
        ),
    ]
    slot: Annotated[
        str,
        Field(
            pattern=r"^[a-z0-9_]{1,63}$",
            examples=["shop"],
            description="replication slot, for this capture alone; it is made if there is none",
        ),
    ]
    tables: Annotated[
        tuple[str, ...],
        Field(
            min_length=1,
            examples=[["public.*", "sales.order_*"]],
            description="tables with their schema, or patterns with `*` and `?`",
        ),
    ]
    exclude: Annotated[
        tuple[str, ...], Field(examples=[["public.audit_*"]], description="tables or patterns to leave out")
    ] = ()
    on_lost: Annotated[
        OnLostLog,
        Field(description="what happens if the slot is gone: `fail` says so, `copy` copies all tables again"),
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
    schema_changes: Annotated[
        SchemaChangePolicy,
        Field(
            description=(
                "what happens when columns of a table change: `reject` puts the table in error; `add` takes"
                " columns that come, go or get another name; `widen` also types that become wider, or that"
                " the table holds; `quarantine` as `widen`, and rows with any other type are dead letters"
            )
        ),
    ] = SchemaChangePolicy.WIDEN
    added_columns: Annotated[
        AddedColumns,
        Field(
            description="what happens to a table whose source gets a column, or another name for one: `copy`"
            " copies it again, `follow` leaves null in rows until they change"
        ),
    ] = AddedColumns.COPY
    history: Annotated[
        bool,
        Field(
            description="whether every change of every table is kept in a table of its own,"
            " `<table>_history`, from which the versions of each row follow, `<table>_versions`"
        ),
    ] = False
    keep_records: Annotated[
        bool,
        Field(
            description=(
                "`false` applies rows and changes to the tables as typed columns, and keeps no tables of"
                " records: several times faster, but rows cannot be made again without another copy"
            )
        ),
    ] = True
    max_copies: Annotated[
        int, Field(ge=1, le=100, description="tables that are copied at the same time; others wait")
    ] = 4
    read_sessions: Annotated[
        int,
        Field(
            ge=1,
            le=16,
            description="sessions that read one table at the same time while it is copied, each some of its"
            " pages",
        ),
    ] = 2
    max_batch_records: Annotated[
        int, Field(ge=1, le=10_000_000, description="about how many rows or changes one batch has")
    ] = 500_000
    max_transaction_records: Annotated[
        int, Field(ge=1, le=1_000_000_000, description=MAX_TRANSACTION_MEANING)
    ] = MAX_TRANSACTION_RECORDS
    look_interval_seconds: Annotated[
        float, Field(ge=0, le=3_600, description="how often the log is looked at, for all tables together")
    ] = 1.0
    discovery_interval_seconds: Annotated[
        float, Field(ge=1, le=86_400, description="how often the worker looks for new and changed tables")
    ] = 30.0
    max_held_bytes: Annotated[
        int,
        Field(
            ge=1 << 20,
            description=(
                "how much of the server's log a table may hold back that does not keep up; more of"
                " its changes"
                " are kept in the spool of the home folder alone"
            ),
        ),
    ] = 1 << 30
    max_spool_bytes: Annotated[
        int,
        Field(
            ge=1 << 20,
            description="changes of one table in the spool, after which it has to be copied again",
        ),
    ] = 4 << 30
    sinks: Annotated[
        tuple[dict[str, Any], ...], Field(description="targets that follow every table, as in a pipeline")
    ] = ()
    owners: Annotated[tuple[str, ...], Field(description="owners of the generated pipelines")] = ()

    @field_validator("tables", "exclude")
    @classmethod
    def _have_a_schema(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [each for each in value if not _TABLE.fullmatch(each)]:
            raise ValueError(f"{wrong[0]!r} is no table with its schema; such as `public.film` or `public.*`")
        return value

    @model_validator(mode="after")
    def _keeps_what_a_history_needs(self) -> CaptureSpec:
        if self.history and not self.keep_records:
            raise ValueError("keep_records: false: the history is made from the records; remove one of both")
        return self

    @property
    def part_records(self) -> int:
        """The most changes of one transaction of a table that a version gets."""
        return max(self.max_transaction_records, self.max_batch_records)

    def matches(self, table: str) -> bool:
        """Return whether a table, such as `public.film`, belongs to the capture."""
        return _is_like(table, self.tables) and not _is_like(table, self.exclude)

    def pipeline_of(self, table: str) -> str:
        """Return the name of a table's pipeline: `shop_film`, or `shop_sales_item` for sales.item."""
        schema, _, name = table.partition(".")
        parts = [self.name, *([] if schema == "public" else [schema]), name]
        plain = re.sub(r"[^a-z0-9_]", "_", "_".join(parts).lower())
        return plain[:MAX_NAME_CHARACTERS]


def _is_like(table: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(table, each) for each in patterns)

"""Declaration of a source that follows a table of the catalog, such as that of another pipeline.

Belongs here: the fields, and what a declaration says of deleted rows. Does not belong here: which tables can
be followed (`followed_tables.py`), and reading (`sources/table/`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from etl_assets.pipelines.spec_fields import NAME_PATTERN, Spec

TABLE = "table"
"""Name of the source of a table, in the columns `source` of its tables."""
TABLE_DELETED_FIELD = "table.deleted"
"""Field of a record of a row that is gone, or of the former values of one that has changed."""


class TableSource(Spec):
    """Changes of another table of the catalog: new, changed and deleted rows.

    A record has the values of a row by the names of the table's columns. A row that is gone is a record with
    its last values and `table.deleted`. If this pipeline's table has other keys, or a transform may leave
    rows out, a changed row is first such a record with its former values, then one with the new values.

    Versions of the table are read in their order. The position is committed with the rows. Records belong to
    the day (UTC) on which they are read.
    """

    type: Literal["table"]
    table: Annotated[
        str,
        Field(
            pattern=f"^{NAME_PATTERN}$",
            max_length=128,
            examples=["suppliers"],
            description="a table that a pipeline keeps, declared or built in, or its accepted records",
        ),
    ]
    max_record_bytes: Annotated[
        int, Field(ge=1_024, le=16_777_216, description="longer records are dead letters")
    ] = 1_048_576
    max_batch_records: Annotated[
        int,
        Field(
            ge=1,
            le=10_000_000,
            description="about how many rows one batch has; a version of the table is never divided",
        ),
    ] = 100_000

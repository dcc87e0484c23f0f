"""The table of a declared pipeline: what a stored one must be.

Belongs here: what follows from the declaration alone. Does not belong here: the step (`load_table.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.errors import ContractError
from etl_assets.pipelines.declared import OFFSET

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

DIRECT = "direct/next_offset"
"""Transaction id of a table that is loaded without a table of records: the next offset."""


def expect_direct(table: Table, snapshot: Snapshot) -> None:
    """Refuse a table whose rows were made from records, for a load without records.

    Raises:
        ContractError: it is one.
    """
    if OFFSET not in {field["name"] for field in snapshot.fields()}:
        expect_declared(table, snapshot.version)
    if snapshot.transaction_version(DIRECT) < 0 and snapshot.row_count():
        raise ContractError(
            f"the rows of {table.name} were made from records, and the source says keep_records: false",
            fix="give the pipeline's table another name (`table.name`), or remove keep_records",
            table=table.name,
        )


def expect_declared(table: Table, version: int) -> None:
    """Refuse a table that something else made under this name, such as a pipeline that was left out since.

    Raises:
        ContractError: it is one.
    """
    snapshot = table.snapshot(version)
    assert snapshot is not None  # `version` is one of the table
    if OFFSET not in {field["name"] for field in snapshot.fields()}:
        raise ContractError(
            f"there is a table {table.name} that no declared pipeline has made: it has no column {OFFSET}",
            fix="give the pipeline's table another name (`table.name`)",
            table=table.name,
            column=OFFSET,
        )
    if snapshot.transaction_version(DIRECT) >= 0:
        raise ContractError(
            f"{table.name} was loaded with keep_records: false, so its rows have no records",
            fix="give the pipeline's table another name (`table.name`), or set keep_records: false again",
            table=table.name,
        )

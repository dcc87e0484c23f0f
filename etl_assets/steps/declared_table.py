"""The table of a declared pipeline: what a stored one must be.

Belongs here: what follows from the declaration alone. Does not belong here: the step (`load_table.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.errors import ContractError
from etl_assets.pipelines.declared import OFFSET

if TYPE_CHECKING:
    from etl_assets.delta.table import Table


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

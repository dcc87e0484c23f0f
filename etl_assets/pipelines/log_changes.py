"""How the table of a pipeline applies the changes of PostgreSQL's log.

Belongs here: what the platform adds to a declaration, and what it must not have itself. Does not belong here:
the declaration (`spec.py`), and the source's block (`postgres_cdc_spec.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.postgres_cdc_spec import CHANGE_COLUMN, LSN_COLUMN

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import ColumnSpec, PipelineSpec, TableSpec

UPSERT = "upsert"
IS_DELETE, IS_TRUNCATE = f"{CHANGE_COLUMN} = 'delete'", f"{CHANGE_COLUMN} = 'truncate'"
"""What an upsert has in that column, and the conditions by which the other records are known."""
_APPLIED: Mapping[str, Any] = {
    "write_mode": WriteMode.APPLY_CHANGES,
    "sequence_by": LSN_COLUMN,
    "apply_as_deletes": IS_DELETE,
    "apply_as_truncates": IS_TRUNCATE,
}


def applied(table: TableSpec) -> dict[str, Any]:
    """Return the fields of a table that applies the changes, beside those that it has."""
    return {**_APPLIED, "except_column_list": (*table.except_column_list, CHANGE_COLUMN)}


def is_applied(spec: PipelineSpec, of_log: Mapping[str, ColumnSpec]) -> bool:
    """Return whether a declaration has all this, because it was written down after it had been read."""
    has_columns = all(spec.columns.get(name) == column for name, column in of_log.items())
    return has_columns and all(getattr(spec.table, name) == value for name, value in _APPLIED.items())


def expect_fit(spec: PipelineSpec, of_log: Mapping[str, ColumnSpec]) -> None:
    """Expect that a declaration leaves to the log what it says.

    Raises:
        ValueError: it does not.
    """
    table = spec.table
    if taken := [name for name in of_log if name in spec.columns]:
        raise ValueError(f"the column {taken[0]} is the platform's here; give yours another name")
    if "write_mode" in table.model_fields_set and table.write_mode is not WriteMode.APPLY_CHANGES:
        raise ValueError(
            f"write_mode {table.write_mode} does not apply the changes of a log; leave write_mode out"
        )
    if given := [name for name in _APPLIED if name != "write_mode" and getattr(table, name) is not None]:
        raise ValueError(f"the log says it by itself; leave table.{given[0]} out")
    if missing := [name for name in table.keys if name not in spec.columns]:
        raise ValueError(
            f"table.keys has {missing[0]}, which is no column of the source, and a delete has no others; name"
            " it under columns"
        )
    _expect_kept(spec, of_log)


def _expect_kept(spec: PipelineSpec, of_log: Mapping[str, ColumnSpec]) -> None:
    """Expect that transforms which name their columns keep those of the log."""
    for index, each in enumerate(spec.transforms):
        made = getattr(each, "columns", None) if each.type in ("sql", "python") else None
        if made is not None and (lost := [name for name in of_log if name not in made]):
            raise ValueError(
                f"transforms.{index}.columns has no `{lost[0]}`, by which changes are applied; add"
                f" `{CHANGE_COLUMN}: string` and `{LSN_COLUMN}: bigint`, and keep the columns"
            )

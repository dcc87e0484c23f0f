"""How the table of a pipeline applies the changes of a database's log.

Belongs here: what the platform adds to a declaration, and what it must not have itself. Does not belong here:
the declaration (`spec.py`), and the blocks of the sources (`postgres_cdc_spec.py`, `debezium_spec.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.write_mode import WriteMode
from etl_assets.pipelines.debezium_spec import OF_DEBEZIUM, POSITION_COLUMN, DebeziumSource
from etl_assets.pipelines.postgres_cdc_spec import (
    CHANGE_COLUMN,
    LSN_COLUMN,
    OF_LOG,
    UNAVAILABLE_COLUMN,
    PostgresCdcSource,
)
from etl_assets.pipelines.spec_fields import Spec

if TYPE_CHECKING:
    from etl_assets.pipelines.spec import ColumnSpec, PipelineSpec, TableSpec

UPSERT = "upsert"
IS_DELETE, IS_TRUNCATE = f"{CHANGE_COLUMN} = 'delete'", f"{CHANGE_COLUMN} = 'truncate'"
"""What an upsert has in that column, and the conditions by which the other records are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeLog:
    """What a source of changes adds to a declaration.

    Attributes:
        columns: The declarations of the columns, by name.
        sequence: The column that places a change in the log.
        optional: Columns that transforms need not keep, and that a declaration of an earlier release lacks.
    """

    columns: Mapping[str, Mapping[str, str]]
    sequence: str
    optional: frozenset[str] = frozenset()

    @property
    def applied(self) -> Mapping[str, Any]:
        """The fields of the table's block."""
        return {
            "write_mode": WriteMode.APPLY_CHANGES,
            "sequence_by": self.sequence,
            "apply_as_deletes": IS_DELETE,
            "apply_as_truncates": IS_TRUNCATE,
        }


def log_of(source: Spec) -> ChangeLog | None:
    """Return what a source adds; None if it has no changes of a log."""
    match source:
        case PostgresCdcSource():
            return ChangeLog(columns=OF_LOG, sequence=LSN_COLUMN, optional=frozenset({UNAVAILABLE_COLUMN}))
        case DebeziumSource():
            return ChangeLog(columns=OF_DEBEZIUM, sequence=POSITION_COLUMN)
    return None


def applied(table: TableSpec, log: ChangeLog) -> dict[str, Any]:
    """Return the fields of a table that applies the changes, beside those that it has."""
    return {**log.applied, "except_column_list": (*table.except_column_list, CHANGE_COLUMN)}


def is_applied(spec: PipelineSpec, added: Mapping[str, ColumnSpec], log: ChangeLog) -> bool:
    """Return whether a declaration has all this, because it was written down after it had been read."""
    wanted = {name: each for name, each in added.items() if name in spec.columns or name not in log.optional}
    has_columns = all(spec.columns.get(name) == column for name, column in wanted.items())
    return has_columns and all(getattr(spec.table, name) == value for name, value in log.applied.items())


def expect_fit(spec: PipelineSpec, log: ChangeLog) -> None:
    """Expect that a declaration leaves to the log what it says.

    Raises:
        ValueError: it does not.
    """
    table = spec.table
    if taken := [name for name in log.columns if name in spec.columns]:
        raise ValueError(f"the column {taken[0]} is the platform's here; give yours another name")
    if "write_mode" in table.model_fields_set and table.write_mode is not WriteMode.APPLY_CHANGES:
        raise ValueError(
            f"write_mode {table.write_mode} does not apply the changes of a log; leave write_mode out"
        )
    if given := [name for name in log.applied if name != "write_mode" and getattr(table, name) is not None]:
        raise ValueError(f"the log says it by itself; leave table.{given[0]} out")
    if missing := [name for name in table.keys if name not in spec.columns]:
        raise ValueError(
            f"table.keys has {missing[0]}, which is no column of the source, and a delete has no others; name"
            " it under columns"
        )
    _expect_kept(spec, log)


def _expect_kept(spec: PipelineSpec, log: ChangeLog) -> None:
    """Expect that transforms which name their columns keep those of the log."""
    for index, each in enumerate(spec.transforms):
        made = getattr(each, "columns", None) if each.type in ("sql", "python") else None
        if made is not None and (
            lost := [name for name in log.columns if name not in made and name not in log.optional]
        ):
            needed = {name: each for name, each in log.columns.items() if name not in log.optional}
            wanted = " and ".join(f"`{name}: {column['type']}`" for name, column in needed.items())
            raise ValueError(
                f"transforms.{index}.columns has no `{lost[0]}`, by which changes are applied; add"
                f" {wanted}, and keep the columns"
            )

"""Changes of a stored table's columns to those of a contract that has changed since.

| the declaration | the stored table |
| --- | --- |
| has another column | gets it at the end; stored rows have NULL there, even if new rows must have a value |
| has a wider type | gets the wider type |
| lacks a column | keeps it; rows written from now on have NULL there |
| no longer requires a value | takes NULL from now on |
| requires a value from now on | still takes NULL, for its rows; the stage rejects new rows without one |
| has any other type or Delta partition | stays as it is, and the stage fails |
| differs in any way, and the table has no rows | gets the declared columns and Delta partition |
| has any other type, and all rows are about to go | is emptied, and gets the declared columns |

Belongs here: the comparison, and the commits of columns without rows. Does not belong here: tables without a
contract (`schema_changes.py`).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from etl_assets.contracts.spark_types import struct_type
from etl_assets.contracts.sql_text import delta_table, identifier
from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry, metadata_of
from etl_assets.delta.session import driver_pid, scoped_settings
from etl_assets.delta.write.create import properties_of
from etl_assets.delta.write.replacement import remove_all_rows
from etl_assets.delta.write.schema_changes import change_columns, columns_after
from etl_assets.delta.write.write_spec import SchemaChanges
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    moved_on,
    put_entry,
    write_settings,
    write_version,
)
from etl_assets.delta.write.writing import writing
from etl_assets.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


def stored_columns(snapshot: Snapshot) -> StructType:
    """Return the columns of a stored table."""
    from pyspark.sql.types import StructType

    return StructType.fromJson({"type": "struct", "fields": snapshot.fields()})


def fit_to_contract(
    spark: SparkSession,
    table: Table,
    *,
    base_version: int,
    rows_go: bool = False,
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS,
) -> int:
    """Change the columns of a table to those of its contract, and return its version afterwards.

    Args:
        spark: A session.
        table: The table.
        base_version: Its version.
        rows_go: Whether what is written next removes all rows that the table has. Where they keep it from
            getting its columns, they are removed now.
        wait_seconds: How long to wait for the table's lock.

    Raises:
        ContractError: a change is not possible. Carries `table` and `column`.
        CommitConflict: the table has moved past `base_version`; nothing was written.
    """
    contract, snapshot = table.contract, table.snapshot(base_version)
    assert contract is not None
    assert snapshot is not None
    stored, declared = stored_columns(snapshot), struct_type(contract)
    if _is_empty(snapshot):
        if _as_declared(stored, declared) and snapshot.partition_columns() == contract.delta_partition:
            return base_version
        return _replace_columns(table, contract, snapshot, wait_seconds=wait_seconds)
    try:
        check_changes(contract, stored, partitions=snapshot.partition_columns())
    except ContractError:
        if not rows_go:
            raise
        version = remove_all_rows(table, base_version, wait_seconds=wait_seconds)
        return fit_to_contract(spark, table, base_version=version, wait_seconds=wait_seconds)
    version = base_version
    wanted = columns_after(declared, stored, SchemaChanges.WIDEN, laid_out_by=contract.delta_partition)
    if wanted != stored:
        widens = any(field.dataType != wanted[field.name].dataType for field in stored.fields)
        version = change_columns(
            spark, table, wanted, base_version=version, widens=widens, wait_seconds=wait_seconds
        )
    optional = {column.name for column in contract.columns if column.nullable}
    for field in stored.fields:
        if not field.nullable and (field.name in optional or field.name not in contract.names):
            version = _take_nulls(spark, table, field.name, base_version=version, wait_seconds=wait_seconds)
    return version


def check_changes(contract: TableContract, stored: StructType, *, partitions: tuple[str, ...]) -> None:
    """Refuse a contract that a stored table cannot be changed to."""
    rename = (
        f"make all its rows again: `etl-assets reprocess --tables {contract.name}`; to keep them as they are"
        " give the new table another name (`table.name`)"
    )
    if partitions != contract.delta_partition:
        raise ContractError(
            f"the files of {contract.name} are laid out by {', '.join(partitions) or 'no column'},"
            f" and {', '.join(contract.delta_partition) or 'no column'} is declared",
            fix=f"leave `partition_by` as it was, or {rename}",
            table=contract.name,
            column=next(iter(contract.delta_partition), None),
        )
    declared = struct_type(contract)
    widened = columns_after(declared, stored, SchemaChanges.WIDEN, laid_out_by=partitions)
    for field in stored.fields:
        if field.name not in declared.names:
            continue
        wanted = declared[field.name].dataType
        if widened[field.name].dataType.simpleString() != wanted.simpleString():
            raise ContractError(
                f"the column {field.name} of {contract.name} is {field.dataType.simpleString()}, and"
                f" {wanted.simpleString()} is declared",
                fix=f"leave its type as it was, name the new column otherwise, or {rename}",
                table=contract.name,
                column=field.name,
            )


def _is_empty(snapshot: Snapshot) -> bool:
    """Whether a table has no rows, and nothing but rows that this writer would have to know."""
    return snapshot.is_plain and not any(True for _ in snapshot.files())


def _as_declared(stored: StructType, declared: StructType) -> bool:
    """Whether columns have the declared names, types and nullability, in the declared order."""

    def form(columns: StructType) -> list[tuple[str, str, bool]]:
        return [(field.name, field.dataType.simpleString(), field.nullable) for field in columns.fields]

    return form(stored) == form(declared)


def _replace_columns(
    table: Table, contract: TableContract, snapshot: Snapshot, *, wait_seconds: float
) -> int:
    """Commit the columns and the Delta partition of a contract to a table without rows; return its version.

    No Spark: the entry is the one of a new table, with the id of this one.
    """

    def put(place: Place, writer: str) -> None:
        properties = {
            **snapshot.properties,
            **properties_of(contract, mirrored=table.replication is not None),
        }
        entry = NewEntry(
            operation="REPLACE COLUMNS",
            base_version=snapshot.version,
            metrics={},
            transactions=lasting_cursors(table, snapshot.version, {}),
            user_metadata=commit_metadata(place, writer, {}, last=True),
            changes_rows=False,
            metadata=metadata_of(
                contract, properties, table_id=snapshot.table_id, created_at=snapshot.created_at
            ),
        )
        put_entry(table, place, snapshot, entry)

    with writing(table, wait_seconds=wait_seconds, driver_pid=None):
        if (current := table.version()) != snapshot.version:
            raise moved_on(table, current=current, base=snapshot.version)
        return write_version(None, table, snapshot.version + 1, put).version


def _take_nulls(
    spark: SparkSession, table: Table, column: str, *, base_version: int, wait_seconds: float
) -> int:
    """Commit that a column takes NULL, and return the table's version."""
    with writing(table, wait_seconds=wait_seconds, driver_pid=driver_pid(spark)):
        if (current := table.version()) != base_version:
            raise moved_on(table, current=current, base=base_version)
        drop = partial(_drop_not_null, spark, column)
        return write_version(spark, table, base_version + 1, drop).version


def _drop_not_null(spark: SparkSession, column: str, place: Place, writer: str) -> None:
    with scoped_settings(spark, write_settings(place, writer, {}, {})):
        spark.sql(f"ALTER TABLE {delta_table(place.path)} ALTER COLUMN {identifier(column)} DROP NOT NULL")

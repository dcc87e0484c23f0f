"""The last things that happen to the rows of a declared pipeline: the contract of its table, and its keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.columns import Column
from etl_assets.contracts.reasons import DeadLetterReason
from etl_assets.contracts.sql_text import identifier
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.contracts.write_mode import WriteMode
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.pipelines.spec import TableSpec
from etl_assets.transforms.change_kinds import with_kinds
from etl_assets.transforms.declared_transforms import GOES_ON
from etl_assets.transforms.typed_records import ERROR, REASON, broken_rules, judgement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COMPUTE = ("map", "lookup", "sql", "python")
"""Transforms that change values, so that the rules of the columns are checked again after them."""


def judged_rows(rows: DataFrame, tables: DeclaredTables) -> DataFrame:
    """Reject rows without a key, or that break a rule of the table.

    Args:
        rows: The rows after the last transform, with `_reason` and `_error`.
        tables: The pipeline's tables.

    Returns:
        The rows; those of a table that applies changes with `_is_deleted` and `_is_truncate`.

    Raises:
        ContractError: a condition of the table's block is not one on these columns. Carries `field`.
    """
    from pyspark.sql import functions as F

    rows = with_kinds(rows, tables)
    branches = _branches(tables)
    if not branches:
        return rows
    problem = F.expr(f"CASE WHEN NOT {GOES_ON} THEN NULL {' '.join(branches)} END")
    judged = rows.withColumn("_judgement", problem)
    return judged.withColumns(
        {
            REASON: F.coalesce(F.col(REASON), F.col("_judgement.reason")),
            ERROR: F.coalesce(F.col(ERROR), F.col("_judgement.error")),
        }
    ).drop("_judgement")


def newest_of_each_key(rows: DataFrame, spec: TableSpec, *, ties: bool) -> DataFrame:
    """Return one row of each key: the newest for an upsert and among changes, the first for an insert.

    Args:
        rows: Rows with `_offset`; changes with `_is_deleted`.
        spec: The table's keys and order.
        ties: Whether several rows may be from one record. Any rule decides between them that does not depend
            on the order of reading.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    newest_first = spec.write_mode.keeps_newest
    order = [F.col(OFFSET).desc() if newest_first else F.col(OFFSET).asc()]
    if spec.sequence_by is not None:
        order.insert(0, F.col(spec.sequence_by).desc_nulls_last())
    if ties and IS_DELETED in rows.columns:
        order.append(F.col(IS_DELETED).desc())
    if ties:
        names = [name for name in rows.columns if not name.startswith("_")]
        order.append(F.to_json(F.struct(*names)).desc())
    window = Window.partitionBy(*spec.keys).orderBy(*order)
    return rows.withColumn("_rank", F.row_number().over(window)).where("_rank = 1").drop("_rank")


def _branches_of_changes(tables: DeclaredTables) -> list[str]:
    """Return what rejects a change without a place in the sequence, and what lets deletes pass all other
    rules.
    """
    name = tables.order[0]
    missing = judgement(
        DeadLetterReason.MISSING_FIELD,
        f"{name} is missing or null, and says which change of {tables.table.name} is newer",
    )
    return [
        f"WHEN {identifier(name)} IS NULL THEN {missing}",
        f"WHEN {IS_DELETED} OR {IS_TRUNCATE} THEN NULL",
    ]


def _branches(tables: DeclaredTables) -> list[str]:
    spec, contract = tables.spec.table, tables.table
    columns: tuple[Column, ...] = contract.columns
    applies_changes = spec.write_mode is WriteMode.APPLY_CHANGES
    needs_keys = f" AND NOT {IS_TRUNCATE}" if applies_changes else ""
    branches = []
    for name in spec.keys:
        error = f"{name} is missing or null, and is a key of {contract.name}"
        missing = judgement(DeadLetterReason.MISSING_FIELD, error)
        branches.append(f"WHEN {identifier(name)} IS NULL{needs_keys} THEN {missing}")
    if applies_changes:
        branches += _branches_of_changes(tables)
    laid_out_by = None if spec.partition_by is None or spec.partition_by.by else spec.partition_by.name
    if laid_out_by is not None and contract.column(laid_out_by).type == "STRING":
        problem = judgement(
            DeadLetterReason.CONTRACT_VIOLATION,
            f"{laid_out_by} must not be empty: the files of {contract.name} are laid out by it",
        )
        branches.append(
            f"WHEN {identifier(laid_out_by)} IN ('', '__HIVE_DEFAULT_PARTITION__') THEN {problem}"
        )
    if any(transform.type in _COMPUTE for transform in tables.spec.transforms):
        branches += broken_rules([column for column in columns if not column.name.startswith("_")])
    return branches

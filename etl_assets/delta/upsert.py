"""An upsert as data (`UpsertSpec`) and as SQL: one MERGE, written as text so that it runs through Spark Connect too.

Belongs here: what a MERGE of deduplicated rows by key looks like, and the INSERT it comes to where there are no rows.
Does not belong here: running it (`commit.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.sql_text import identifier, string_literal
from etl_assets.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from etl_assets.contracts.columns import TableContract

METADATA_PREFIX = "delta_upsert/"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertSpec:
    """How rows of an asset meet the rows of its table.

    Attributes:
        merge_key: Columns that identify a row; unique in the table after every commit, never null.
        ordering: Column whose higher value is the newer row. A row that is not newer than the one in the table is
            ignored. Without it, a row that differs in any column replaces the one in the table, and a key that comes
            twice in one frame is an error, because nothing says which row is newer.
        delta_partition: Column by which Delta lays out the files, usually the day. None: not partitioned.
        partition_bound: A key never moves to another Delta partition, so that the merge looks at the partitions of the
            incoming rows only. Without it the key is looked for in the whole table.
        insert_only: Rows never change once written; a key that is there is ignored without looking at it.
    """

    merge_key: tuple[str, ...]
    ordering: str | None = None
    delta_partition: str | None = None
    partition_bound: bool = False
    insert_only: bool = False

    def __post_init__(self) -> None:
        if not self.merge_key:
            raise ContractError("an upsert needs a merge key", fix="name at least one column in `merge_key`")
        if self.partition_bound and self.delta_partition is None:
            raise ContractError(
                "`partition_bound` is set and there is no `delta_partition`",
                fix="set `delta_partition`, or unset it",
            )

    def to_metadata(self) -> dict[str, Any]:
        """The spec as asset metadata, from which `DeltaUpsertIOManager` reads it."""
        fields: dict[str, Any] = {"merge_key": list(self.merge_key)}
        for name in ("ordering", "delta_partition"):
            if getattr(self, name) is not None:
                fields[name] = getattr(self, name)
        for name in ("partition_bound", "insert_only"):
            if getattr(self, name):
                fields[name] = True
        return {METADATA_PREFIX + name: value for name, value in fields.items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], *, asset: str) -> UpsertSpec:
        """Read the spec from asset metadata; `merge_key` may be a name or a list of names.

        Raises:
            ContractError: no merge key, or a name that is no field of the spec.
        """
        fields = {
            key.removeprefix(METADATA_PREFIX): getattr(value, "value", value)
            for key, value in metadata.items()
            if key.startswith(METADATA_PREFIX)
        }
        known = set(cls.__dataclass_fields__)
        if unknown := sorted(fields.keys() - known):
            raise ContractError(
                f"the asset {asset} has unknown upsert metadata {', '.join(unknown)}",
                fix=f"use {', '.join(METADATA_PREFIX + name for name in sorted(known))}",
                asset=asset,
            )
        if "merge_key" not in fields:
            raise ContractError(
                f"the asset {asset} has no merge key",
                fix=f'add metadata={{"{METADATA_PREFIX}merge_key": ["column", ...]}} or **UpsertSpec(...).to_metadata()',
                asset=asset,
            )
        key = fields.pop("merge_key")
        return cls(merge_key=(key,) if isinstance(key, str) else tuple(key), **fields)

    @classmethod
    def of(cls, contract: TableContract, *, partition_bound: bool = False) -> UpsertSpec:
        """The spec that follows from a table's contract."""
        return cls(
            merge_key=contract.merge_key,
            ordering=None if contract.append_only else contract.ordering,
            delta_partition=contract.delta_partition[0] if contract.delta_partition else None,
            partition_bound=partition_bound,
            insert_only=contract.append_only,
        )


def check_columns(spec: UpsertSpec, columns: Collection[str], *, table: str) -> None:
    """Refuse a frame that lacks a column the spec names.

    Raises:
        ContractError: carries `table` and `missing`.
    """
    named = (*spec.merge_key, spec.ordering, spec.delta_partition)
    missing = [name for name in named if name is not None and name not in columns]
    if missing:
        raise ContractError(
            f"the rows for {table} lack {', '.join(missing)}, named in its upsert spec",
            fix=f"return these columns from the asset; it has {', '.join(columns)}",
            table=table,
            missing=missing,
        )


def newest_by_key(rows: DataFrame, spec: UpsertSpec, *, table: str) -> DataFrame:
    """One row for each merge key: the newest by the ordering column.

    MERGE inserts a new key twice when the source has it twice, without an error. Without an ordering column the query
    fails with the key's columns named when a key comes twice.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    newest: list[Column] = [] if spec.ordering is None else [F.col(spec.ordering).desc_nulls_last()]
    window = Window.partitionBy(*spec.merge_key).orderBy(*newest, F.xxhash64(*rows.columns))
    ranked = rows.withColumn("__rank", F.row_number().over(window))
    if spec.ordering is None:
        message = (
            f"the rows for {table} hold a merge key ({', '.join(spec.merge_key)}) twice and no ordering column says"
            " which is newer: drop duplicates in the asset, or name an `ordering` column"
        )
        first = F.when(F.col("__rank") == 1, True).otherwise(F.raise_error(F.lit(message)).cast("boolean"))
        return ranked.where(first).drop("__rank")
    return ranked.where("__rank = 1").drop("__rank")


def merge_sql(
    spec: UpsertSpec,
    *,
    target: str,
    source: str,
    columns: Sequence[str],
    partitions: Collection[str] | None = None,
    replace: bool = False,
) -> str:
    """The MERGE statement.

    Args:
        spec: Keys, ordering, layout.
        target: The table as SQL names it.
        source: Name of a view with one row for each merge key.
        columns: Columns of the source, in any order.
        partitions: Values of the Delta partition column the source rows lie in, where known. As literals they let
            Delta skip the other partitions' files, and let writers of other days commit beside this one.
        replace: The source's row stands, whatever the table has.
    """
    on = [f"t.{identifier(key)} = s.{identifier(key)}" for key in spec.merge_key]
    if spec.partition_bound and spec.delta_partition is not None:
        column = identifier(spec.delta_partition)
        if spec.delta_partition not in spec.merge_key:
            on.append(f"t.{column} = s.{column}")
        if partitions:
            on.append(f"t.{column} IN ({', '.join(string_literal(value) for value in sorted(partitions))})")
    clauses = [f"MERGE INTO {target} t USING {source} s ON {' AND '.join(on)}"]
    if replace or not spec.insert_only:
        assignments = ", ".join(f"t.{identifier(name)} = s.{identifier(name)}" for name in columns)
        condition = "" if replace else f" AND {_is_newer(spec, columns)}"
        clauses.append(f"WHEN MATCHED{condition} THEN UPDATE SET {assignments}")
    names = ", ".join(identifier(name) for name in columns)
    values = ", ".join(f"s.{identifier(name)}" for name in columns)
    clauses.append(f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})")
    return "\n".join(clauses)


def insert_sql(*, target: str, source: str, columns: Sequence[str]) -> str:
    """What the MERGE comes to where the target has no rows; columns are cast as MERGE does it."""
    names = ", ".join(identifier(name) for name in columns)
    return f"INSERT INTO {target} ({names}) SELECT {names} FROM {source}"


def _is_newer(spec: UpsertSpec, columns: Sequence[str]) -> str:
    if spec.ordering is not None:
        order = identifier(spec.ordering)
        return f"(s.{order} > t.{order} OR (t.{order} IS NULL AND s.{order} IS NOT NULL))"
    compared = [name for name in columns if name not in (*spec.merge_key, "batch_id")]
    if not compared:
        return "FALSE"
    same = " AND ".join(f"t.{identifier(name)} <=> s.{identifier(name)}" for name in compared)
    return f"NOT ({same})"

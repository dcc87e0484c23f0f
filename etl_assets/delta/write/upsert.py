"""An upsert as data (`UpsertSpec`) and as SQL: one MERGE, as text so that Spark Connect runs it too.

Belongs here: the MERGE of deduplicated rows by key, and the INSERT that replaces it where the table has no
rows. Does not belong here: running it (`commit.py`), and preparing rows for it (`checked_rows.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.sql_text import identifier, string_literal
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.errors import ContractError

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract

METADATA_PREFIX = "delta_upsert/"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertSpec:
    """How the rows of a merge meet the rows of a table.

    Attributes:
        merge_key: Columns that identify a row; unique in the table after every commit.
        ordering: Column whose higher value is the newer row. A row that is not newer than the one in the
            table is ignored. Without it, a row that differs in any column replaces the one in the table. A
            key that comes twice in one frame is then an error, because nothing says which row is newer.
        delta_partition: Column by which Delta lays out the files, usually the day. None: not partitioned.
        partition_bound: A key never moves to another Delta partition, so that the merge reads the partitions
            of the incoming rows only. Without it the key is searched in the whole table.
        insert_only: Rows never change once written; a row whose key exists is ignored without comparing it.
        columns: The table's columns as Spark SQL declares them, such as `id STRING, day DATE`. Only an asset
            that reads its own earlier partitions needs it: before its table exists, it gets an empty frame
            with these columns.
        nullable_keys: NULL in a key equals NULL. Without it a key is never null.
        tie_breaker: Column that decides between two rows of equal `ordering`: its higher value is the newer
            row. Never null.
        deleted_by: Boolean column of the rows that the table does not have. A row where it is true removes
            the row in the table, unless that one is newer, and adds none.
    """

    merge_key: tuple[str, ...]
    ordering: str | None = None
    delta_partition: str | None = None
    partition_bound: bool = False
    insert_only: bool = False
    columns: str | None = None
    nullable_keys: bool = False
    tie_breaker: str | None = None
    deleted_by: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.merge_key, str):
            raise ContractError(
                f"`merge_key` is the text {self.merge_key!r}", fix=f"make it a tuple: ({self.merge_key!r},)"
            )
        if not self.merge_key:
            raise ContractError("an upsert needs a merge key", fix="name at least one column in `merge_key`")
        if self.tie_breaker is not None and self.ordering is None:
            raise ContractError(
                "`tie_breaker` is set and there is no `ordering`", fix="set `ordering` to that column instead"
            )
        if self.deleted_by is not None and self.ordering is None:
            raise ContractError(
                "`deleted_by` is set and there is no `ordering`",
                fix="set `ordering`, which says what is newer",
            )
        if self.partition_bound and self.delta_partition is None:
            raise ContractError(
                "`partition_bound` is set and there is no `delta_partition`",
                fix="set `delta_partition`, or unset it",
            )

    @property
    def named(self) -> tuple[str, ...]:
        """The columns that the spec names."""
        return tuple(filter(None, (*self.merge_key, self.ordering, self.tie_breaker, self.delta_partition)))

    def to_metadata(self) -> dict[str, Any]:
        """Return the spec as asset metadata, which `DeltaUpsertIOManager` reads; see `write_spec.py`."""
        fields: dict[str, Any] = {"merge_key": list(self.merge_key)}
        for name in ("ordering", "delta_partition", "columns"):
            if getattr(self, name) is not None:
                fields[name] = getattr(self, name)
        for name in ("partition_bound", "insert_only", "nullable_keys"):
            if getattr(self, name):
                fields[name] = True
        return {METADATA_PREFIX + name: value for name, value in fields.items()}

    @classmethod
    def of(cls, contract: TableContract, *, partition_bound: bool = False) -> UpsertSpec:
        """Return the spec that follows from a table's contract."""
        return cls(
            merge_key=contract.merge_key,
            ordering=None if contract.append_only else contract.ordering,
            delta_partition=contract.delta_partition[0] if contract.delta_partition else None,
            partition_bound=partition_bound,
            insert_only=contract.append_only,
            nullable_keys=contract.nullable_keys,
        )


def check_columns(named: Collection[str], columns: Collection[str], *, table: str) -> None:
    """Refuse a frame that lacks a column named in its spec.

    Raises:
        ContractError: carries `table` and `missing`.
    """
    missing = [name for name in named if name not in columns]
    if missing:
        lowered = {name.lower(): name for name in columns}
        spelt = [f"rename {lowered[name.lower()]} to {name}" for name in missing if name.lower() in lowered]
        raise ContractError(
            f"the rows for {table} lack {', '.join(missing)}, named in its spec",
            fix="; ".join(spelt) or f"return these columns from the asset; it has {', '.join(columns)}",
            table=table,
            missing=missing,
        )


def merge_sql(
    spec: UpsertSpec,
    *,
    target: str,
    source: str,
    columns: Sequence[str],
    partitions: Collection[str] | None = None,
    lies_in: PartitionFilter | None = None,
    replace: bool = False,
    not_compared: Collection[str] = (),
) -> str:
    """Return the MERGE statement.

    Args:
        spec: Keys, ordering, layout.
        target: The table as SQL names it.
        source: Name of a view with one row for each merge key.
        columns: Columns of the source, in any order.
        partitions: Values of the Delta partition column of the source rows, where known. As literals they let
            Delta skip the files of other partitions, and let writers of other days commit at the same time.
        lies_in: The partition values as a condition. A key may then move among these values.
        replace: The source's row replaces the table's row, whether newer or not.
        not_compared: Columns that make no difference between two rows.
    """
    equals = "<=>" if spec.nullable_keys else "="
    on = [f"t.{identifier(key)} {equals} s.{identifier(key)}" for key in spec.merge_key]
    if spec.partition_bound and spec.delta_partition is not None:
        column = identifier(spec.delta_partition)
        if lies_in is not None:
            on.append(lies_in.condition(f"t.{column}"))
        elif spec.delta_partition not in spec.merge_key:
            on.append(f"t.{column} = s.{column}")
        if partitions:
            on.append(f"t.{column} IN ({', '.join(string_literal(value) for value in sorted(partitions))})")
    clauses = [f"MERGE INTO {target} t USING {source} s ON {' AND '.join(on)}"]
    is_row = ""
    if spec.deleted_by is not None:
        flag = f"s.{identifier(spec.deleted_by)}"
        clauses.append(f"WHEN MATCHED AND {flag} AND {_is_not_older(spec)} THEN DELETE")
        is_row = f" AND NOT {flag}"
        columns = [name for name in columns if name != spec.deleted_by]
    if replace or not spec.insert_only:
        assignments = ", ".join(f"t.{identifier(name)} = s.{identifier(name)}" for name in columns)
        condition = "" if replace else f" AND {_is_newer(spec, columns, not_compared)}"
        clauses.append(f"WHEN MATCHED{is_row}{condition} THEN UPDATE SET {assignments}")
    names = ", ".join(identifier(name) for name in columns)
    values = ", ".join(f"s.{identifier(name)}" for name in columns)
    clauses.append(f"WHEN NOT MATCHED{is_row} THEN INSERT ({names}) VALUES ({values})")
    return "\n".join(clauses)


def insert_sql(*, target: str, source: str, columns: Sequence[str]) -> str:
    """Return the INSERT for a target without rows, in place of the MERGE. It casts columns as MERGE does."""
    names = ", ".join(identifier(name) for name in columns)
    return f"INSERT INTO {target} ({names}) SELECT {names} FROM {source}"


def _is_not_older(spec: UpsertSpec) -> str:
    """Return the condition that a source row is newer than the table's row, or as new."""
    assert spec.ordering is not None  # `deleted_by` needs it
    order = identifier(spec.ordering)
    if spec.tie_breaker is None:
        return f"(t.{order} IS NULL OR s.{order} >= t.{order})"
    tie = identifier(spec.tie_breaker)
    return f"(t.{order} IS NULL OR s.{order} > t.{order} OR (s.{order} = t.{order} AND s.{tie} >= t.{tie}))"


def _is_newer(spec: UpsertSpec, columns: Sequence[str], not_compared: Collection[str]) -> str:
    if spec.ordering is not None:
        order = identifier(spec.ordering)
        newer = f"s.{order} > t.{order} OR (t.{order} IS NULL AND s.{order} IS NOT NULL)"
        if spec.tie_breaker is not None:
            tie = identifier(spec.tie_breaker)
            newer += f" OR (s.{order} <=> t.{order} AND s.{tie} > t.{tie})"
        return f"({newer})"
    compared = [name for name in columns if name not in (*spec.merge_key, *not_compared)]
    if not compared:
        return "FALSE"
    same = " AND ".join(f"t.{identifier(name)} <=> s.{identifier(name)}" for name in compared)
    return f"NOT ({same})"

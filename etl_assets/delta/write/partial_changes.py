"""Changes of any number that lack values of their row, completed by Spark.

Changes of one key, and those of keys that a row had one after the other, come together in one group. The
groups are completed by the function that the step's own process uses too (`completed_changes.py`).

Belongs here: which rows a change may get values from. Does not belong here: which value it gets, and which
changes are late (`changes.py`).
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import identifier
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.session import frame_of
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.completed_changes import (
    FORMER_KEY,
    IS_STORED,
    LackingColumns,
    completed_changes,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, types

_GROUP, _HASH, _ROOT = "_group", "_hash", "_root"
_GROUPS = 200


def completed_by_spark(
    changes: DataFrame, stored: DataFrame, tombstones: DataFrame | None, columns: LackingColumns
) -> DataFrame:
    """Return changes with the values that they lack, as far as another one or a stored row has them.

    Args:
        changes: Changes with `_is_deleted` and `_is_truncate`.
        stored: The table's rows.
        tombstones: Keys, order and `_is_truncate` of the table's tombstones; None if there are none.
        columns: What the columns mean.

    Returns:
        The changes, without truncates if one of them lacks something, and the stored rows that got a value.
    """
    from pyspark.sql import functions as F

    lacks = _column(columns.lacks).isNotNull()
    if columns.lacks not in stored.columns:  # a table that has no commit since the column was declared
        stored = stored.where("false").withColumn(columns.lacks, F.lit(None).cast("string"))
    if changes.where(lacks).isEmpty() and stored.where(lacks).isEmpty():
        return changes
    rows = _with_former_keys(changes.withColumn(IS_STORED, F.lit(False)), columns)
    beside = _of_same_keys(rows, stored, columns)
    flags = {IS_DELETED: F.lit(False), IS_TRUNCATE: F.lit(False), IS_STORED: F.lit(True)}
    wanted = [name for name in stored.columns if name in changes.columns]
    rows = rows.unionByName(beside.select(*map(_column, wanted)).withColumns(flags), allowMissingColumns=True)
    if tombstones is not None:
        gone = _of_same_keys(rows, tombstones.where(~F.col(IS_TRUNCATE)), columns)
        order = [columns.sequence, columns.arrival]
        gone = gone.select(*map(_column, dict.fromkeys((*columns.keys, *order))))
        flags[IS_DELETED] = F.lit(True)
        rows = rows.unionByName(gone.withColumns(flags), allowMissingColumns=True)
    truncates = _truncates(changes, tombstones, columns)
    grouped = _grouped(rows.where(~F.col(IS_TRUNCATE)), columns)
    made = [field for field in rows.schema.fields if field.name not in (IS_STORED, *columns.former)]
    return _by_groups(grouped, made, truncates, columns).select(*map(_column, changes.columns))


def _with_former_keys(rows: DataFrame, columns: LackingColumns) -> DataFrame:
    """Return changes with the keys that their rows had before, as far as they lack values of these."""
    from pyspark.sql import functions as F
    from pyspark.sql import types

    fields = zip(columns.key_fields, columns.keys, strict=True)
    key = types.StructType([types.StructField(field, rows.schema[name].dataType) for field, name in fields])
    text = F.from_json(_column(columns.lacks), "map<string,string>")[F.lit(FORMER_KEY)]
    former = F.from_json(text, key)
    parts = zip(columns.former, columns.key_fields, strict=True)
    return rows.withColumns({name: former.getField(field) for name, field in parts})


def _of_same_keys(rows: DataFrame, stored: DataFrame, columns: LackingColumns) -> DataFrame:
    """Return the stored rows that have a key, or a former key, of some changes."""
    from pyspark.sql import functions as F

    names = [f"_key_{number}" for number in range(len(columns.keys))]
    keys = [
        rows.where(F.col(each[0]).isNotNull()).select(
            *(_column(name).alias(alias) for name, alias in zip(each, names, strict=True))
        )
        for each in (columns.keys, columns.former)
    ]
    same = (_column(name) == F.col(alias) for name, alias in zip(columns.keys, names, strict=True))
    return stored.join(keys[0].unionByName(keys[1]).distinct(), reduce(and_, same), "left_semi")


def _truncates(changes: DataFrame, tombstones: DataFrame | None, columns: LackingColumns) -> pa.Table:
    """Return the places of all truncates, which every group needs. Truncates are rare."""
    from pyspark.sql import functions as F

    order = [_column(columns.sequence), _column(columns.arrival)]
    found = changes.where(F.col(IS_TRUNCATE)).select(*order)
    if tombstones is not None:
        found = found.unionByName(tombstones.where(F.col(IS_TRUNCATE)).select(*order))
    return found.distinct().toArrow()


def _grouped(rows: DataFrame, columns: LackingColumns) -> DataFrame:
    """Return rows with the number of their group, the same for keys that a row had one after the other."""
    from pyspark.sql import functions as F

    rows = rows.withColumn(_HASH, F.xxhash64(*map(_column, columns.keys)))
    moved = rows.where(F.col(columns.former[0]).isNotNull())
    pairs = moved.select(F.xxhash64(*columns.former), _HASH).collect()
    roots: dict[int, int] = {}

    def root(number: int) -> int:
        while (above := roots.get(number, number)) != number:
            number = above
        return number

    for one, other in pairs:
        roots[root(one)] = root(other)
    known = frame_of(
        rows.sparkSession,
        [(number, root(number)) for number in roots],
        f"{_HASH} BIGINT, {_ROOT} BIGINT",
    )
    rows = rows.join(F.broadcast(known), _HASH, "left")
    group = F.pmod(F.coalesce(F.col(_ROOT), F.col(_HASH)), F.lit(_GROUPS))
    return rows.withColumn(_GROUP, group).drop(_HASH, _ROOT)


def _by_groups(
    rows: DataFrame, made: list[types.StructField], truncates: pa.Table, columns: LackingColumns
) -> DataFrame:
    """Complete each group of rows in a worker."""
    from pyspark.sql import types

    names = [field.name for field in made]

    def complete(group: pa.Table) -> pa.Table:
        import pyarrow as pa
        import pyarrow.compute as pc

        places = truncates.append_column(IS_DELETED, pa.repeat(pa.scalar(False), truncates.num_rows))
        for name in (IS_TRUNCATE, IS_STORED):
            places = places.append_column(name, pa.repeat(pa.scalar(True), truncates.num_rows))
        both = pa.concat_tables([group.drop_columns([_GROUP]), places], promote_options="default")
        found = completed_changes(both, columns).select(names)
        return found.filter(pc.call_function("invert", [found.column(IS_TRUNCATE)]))

    return rows.groupBy(_GROUP).applyInArrow(complete, types.StructType(made))


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(identifier(name))

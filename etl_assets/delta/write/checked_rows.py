"""The rows of a user's frame as they are written: one for each key, and none that cannot be stored.

An append or replacement, which has no keys, writes every row.

Bad rows are found where the rows are computed for the write, which costs no Spark job: the query fails, and
nothing is committed. Belongs here: these conditions, and the error for each. Does not belong here: checks of
the columns' types (`frame_columns.py`), and the meaning of an asset's partition keys.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import identifier
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.error_policy import spark_text
from etl_assets.errors import EtlAssetsError, PartitionMismatch, RowsRefused

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MARK = "etl-assets-refused"
_REFUSAL = re.compile(_MARK + r":(\w+):([0-9A-F]*);")
_STORED_AS_NULL = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Delta writes as NULL into a partition column."""
_MAX_VALUE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedRows:
    """The rows of a frame, checked for a write.

    Attributes:
        rows: A frame whose columns passed the checks of `frame_columns.py`.
        spec: How the rows are written.
        table: Name of the table, for errors.
        partitions: Values of `delta_partition` that the rows may have; None for any.
        run: The partitions of the run in words, for errors.
    """

    rows: DataFrame
    spec: WriteSpec
    table: str
    partitions: PartitionFilter | None = None
    run: str = ""

    def kept(self) -> DataFrame:
        """Return the rows to write: one for each key, or all of them where the spec has no keys.

        The query fails if a row cannot be stored; `refusal_in` turns that failure into an error of ours.
        """
        from pyspark.sql import functions as F

        if self.spec.keys:
            return self._one_of_each_key()
        # The condition has a value that Spark cannot know beforehand. Spark may move a condition on columns
        # alone below a join of the asset's, where it meets rows that the asset does not return.
        return self.rows.where(F.when(F.monotonically_increasing_id() >= 0, self._is_sound()))

    def _one_of_each_key(self) -> DataFrame:
        """Return one row for each key: the highest by `sequence_by` for an upsert, the lowest for an insert.

        MERGE inserts a new key twice, without an error, when the source has it twice. The query fails if
        nothing decides which row of a key to take.
        """
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        spec = self.spec
        rank, first = unused_names(self.rows.columns, ("rank", "first"))
        key = [_column(name) for name in spec.keys]
        is_first = F.col(rank) == 1
        if spec.sequence_by is None:
            window = Window.partitionBy(*key).orderBy(*key)
            ranked = self.rows.withColumn(rank, F.row_number().over(window))
            # One condition together with the rank: Spark may move a condition on columns alone below a join
            # of the asset's, where it meets rows that the asset does not return.
            kept = F.when(is_first, self._is_sound()).otherwise(_refuse("key_twice"))
            return ranked.where(kept).drop(rank)
        order = _column(spec.sequence_by)
        is_insert = spec.write_mode is WriteMode.INSERT
        window = Window.partitionBy(*key).orderBy(
            order.asc_nulls_first() if is_insert else order.desc_nulls_last()
        )
        others = [_column(name) for name in self.rows.columns if name not in spec.keys]
        values = F.struct(order.alias("order"), F.struct(*others).alias("row"))
        up_to_here = window.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        ranked = self.rows.withColumns(
            {rank: F.row_number().over(window), first: F.first(values).over(up_to_here)}
        )
        as_new = F.col(first)["order"].eqNullSafe(order)
        same = F.col(first)["row"].eqNullSafe(F.struct(*others))
        kept = F.when(is_first, self._is_sound()).when(as_new & ~same, _refuse("tie")).otherwise(F.lit(False))
        return ranked.where(kept).drop(rank, first)

    def _is_sound(self) -> Column:
        """Return a condition that is true, and fails the query for a row that cannot be stored."""
        from pyspark.sql import functions as F

        spec, schema = self.spec, self.rows.schema
        sound = F.when(F.lit(False), F.lit(True))
        for name in () if spec.nullable_keys else spec.keys:
            sound = sound.when(_column(name).isNull(), _refuse("null_key", F.lit(name)))
        if spec.sequence_by is not None and schema[spec.sequence_by].dataType.typeName() in (
            "float",
            "double",
        ):
            sound = sound.when(F.isnan(_column(spec.sequence_by)), _refuse("nan_ordering"))
        if spec.sequence_by is not None and spec.write_mode is WriteMode.APPLY_CHANGES:
            sound = sound.when(_column(spec.sequence_by).isNull(), _refuse("null_ordering"))
        if spec.delta_partition is not None:
            column = _column(spec.delta_partition)
            if self.partitions is not None:
                text = F.coalesce(F.substring(column.cast("string"), 1, _MAX_VALUE), F.lit("NULL"))
                here = F.coalesce(
                    F.expr(self.partitions.condition(identifier(spec.delta_partition))), F.lit(False)
                )
                sound = sound.when(~here, _refuse("other_partition", text))
            else:
                if schema[spec.delta_partition].dataType.typeName() == "string":
                    sound = sound.when(column.isin(*_STORED_AS_NULL), _refuse("empty_partition", column))
                if spec.partition_bound:
                    sound = sound.when(column.isNull(), _refuse("null_partition"))
        return sound.otherwise(F.lit(True))

    def refusal_in(self, error: BaseException) -> EtlAssetsError | None:
        """Return the refusal that caused a Spark error; None for an error of another cause."""
        found = _REFUSAL.search(spark_text(error))
        if found is None:
            return None
        return self._refusal(found[1], bytes.fromhex(found[2]).decode("utf-8", "replace"))

    def _refusal(self, kind: str, value: str) -> EtlAssetsError:
        spec, rows = self.spec, f"the rows for {self.table}"
        key = ", ".join(spec.keys)
        if kind == "other_partition":
            return PartitionMismatch(
                f"{rows} hold {value if value == 'NULL' else repr(value)} in {spec.delta_partition}, which is"
                f" of none of the partitions of this run ({self.run})",
                fix="return the rows of context.partition_keys only; nothing was stored. Where rows of any"
                " partition may come with a run, leave `delta_partition` out of the asset's spec",
                table=self.table,
                column=spec.delta_partition,
                value=value,
            )
        column, message, fix = {
            "null_key": (
                value,
                f"{rows} hold NULL in {value}, a column of the merge key",
                f"give every row its {value}, drop such rows in the asset, choose other `keys`, or set"
                " `nullable_keys`, where NULL is a value",
            ),
            "key_twice": (
                key,
                f"{rows} hold a merge key ({key}) twice and no ordering column says which is newer",
                "drop duplicates in the asset, or name a `sequence_by` column",
            ),
            "tie": (
                spec.sequence_by,
                f"{rows} hold a merge key ({key}) twice with the same {spec.sequence_by} and different"
                " values, and nothing says which is newer",
                f"drop one of them in the asset, or order by more than {spec.sequence_by}: a STRUCT of"
                " several columns",
            ),
            "nan_ordering": (
                spec.sequence_by,
                f"{rows} hold NaN in {spec.sequence_by}, their `sequence_by`, and no row would ever be newer",
                f"give every row its {spec.sequence_by}, or NULL for a row older than all others",
            ),
            "null_ordering": (
                spec.sequence_by,
                f"{rows} hold NULL in {spec.sequence_by}, their `sequence_by`, and nothing says which change"
                " is newer",
                f"give every row its {spec.sequence_by}, or drop such rows in the asset",
            ),
            "empty_partition": (
                spec.delta_partition,
                f"{rows} hold {value!r} in {spec.delta_partition}, their `delta_partition`, where Delta"
                " stores it as NULL",
                "write another text for it, or leave `delta_partition` out of the asset's spec",
            ),
            "null_partition": (
                spec.delta_partition,
                f"{rows} hold NULL in {spec.delta_partition}, their `delta_partition`, and are bound to it"
                " by `partition_bound`",
                f"give every row its {spec.delta_partition}, or unset `partition_bound`",
            ),
        }[kind]
        return RowsRefused(message, fix=fix, table=self.table, column=column)


def unused_names(columns: Collection[str], names: Collection[str]) -> list[str]:
    """Return unused column names, each similar to a wanted one. Spark ignores case in names."""
    taken = {column.lower() for column in columns}
    found = []
    for name in names:
        free = f"__{name}"
        while free in taken:
            free = f"_{free}"
        found.append(free)
    return found


def _column(name: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(identifier(name))


def _refuse(kind: str, value: Column | None = None) -> Column:
    """Return a column that fails the query with a kind of refusal and a value.

    The value is hexadecimal: some characters have a meaning in Spark's messages.
    """
    from pyspark.sql import functions as F

    digits = F.lit("") if value is None else F.hex(value)
    return F.raise_error(F.concat(F.lit(f"{_MARK}:{kind}:"), digits, F.lit(";"))).cast("boolean")

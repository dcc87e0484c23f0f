"""The hour, day or month of a time as the value of the column by which files are laid out.

Belongs here: the same values from Spark and from Arrow. Does not belong here: the declaration
(`pipelines/partition_by.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.pipelines.partition_by import PartitionBy, TimeUnit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def with_time_partition(rows: DataFrame, spec: PartitionBy | None) -> DataFrame:
    """Return rows with the column of `spec` that follows from a time; the rows as they are if there is none.

    The session's time zone must be UTC, as the platform sets it.
    """
    from pyspark.sql import functions as F

    if spec is None or spec.by is None:
        return rows
    time = F.col(spec.column)
    match spec.by:
        case TimeUnit.HOUR:
            value = F.date_format(time, "yyyy-MM-dd'T'HH")
        case TimeUnit.DAY:
            value = time.cast("date")
        case TimeUnit.MONTH:
            value = F.date_format(time, "yyyy-MM")
    return rows.withColumn(spec.name, value)


def with_arrow_time_partition(rows: pa.Table, spec: PartitionBy | None) -> pa.Table:
    """Do the same with Arrow columns; times are in UTC."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if spec is None or spec.by is None:
        return rows
    time = rows.column(spec.column)
    match spec.by:
        case TimeUnit.HOUR:
            value = pc.call_function("strftime", [time], pc.StrftimeOptions("%Y-%m-%dT%H"))
        case TimeUnit.DAY:
            value = pc.call_function("floor_temporal", [time], pc.RoundTemporalOptions(1, "day"))
            value = value.cast(pa.timestamp("us", tz="UTC")).cast(pa.date32())
        case TimeUnit.MONTH:
            value = pc.call_function("strftime", [time], pc.StrftimeOptions("%Y-%m"))
    return rows.append_column(spec.name, value)

"""The hour, day or month of a time as the value of the column by which files are laid out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.pipelines.partition_by import PartitionBy, TimeUnit

if TYPE_CHECKING:
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

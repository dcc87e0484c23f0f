"""Python functions of a user, for tests of the transform `python`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

NOT_A_FUNCTION = 3


def older(rows: Any) -> Any:
    from pyspark.sql import functions as F

    return rows.withColumn("age", F.col("age") + 1)


def forget_offset(rows: Any) -> Any:
    return rows.drop("_offset")


def to_list(rows: Any) -> Any:
    return [rows]


def upper_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    ids = pc.call_function("utf8_upper", [batch.column("id")])
    return batch.set_column(batch.schema.get_field_index("id"), "id", ids)


def without_ages(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.drop_columns(["age"])

"""Frames in the kind that an asset's parameter is annotated with: Spark, pandas, Polars or pyarrow.

Does not belong here: which rows an asset is given (`loading.py`), and what it returns (`returned_frames.py`).
"""

from __future__ import annotations

import sys
import typing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import dagster as dg
    import pyarrow as pa
    from pyspark.sql import DataFrame


def is_optional(context: dg.InputContext) -> bool:
    """Return whether the parameter may be None."""
    return type(None) in typing.get_args(context.dagster_type.typing_type)


def as_requested(context: dg.InputContext, rows: DataFrame) -> Any:
    """Convert rows to the kind of frame that the parameter's annotation names; Spark's frame otherwise.

    The dtype of a pandas column depends on the column's type only, never on its values. Whole numbers and
    booleans have dtypes that know NA; decimals, dates and nested values are Python objects; times have
    microseconds.
    """
    wanted = _annotation(context)
    pandas, polars, pyarrow = (sys.modules.get(name) for name in ("pandas", "polars", "pyarrow"))
    if pyarrow is not None and wanted is pyarrow.Table:
        return _arrow(rows)
    if pandas is not None and wanted is pandas.DataFrame:
        return _pandas(_arrow(rows), pandas)
    if polars is not None and wanted in (polars.DataFrame, polars.LazyFrame):
        frame = polars.from_arrow(_arrow(rows))
        return frame.lazy() if wanted is polars.LazyFrame else frame
    return rows


def _annotation(context: dg.InputContext) -> Any:
    annotation = context.dagster_type.typing_type
    parts = [part for part in typing.get_args(annotation) if part is not type(None)]
    return parts[0] if is_optional(context) and len(parts) == 1 else annotation


def _arrow(rows: DataFrame) -> pa.Table:
    """Collect the rows into this process. Times are UTC, whatever the session's zone."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_schema

    table: Any = rows.toArrow()
    schema: Any = to_arrow_schema(rows.schema, timezone="UTC")
    return table.cast(pa.schema([pa.field(field.name, field.type) for field in schema]))


def _pandas(table: pa.Table, pandas: Any) -> Any:
    import pyarrow as pa

    with_na = {
        pa.int8(): pandas.Int8Dtype(),
        pa.int16(): pandas.Int16Dtype(),
        pa.int32(): pandas.Int32Dtype(),
        pa.int64(): pandas.Int64Dtype(),
        pa.bool_(): pandas.BooleanDtype(),
    }
    return table.to_pandas(types_mapper=with_na.get)

"""Times in data files of any program, as Delta has them: microseconds, in UTC or without a zone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


def with_utc_times(rows: pa.Table, file: pq.ParquetFile) -> pa.Table:
    """Return rows of a data file with their times as Delta has them.

    Spark's old form (INT96) has no zone in the file and is UTC. Any other time without a zone is a
    TIMESTAMP_NTZ, and stays as it is.

    Raises:
        InputError: a column has nanoseconds, which no Delta table has.
    """
    import pyarrow as pa

    old = {column.path for column in _columns(file) if column.physical_type == "INT96"}
    return rows.cast(pa.schema([_field(field, in_old_form=field.name in old) for field in rows.schema]))


def _columns(file: pq.ParquetFile) -> list[pq.ColumnSchema]:
    return [file.schema.column(number) for number in range(len(file.schema))]


def _field(field: pa.Field, *, in_old_form: bool) -> pa.Field:
    import pyarrow as pa

    if not pa.types.is_timestamp(field.type):
        return field
    if in_old_form:
        return field.with_type(pa.timestamp("us", tz="UTC"))
    if field.type.unit == "ns":
        raise InputError(
            f"the column {field.name} of a data file has nanoseconds, which Delta does not know",
            fix="find out which program wrote the file, and have it write microseconds",
            column=field.name,
        )
    return field.with_type(pa.timestamp("us", tz=None if field.type.tz is None else "UTC"))

"""Footers of data files, read where the log has no statistics: bounds of a column, and numbers of rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from etl_assets.errors import FilesGone


def bounds_in(files: Iterable[Path], column: str) -> tuple[Any, Any] | None:
    """Return the lowest and highest value of a BIGINT or STRING column in some Parquet files.

    None where one of the files has no bounds, or there are no values.
    """
    import pyarrow.parquet as pq

    found = []
    for file in files:
        metadata = pq.read_metadata(file)
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        for group in (group for group in groups if group.num_rows):
            columns = [group.column(position) for position in range(group.num_columns)]
            told = next((each.statistics for each in columns if each.path_in_schema == column), None)
            if told is not None and told.has_null_count and told.null_count == group.num_rows:
                continue
            if told is None or not told.has_min_max or type(told.min) not in (int, str):
                return None
            found.append((told.min, told.max))
    return (min(low for low, _ in found), max(high for _, high in found)) if found else None


def rows_in(file: Path) -> int:
    """Return the number of rows of a Parquet file.

    Raises:
        FilesGone: the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_metadata(file).num_rows
    except (OSError, pa.ArrowException) as error:
        raise FilesGone(
            f"the log does not say how many rows {file} has, and the file cannot be read: {error}",
            fix="look for a program that removes or changes data files; `etl-assets tables verify` names"
            " what is wrong",
            table=file.parent.name,
            missing=[str(file)],
        ) from error

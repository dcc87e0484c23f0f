"""Staged files of a table's changes: JSON Lines, like those of a query that is read as a whole.

Belongs here: writing them, and the comparison of all rows with accepted records. Does not belong here: which
rows are read (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts import canonical_json
from etl_assets.pipelines.table_source_spec import TABLE
from etl_assets.sources.arrow_values import json_values
from etl_assets.sources.ranges import RangeRead, ReadRange, StagedFile
from etl_assets.sources.sql.staged import DELETED, QUERY, ROWS, file_name, version_of

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.delta.table import Table
    from etl_assets.sources.sql.comparison import QueryComparison


def write_lines(path: Path, batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> None:
    """Write some columns of rows as lines of JSON; a column that rows lack is left out."""
    with path.open("wb") as file:
        for batch in batches:
            there = [name for name in columns if name in batch.schema.names]
            values = (json_values(batch.column(name)) for name in there)
            for row in zip(*values, strict=True):
                file.write(canonical_json.write(dict(zip(there, row, strict=True))) + b"\n")


def files_of(read: ReadRange, folder: Path, name: str) -> tuple[StagedFile, ...]:
    """Return the files of a range that have records: rows that are gone before those that are there.

    Args:
        read: The range.
        folder: Its folder.
        name: Name of the table.
    """
    number, day = read.end[TABLE]["range"], read.details["day"]
    files = []
    for kind in (DELETED, ROWS):
        path = folder / day / file_name(kind, number)
        if path.exists() and path.stat().st_size:
            files.append(
                StagedFile(
                    day=dt.date.fromisoformat(day),
                    name=path.name,
                    place=f"{name}/{number}/{path.stem}",
                    version=version_of(path.name),
                )
            )
    return tuple(files)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComparison:
    """Leaves of all rows of a table those that differ from the accepted records, and adds those that are
    gone.

    Attributes:
        name: Name of the table.
        of_query: The comparison of rows with records.
    """

    name: str
    of_query: QueryComparison

    def __call__(self, table: Table, version: int, found: RangeRead, folder: Path) -> RangeRead:
        """Return a range without the rows that are known. One that has changes only stays as it is."""
        if not found.read.details["whole"]:
            return found
        load = {QUERY: {"load": found.read.end[TABLE]["range"]}}
        self.of_query(table, version, replace(found, read=replace(found.read, end=load)), folder)
        return replace(found, files=files_of(found.read, folder, self.name))

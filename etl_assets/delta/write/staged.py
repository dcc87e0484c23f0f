"""Rows that a step has staged as Parquet: as a Spark frame, and in this process where they are few.

A Spark job costs a tenth of a second however few rows it counts, pyarrow some milliseconds. So rows that are
only inspected (counts, duplicates) are read here where that is cheap. Rows that become rows of a table go
through Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STAGED_FILE, STAGED_ROW = "__staged_file", "__staged_row"
"""The staged row's file, and its position in that file."""
LITTLE_BYTES = 16 << 20
"""Files of up to this many bytes together, some 100,000 events, are little: beyond that Spark is as fast."""


class StagedRows:
    """The files of one folder, which are written once and never changed."""

    def __init__(self, spark: SparkSession, folder: str, schema: StructType | str) -> None:
        self._spark = spark
        self._folder = folder
        self._schema = schema

    @property
    def is_little(self) -> bool:
        """Whether the files have few enough bytes for `here`."""
        return is_little(self.files)

    @property
    def folder(self) -> Path:
        """The folder of the files."""
        return Path(self._folder)

    @property
    def files(self) -> list[Path]:
        """The files, sorted."""
        return sorted(self.folder.glob("*.parquet"))

    @property
    def frame(self) -> DataFrame:
        """The rows, with `STAGED_FILE` and `STAGED_ROW`."""
        from pyspark.sql import functions as F

        # With a given schema Spark runs no job to find it in the files.
        rows = self._spark.read.schema(self._schema).parquet(self._folder)
        return rows.select(
            "*",
            F.col("_metadata.file_name").alias(STAGED_FILE),
            F.col("_metadata.row_index").alias(STAGED_ROW),
        )

    def here(self, columns: Sequence[str]) -> pa.Table:
        """Read some columns of the rows in this process, with `STAGED_FILE` and `STAGED_ROW`."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        tables = []
        for file in self.files:
            rows = pq.read_table(file, columns=list(columns), partitioning=None)
            names = pa.DictionaryArray.from_arrays(np.zeros(len(rows), dtype=np.int32), [file.name])
            rows = rows.append_column(STAGED_FILE, names.cast(pa.string()))
            tables.append(rows.append_column(STAGED_ROW, pa.array(np.arange(len(rows), dtype=np.int64))))
        return pa.concat_tables(tables)


def is_little(files: Iterable[Path]) -> bool:
    """Return whether files have so few bytes together that this process reads them by itself."""
    return sum(file.stat().st_size for file in files) <= LITTLE_BYTES

"""A few rows as data files that this process writes itself, so that their commit needs no Spark.

Belongs here: the files. Does not belong here: what the rows are (`delivery_record.py`,
`delivery_rejects.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.read.data_files import new_data_file
from etl_assets.delta.read.rows import KnownFiles
from etl_assets.delta.write.write import DeferredRows
from etl_assets.steps.step import StepContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract


def deferred(context: StepContext, contract: TableContract, rows: list[dict[str, Any]]) -> DeferredRows:
    """Return rows whose frame is made only where Delta's writer has to write them."""
    schema = struct_type(contract)

    def frame() -> DataFrame:
        from etl_assets.delta.session import frame_of

        return frame_of(
            context.spark, [tuple(row.get(name) for name in contract.names) for row in rows], schema
        )

    return DeferredRows(schema=schema, frame=frame)


def write_new(folder: Path, contract: TableContract, rows: list[dict[str, Any]], known: KnownFiles) -> int:
    """Write the exceptions that the table does not have, and return the number of the others."""
    import pyarrow.parquet as pq

    there = {
        value
        for files in known.values()
        for file in files
        for value in pq.ParquetFile(file).read(columns=["exception_id"]).column(0).to_pylist()
    }
    new = [row for row in rows if row["exception_id"] not in there]
    write_rows(folder, contract, new)
    return len(rows) - len(new)


def write_rows(folder: Path, contract: TableContract, rows: Sequence[Mapping[str, Any]]) -> int:
    """Write rows, a file for each folder of the Delta partition columns; returns 0."""
    import pyarrow as pa

    from etl_assets.delta.log.partition_values import folder_of

    by_folder: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        of = {name: str(row[name]) for name in contract.delta_partition}
        by_folder.setdefault(folder_of(of, contract.delta_partition), []).append(row)
    schema = data_file_schema(contract, without=contract.delta_partition)
    folder.mkdir(parents=True, exist_ok=True)
    for index, (name, of_folder) in enumerate(by_folder.items()):
        path = folder / name / f"part-{index:05d}-{uuid.uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_data_file(path, schema) as file:
            file.write_table(pa.Table.from_pylist([dict(row) for row in of_folder], schema=schema))
    return 0

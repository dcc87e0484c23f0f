"""Few rows of many partitions, sorted into data files by this process.

Spark's writer opens a file for each partition of each task, and Hadoop's local file system starts a process
(`chmod`) for each file and each folder: some ten milliseconds, which is more than a day of few rows is worth.
So Spark writes such rows as they come, and this process sorts them. Does not belong here: the commit of the
files (`append.py`).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.delta.log.partition_values import as_text, folder_of
from etl_assets.delta.read.data_files import new_data_file, pieces_of

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.write.write import Write

MIN_PARTITIONS = 4
"""With fewer partitions, Spark's writer has few files to make."""
MAX_ROWS_PER_PARTITION = 2_000
"""With more rows in a partition, on average, its files cost Spark less than its rows cost this process."""
ROWS_AT_ONCE = 200_000
BYTES_AT_ONCE = 64 << 20
"""About how many rows, or bytes of rows, are held at a time. There are seldom more."""
_ROWS_PER_PIECE = 10_000
SPELT_TYPES = ("DATE", "STRING", "INT", "BIGINT")
"""Types of partition columns whose values have one spelling."""


def few_rows_of_many_partitions(write: Write, contract: TableContract) -> bool:
    """Return whether this process sorts the rows of a write into partitions, judging by file statistics."""
    if write.rows_at_most is None or write.partitions is None:
        return False
    partitions = len(write.partitions)
    return (
        partitions >= MIN_PARTITIONS
        and write.rows_at_most <= partitions * MAX_ROWS_PER_PARTITION
        and all(contract.column(name).type in SPELT_TYPES for name in contract.delta_partition)
    )


def sort_into_partitions(files: Iterable[Path], contract: TableContract, folder: Path, *, known: str) -> int:
    """Write the rows of Parquet files into a new folder, laid out by a table's Delta partition columns.

    Args:
        files: The files, with the contract's columns and `known`.
        contract: The table's contract.
        folder: The new folder.
        known: Name of a boolean column: rows where it is true are left out.

    Returns:
        The number of rows that were left out.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = data_file_schema(contract).append(pa.field(known, pa.bool_()))
    left_out = 0

    def new() -> Iterator[pa.Table]:
        nonlocal left_out
        for piece in (each for file in files for each in pieces_of(file, schema, at_once=_ROWS_PER_PIECE)):
            wanted = piece.filter(pc.call_function("invert", [piece.column(known)])).drop_columns([known])
            left_out += piece.num_rows - wanted.num_rows
            yield wanted

    write_by_partition(new(), contract, folder)
    return left_out


def write_by_partition(pieces: Iterable[pa.Table], contract: TableContract, folder: Path) -> None:
    """Write rows as data files into a folder, laid out by a table's Delta partition columns."""
    for rows in _gathered(pieces):
        for partition, of_partition in _by_partition(rows, contract.delta_partition):
            target = folder / partition
            target.mkdir(parents=True, exist_ok=True)
            file = target / f"part-{uuid.uuid4().hex}.zstd.parquet"
            with new_data_file(file, of_partition.schema) as writer:
                writer.write_table(of_partition)


def _gathered(pieces: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield pieces put together: as few tables as fit."""
    import pyarrow as pa

    held: list[pa.Table] = []
    for piece in pieces:
        held.append(piece)
        if (
            sum(each.num_rows for each in held) >= ROWS_AT_ONCE
            or sum(each.nbytes for each in held) >= BYTES_AT_ONCE
        ):
            yield pa.concat_tables(held)
            held = []
    if held:
        yield pa.concat_tables(held)


def _by_partition(rows: pa.Table, columns: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the folder of each partition with its rows, without the partition columns."""
    in_order = rows.sort_by([(column, "ascending") for column in columns]).combine_chunks()
    partitions = in_order.group_by(list(columns), use_threads=False).aggregate([([], "count_all")])
    kept, first = in_order.drop_columns(list(columns)), 0
    for partition in partitions.to_pylist():
        number = partition.pop("count_all")
        texts = {column: as_text(value) for column, value in partition.items()}
        yield folder_of(texts, columns), kept.slice(first, number)
        first += number

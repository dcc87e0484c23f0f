"""Reading and writing data files with pyarrow, some rows at a time."""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_calls import call
from etl_assets.delta.read.times import with_utc_times

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from etl_assets.delta.snapshot import Snapshot

ROWS_AT_ONCE = 100_000
_SAMPLED_ROWS = 2_000
_ROWS_OF_A_THREAD, _BYTES_OF_A_THREAD = 50_000, 32 << 20


def pieces_of(
    path: str | Path,
    schema: pa.Schema,
    *,
    at_once: int = ROWS_AT_ONCE,
    between: tuple[str, Any, Any] | None = None,
) -> Iterator[pa.Table]:
    """Read some columns of a Parquet file, some rows at a time.

    Args:
        path: The file.
        schema: The columns. A column that was added after the file was written has nulls.
        at_once: Number of rows in a piece.
        between: A column, lowest and highest: row groups whose statistics show no value between them are
            skipped.

    Raises:
        OSError: the file cannot be read; it has the number and the file's name, see `whole_file`.
    """
    with whole_file(path):
        yield from _pieces_of(path, schema, at_once, between)


def batches_of_snapshot(
    snapshot: Snapshot,
    columns: Sequence[str],
    wanted: Any = None,
    *,
    at_once: int = ROWS_AT_ONCE,
    files: Collection[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield rows of one version of a table, always in the same order.

    Little is read ahead, so that memory does not grow with their number.

    Args:
        snapshot: The version.
        columns: The columns to read.
        wanted: A condition of pyarrow; None for all rows. Files that statistics exclude stay closed.
        at_once: Number of rows in a batch.
        files: The data files to read; None: all.

    Raises:
        OSError: a data file is gone or damaged; it has the file's name, see `whole_file`.
    """
    dataset = snapshot.dataset()
    # A log lists files in another order than the checkpoint that replaces it.
    for fragment in sorted(dataset.get_fragments(filter=wanted), key=lambda each: each.path):
        if files is not None and fragment.path not in files:
            continue
        scanner = fragment.scanner(
            schema=dataset.schema,
            columns=list(columns),
            filter=wanted,
            batch_size=at_once,
            batch_readahead=1,
            fragment_readahead=1,
            use_threads=False,
        )
        with whole_file(snapshot.folder / fragment.path):
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield batch


def rows_at_once(path: Path) -> int:
    """Return how many rows of a file a thread holds at once: rows may be long."""
    import pyarrow.parquet as pq

    found = pq.read_metadata(path)
    size = sum(found.row_group(number).total_byte_size for number in range(found.num_row_groups))
    return max(1, min(_ROWS_OF_A_THREAD, _BYTES_OF_A_THREAD * max(1, found.num_rows) // max(1, size)))


@contextmanager
def whole_file(path: str | Path) -> Generator[None]:
    """Raise errors of pyarrow about a file as an `OSError` with a number and the file's name.

    Raises:
        OSError: `EBADMSG` means that it is not a whole Parquet file; `ENOENT` that it is gone.
    """
    import pyarrow as pa

    try:
        yield
    except FileNotFoundError as error:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from error
    except (pa.ArrowException, OSError) as error:
        number = error.errno if isinstance(error, OSError) else None
        if number is not None:
            raise OSError(number, os.strerror(number), str(path)) from error
        raise OSError(errno.EBADMSG, f"no whole Parquet file ({error})", str(path)) from error


def _pieces_of(
    path: str | Path, schema: pa.Schema, at_once: int, between: tuple[str, Any, Any] | None
) -> Iterator[pa.Table]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # With pre-buffering, the whole file would stay in memory until it is closed. Times of Spark's old form
    # would be read as nanoseconds, which reach from 1677 to 2262 only.
    with pq.ParquetFile(path, pre_buffer=False, coerce_int96_timestamp_unit="us") as file:
        there = [name for name in schema.names if name in file.schema_arrow.names]
        groups = [
            number
            for number in range(file.num_row_groups)
            if between is None or _may_have(file, number, *between)
        ]
        for batch in file.iter_batches(row_groups=groups, columns=there, batch_size=at_once):
            rows = with_utc_times(pa.Table.from_batches([batch]), file)
            columns = [
                rows.column(field.name) if field.name in there else pa.nulls(rows.num_rows, field.type)
                for field in schema
            ]
            yield pa.table(columns, names=schema.names).cast(schema)


def _may_have(file: pq.ParquetFile, group: int, column: str, lowest: Any, highest: Any) -> bool:
    names = (file.metadata.schema.column(number).path for number in range(file.metadata.num_columns))
    known = file.metadata.row_group(group).column(list(names).index(column)).statistics
    return known is None or not known.has_min_max or (known.min <= highest and lowest <= known.max)


def new_data_file(
    path: Path, schema: pa.Schema, *, repeating: Sequence[str] | bool = True
) -> pq.ParquetWriter:
    """Open a new data file for writing.

    Args:
        path: The file.
        schema: Its columns, all nullable, as Spark writes them.
        repeating: Columns with few values, for which a dictionary pays; True: decided while writing.
    """
    import pyarrow.parquet as pq

    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=repeating if isinstance(repeating, bool) else list(repeating),
        store_schema=False,
    )


def repeating_columns(rows: pa.Table) -> list[str]:
    """Return the columns with few values, judged by a sample: those of which a dictionary is worth its time.

    Parquet's writer tries a dictionary by hashing every value, and gives up only after many different ones.
    """
    import numpy as np
    import pyarrow as pa

    places = np.linspace(0, rows.num_rows - 1, min(rows.num_rows, _SAMPLED_ROWS)).astype(np.int64)
    sample = rows.take(places)
    return [
        name
        for name, column in zip(sample.column_names, sample.columns, strict=True)
        if not pa.types.is_nested(column.type) and call("count_distinct", column).as_py() <= len(places) // 2
    ]

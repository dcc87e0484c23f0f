"""Data files of one attempt: rows into Parquet files, by partition, of a bounded size.

Each file is made in a temporary folder of this machine, then put into the store as a whole under a name of
its own. Nobody reads it before a manifest lists it.
"""

from __future__ import annotations

import tempfile
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from etl_assets.sinks.files.manifest import DatasetFile

if TYPE_CHECKING:
    import pyarrow as pa

    from etl_assets.mirroring.stores.store import Store

DATA = "data"
MAX_FILE_BYTES = 128 * 1024 * 1024
MAX_OPEN_FILES = 16
_BUFFERED_ROWS = 65_536
_CHUNK_BYTES = 4 * 1024 * 1024
_NULL = "__HIVE_DEFAULT_PARTITION__"

Partition = tuple[str | None, ...]


class DataFileWriter:
    """Writes rows of one attempt; `finish` returns the files. A context that leaves nothing here."""

    def __init__(
        self,
        store: Store,
        target: str,
        *,
        number: int,
        schema: pa.Schema,
        partition_by: Sequence[str],
        max_file_bytes: int = MAX_FILE_BYTES,
    ) -> None:
        """Write nothing yet.

        Args:
            store: The store of the dataset.
            target: The dataset in it.
            number: The number of the manifest that would list the files.
            schema: The columns.
            partition_by: Columns that files are divided by.
            max_file_bytes: A file that is larger is followed by another.
        """
        self._store, self._target, self._number = store, target, number
        self._schema, self._partition_by, self._max = schema, tuple(partition_by), max_file_bytes
        self._buffer: list[pa.RecordBatch] = []
        self._buffered = 0
        self._open: dict[Partition, _OpenFile] = {}
        self._files: list[DatasetFile] = []
        self._folder = tempfile.TemporaryDirectory(prefix="etl-assets-files-")

    def __enter__(self) -> DataFileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._open.values():
            each.abandon()
        self._folder.cleanup()

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; they are written once enough have come together."""
        if not batch.num_rows:
            return
        self._buffer.append(batch.select(self._schema.names).cast(self._schema))
        self._buffered += batch.num_rows
        if self._buffered >= _BUFFERED_ROWS:
            self._flush()

    def finish(self) -> tuple[DatasetFile, ...]:
        """Put what is left, make all files durable, and return them."""
        self._flush()
        for partition in list(self._open):
            self._put(partition)
        self._store.persist([f"{self._target}/{file.path}" for file in self._files])
        return tuple(self._files)

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._buffer:
            return
        table = pa.Table.from_batches(self._buffer)
        self._buffer, self._buffered = [], 0
        for partition, rows in self._divided(table):
            if partition not in self._open:
                if len(self._open) >= MAX_OPEN_FILES:
                    self._put(next(iter(self._open)))
                self._open[partition] = _OpenFile(Path(self._folder.name), self._schema)
            # The partition that was used last is the last to be closed.
            file = self._open[partition] = self._open.pop(partition)
            file.write(rows)
            if file.size_bytes >= self._max:
                self._put(partition)

    def _divided(self, table: pa.Table) -> Iterator[tuple[Partition, pa.Table]]:
        import pyarrow as pa
        import pyarrow.compute

        pc: Any = pyarrow.compute  # its functions are made at import

        if not self._partition_by:
            yield (), table
            return
        for values in table.group_by(list(self._partition_by)).aggregate([]).to_pylist():
            mask = pa.chunked_array([pa.array([True] * table.num_rows)])
            for name in self._partition_by:
                column, value = table.column(name), values[name]
                is_this = (
                    pc.is_null(column)
                    if value is None
                    else pc.equal(column, pa.scalar(value, self._schema.field(name).type))
                )
                mask = pc.and_(mask, pc.fill_null(is_this, False))
            yield tuple(map(_text, (values[name] for name in self._partition_by))), table.filter(mask)

    def _put(self, partition: Partition) -> None:
        file = self._open.pop(partition)
        path, rows = file.close()
        folders = "".join(
            f"{name}={_NULL if value is None else quote(value, safe='')}/"
            for name, value in zip(self._partition_by, partition, strict=True)
        )
        name = f"{DATA}/{folders}part-{self._number:020d}-{uuid.uuid4().hex}.parquet"
        size = path.stat().st_size
        self._store.put(f"{self._target}/{name}", _chunks(path))
        path.unlink()
        named: Mapping[str, str | None] = dict(zip(self._partition_by, partition, strict=True))
        self._files.append(DatasetFile(path=name, rows=rows, size_bytes=size, partition=named))


class _OpenFile:
    """A Parquet file in the making, on this machine."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        import pyarrow.parquet as pq

        self._path = folder / uuid.uuid4().hex
        self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        self._rows = 0

    @property
    def size_bytes(self) -> int:
        return self._path.stat().st_size

    def write(self, rows: pa.Table) -> None:
        self._writer.write_table(rows)
        self._rows += rows.num_rows

    def close(self) -> tuple[Path, int]:
        self._writer.close()
        return self._path, self._rows

    def abandon(self) -> None:
        self._writer.close()


def attempt_number(path: str) -> int | None:
    """Return the number of the manifest that a data file was written for; None for another file."""
    parts = path.rsplit("/", 1)[-1].split("-")
    is_ours = len(parts) == 3 and parts[0] == "part" and len(parts[1]) == 20 and parts[1].isdecimal()
    return int(parts[1]) if is_ours else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk

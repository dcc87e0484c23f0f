"""The log of a table as of one version, read without Spark: its columns, properties, files and their
statistics.

delta-rs reads the log in milliseconds and needs no JVM. Does not belong here: which versions are kept
in memory (`snapshot_cache.py`), which may be read, and where (`table.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from etl_assets.delta.log.entries import read_transactions
from etl_assets.delta.log.partition_values import as_text
from etl_assets.delta.read.footers import rows_in
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.read.range_predicate import Within, columns_of, may_hold

if TYPE_CHECKING:
    import pyarrow.dataset

_CHECKPOINT_INTERVAL = 10
"""Delta's default."""
_FEW_TRANSACTIONS = 4
"""Up to this many transaction ids are looked up one by one. delta-rs reads the log again for each of them."""


class Snapshot:
    """The log of a table as of one version."""

    def __init__(self, delta_table: Any) -> None:
        self._delta_table = delta_table
        self._read_transactions: list[Mapping[str, int] | None] = []

    @property
    def version(self) -> int:
        """The version of this snapshot."""
        return self._delta_table.version()

    @property
    def table_id(self) -> str:
        """The table's id, which distinguishes it from another table of the same name."""
        return str(self._delta_table.metadata().id)

    @property
    def is_plain(self) -> bool:
        """Whether the Parquet files alone hold the rows, and nothing else in the log changes their values."""
        return self._delta_table.protocol().min_reader_version == 1

    def files(self) -> Iterator[str]:
        """Return the paths of the data files, relative to the table's folder."""
        for (path,) in self._files("path"):
            yield unquote(path)

    def partitions(self, among: Collection[str]) -> Iterator[tuple[str, dict[str, str | None]]]:
        """Return each data file in `among` with its partition values as texts."""
        columns, among = self.partition_columns(), set(among)
        for path, *values in self._files("path", *(f"partition.{column}" for column in columns)):
            if (file := unquote(path)) in among:
                yield file, dict(zip(columns, map(as_text, values), strict=True))

    def files_by_day(self) -> Iterator[tuple[str, dt.date, int | None]]:
        """Return each data file with its day and the batch id of its newest row, None where unknown."""
        for path, day, batch in self._files("path", "partition.partition_date", "max.batch_id"):
            yield unquote(path), day, batch

    def files_within(self, within: Within, among: Collection[str]) -> Iterator[str]:
        """Return the data files in `among` whose statistics do not rule out rows in the given ranges."""
        names, among = columns_of(within), set(among)
        bounds = (f"{bound}.{name}" for bound in ("min", "max") for name in names)
        for path, rows, *values in self._files("path", "num_records", *bounds) if among else ():
            lowest, highest = values[: len(names)], values[len(names) :]
            if (
                (file := unquote(path)) in among
                and rows != 0
                and may_hold(
                    within, dict(zip(names, lowest, strict=True)), dict(zip(names, highest, strict=True))
                )
            ):
                yield file

    @property
    def has_commit_timestamps(self) -> bool:
        """Whether each log entry must carry the time of its commit."""
        return self._property("delta.enableInCommitTimestamps") == "true"

    @property
    def protocol_versions(self) -> tuple[int, int]:
        """The versions of Delta's protocol that a reader and a writer need."""
        protocol = self._delta_table.protocol()
        return protocol.min_reader_version, protocol.min_writer_version

    @property
    def named_features(self) -> frozenset[str]:
        """Table features that the protocol names. `gate.py` has their meaning for a write."""
        protocol = self._delta_table.protocol()
        return frozenset([*(protocol.reader_features or ()), *(protocol.writer_features or ())])

    @property
    def properties(self) -> Mapping[str, str]:
        """Table properties."""
        return self._delta_table.metadata().configuration

    @property
    def created_at(self) -> int:
        """When the table was created, in milliseconds since 1970."""
        return self._delta_table.metadata().created_time or 0

    def fields(self) -> list[dict[str, Any]]:
        """Return the columns as the log has them: `name`, `type`, `nullable`, `metadata`."""
        return json.loads(self._delta_table.schema().to_json())["fields"]

    def statistics_columns(self) -> tuple[str, ...] | None:
        """Return the columns that the log keeps statistics of; None where the table does not list them."""
        named = self._property("delta.dataSkippingStatsColumns")
        return None if named is None else tuple(named.split(","))

    @property
    def checkpoint_interval(self) -> int:
        """Number of commits after which a checkpoint is written."""
        return int(self._property("delta.checkpointInterval") or _CHECKPOINT_INTERVAL)

    def _property(self, name: str) -> str | None:
        return self.properties.get(name)

    def add_actions(self) -> Iterator[dict[str, Any]]:
        """Return the log's statements about each data file, under delta-rs' flat names.

        The names are `path`, `partition.<column>`, `min.<column>` and so on.
        """
        statistics = self._delta_table.get_add_actions(flatten=True)
        names = list(statistics.schema.names)
        columns = [statistics.column(position).to_pylist() for position in range(len(names))]
        for values in zip(*columns, strict=True):
            yield dict(zip(names, values, strict=True))

    def sizes_by(self, *columns: str) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Return each data file's size in bytes and its values of the given Delta partition columns."""
        for size, *values in self._files("size_bytes", *(f"partition.{column}" for column in columns)):
            yield size, tuple(values)

    def transaction_version(self, app_id: str) -> int:
        """Return the version last committed for a transaction id, -1 for none. An undo may set it back."""
        found = self._delta_table.transaction_version(app_id)
        return -1 if found is None else found

    def transaction_versions(self, app_ids: Iterable[str]) -> dict[str, int]:
        """Return the version last committed for each transaction id; ids without one are left out.

        -1 means that an undo set the id back.
        """
        wanted = set(app_ids)
        if len(wanted) <= _FEW_TRANSACTIONS or (known := self._transactions()) is None:
            known = {each: self._delta_table.transaction_version(each) for each in wanted}
        return {each: known[each] for each in wanted if known.get(each) is not None}

    def transactions(self) -> Mapping[str, int] | None:
        """Return the version last committed for every transaction id; None where the log cannot be read here.

        That is so for a log that is truncated at this moment, or has checkpoints of several parts.
        """
        return self._transactions()

    def _transactions(self) -> Mapping[str, int] | None:
        """Return all transaction ids from one pass over the log, where delta-rs would take a pass for each.

        None where the log cannot be read here.
        """
        if not self._read_transactions:
            folder = Path(url2pathname(urlsplit(self._delta_table.table_uri).path))
            self._read_transactions.append(read_transactions(folder, self.version))
        return self._read_transactions[0]

    def may_have_rows(self, column: str | None = None, values: Collection[str] = ()) -> bool:
        """Return whether the table may have rows, or rows with some partition values of a column, as texts.

        A file whose row count the log does not report may have rows.
        """
        names = () if column is None else (f"partition.{column}",)
        return any(
            rows != 0 and (not found or str(as_text(found[0])) in values)
            for rows, *found in self._files("num_records", *names)
        )

    def may_have_rows_in(self, column: str, values: PartitionFilter) -> bool:
        """Return whether the table may have rows with some values of a column.

        For a column that is not a Delta partition column the files do not show it: then any row counts.
        """
        if column not in self.partition_columns():
            return self.may_have_rows()
        found = self._files("num_records", f"partition.{column}")
        return any(rows != 0 and values.holds(value) for rows, value in found)

    def rows_by_value(self, column: str) -> dict[Any, int]:
        """Return the number of rows for each value of a Delta partition column.

        Values have the column's type; null is None.
        """
        rows: Counter[Any] = Counter()
        hidden = self._hidden_rows()
        for path, number, value in self._files("path", "num_records", f"partition.{column}"):
            rows[value] += self.rows_of(path, number) - hidden.get(unquote(path), 0)
        return dict(rows)

    def rows_by(self, *columns: str) -> dict[tuple[str, ...], int]:
        """Return the number of rows for each combination of Delta partition values, from file statistics.

        The values are texts; null is the text `None`.
        """
        rows: Counter[tuple[str, ...]] = Counter()
        names = (f"partition.{column}" for column in columns)
        for path, number, *values in self._files("path", "num_records", *names):
            rows[tuple(str(as_text(value)) for value in values)] += self.rows_of(path, number)
        if hidden := self._hidden_rows():
            for path, partition in self.partitions(hidden):
                rows[tuple(str(partition[column]) for column in columns)] -= hidden[path]
        return dict(rows)

    def rows_by_file(self) -> Iterator[tuple[str, int | None]]:
        """Return each data file with its number of rows, None where the log does not report it."""
        for path, rows in self._files("path", "num_records"):
            yield unquote(path), rows

    def rows_by_day(self, days: Collection[dt.date]) -> dict[dt.date, int | None]:
        """Return the number of rows of each given day, from file statistics.

        None for a day with a file whose row count the log does not report.
        """
        rows: dict[dt.date, int | None] = dict.fromkeys(days, 0)
        for day, number in self._files("partition.partition_date", "num_records"):
            if (so_far := rows.get(day)) is not None:
                rows[day] = None if number is None else so_far + number
        return rows

    def rows_up_to(self, batches: Mapping[dt.date, int], *, first_offset: int) -> Counter[dt.date]:
        """Return, for each day, a lower bound on its rows up to a batch id and from `first_offset` on.

        Counts the rows of files whose statistics show that they have no other rows.
        """
        rows: Counter[dt.date] = Counter()
        found = self._files("partition.partition_date", "num_records", "max.batch_id", "min.offset")
        for day, number, batch, offset in found:
            if (
                day in batches
                and None not in (number, batch, offset)
                and batch <= batches[day]
                and offset >= first_offset
            ):
                rows[day] += number
        return rows

    def partition_columns(self) -> tuple[str, ...]:
        """Return the names of the Delta partition columns."""
        return tuple(self._delta_table.metadata().partition_columns)

    def row_count(self) -> int:
        """Return the number of all rows, from file statistics."""
        rows = sum(self.rows_of(path, number) for path, number in self._files("path", "num_records"))
        return rows - sum(self._hidden_rows().values())

    def _hidden_rows(self) -> dict[str, int]:
        """Return the number of rows that deletion vectors hide, by data file."""
        if "deletionVectors" not in self.named_features:
            return {}
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pa.table(self._delta_table.deletion_vectors())
        files = (Path(url2pathname(urlsplit(uri).path)) for uri in found.column("filepath").to_pylist())
        kept = (rows.values for rows in found.column("selection_vector"))
        return {
            file.relative_to(self.folder).as_posix(): len(rows) - pc.call_function("sum", [rows]).as_py()
            for file, rows in zip(files, kept, strict=True)
        }

    def rows_of(self, path: str, told: int | None) -> int:
        """Return the rows of a data file, hidden ones included, from the log or else the file's footer."""
        return rows_in(self.folder / unquote(path)) if told is None else told

    def maximum(self, column: str) -> int | None:
        """Return the highest value of a BIGINT column, None for an empty table.

        Uses file statistics, and reads the column itself in files that the log has no statistics of.
        """
        found = self._files("path", "num_records", f"null_count.{column}", f"max.{column}")
        highest = (
            self._maximum_in(path, column) if _is_unknown(rows, nulls, high) else high
            for path, rows, nulls, high in found
        )
        return max((value for value in highest if value is not None), default=None)

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Return the rows as a dataset for pyarrow.

        Uses pyarrow's own file system. deltalake's is written in Python: a pyarrow thread that releases such
        a file while the interpreter ends kills the process (exit code 134, after all output).
        """
        import pyarrow.dataset as ds
        import pyarrow.fs

        files = pyarrow.fs.SubTreeFileSystem(str(self.folder), pyarrow.fs.LocalFileSystem())
        # Spark's own writer stores times of any year; nanoseconds cannot hold all of them.
        options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        return self._delta_table.to_pyarrow_dataset(filesystem=files, parquet_read_options=options)

    @property
    def folder(self) -> Path:
        """The table's folder."""
        return Path(url2pathname(urlsplit(self._delta_table.table_uri).path))

    def _maximum_in(self, path: str, column: str) -> int | None:
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with pq.ParquetFile(self.folder / unquote(path)) as file:
            values = file.read(columns=[column]).column(0)
        return pc.call_function("min_max", [values]).as_py()["max"]

    def range_of(self, column: str, files: Collection[str] | None = None) -> tuple[int, int] | None:
        """Return the lowest and highest value of a BIGINT column in the table or in some of its files.

        None where file statistics lack a bound, or there are no rows.
        """
        found = [
            (low, high)
            for path, rows, low, high in self._files("path", "num_records", f"min.{column}", f"max.{column}")
            if rows != 0 and (files is None or unquote(path) in files)
        ]
        if not found or any(low is None or high is None for low, high in found):
            return None
        return min(low for low, _ in found), max(high for _, high in found)

    def newest_batch_by_day(self) -> dict[dt.date, int]:
        """Return the batch id of each day's newest row, to compare with a reader's cursor.

        Rows without statistics in the log may be as new as this version, and count as that.
        """
        newest: dict[dt.date, int] = {}
        found = self._files("partition.partition_date", "num_records", "null_count.batch_id", "max.batch_id")
        for day, rows, nulls, high in found:
            batch = self.version if _is_unknown(rows, nulls, high) else high
            if day is not None and batch is not None:
                newest[day] = max(newest.get(day, -1), batch)
        return newest

    def _files(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Return some columns of the table's file statistics, one tuple per data file.

        A column that no file has is None.
        """
        statistics = self._delta_table.get_add_actions(flatten=True)
        names = list(statistics.schema.names)
        empty = [None] * statistics.num_rows
        found = (
            statistics.column(names.index(name)).to_pylist() if name in names else empty for name in columns
        )
        return zip(*found, strict=True)


def _is_unknown(rows: int | None, nulls: int | None, high: int | None) -> bool:
    """Return whether a file may have values of a column above its statistics.

    True if the statistics have no bound although the file may have values.
    """
    return high is None and rows != 0 and (nulls is None or nulls != rows)

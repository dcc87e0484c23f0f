"""Staged rows, one of each key, and which data files of their table have some of the keys.

A load whose keys are all new changes no stored row, so it is an append, and needs no MERGE.

Belongs here: finding the keys, and the files of an append. Does not belong here: staging (`plain_stage.py`),
rows of stored keys (`known_keys.py`), and the commit.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.compute.in_process import is_little_work
from etl_assets.compute.worker_tasks import attempt_name
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.delta.log.partition_values import PartitionText, value_of
from etl_assets.delta.read.data_files import new_data_file, pieces_of, rows_at_once
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.read.rows import KnownFiles, files_with
from etl_assets.delta.write.partition_files import write_by_partition
from etl_assets.delta.write.writing import storage_named
from etl_assets.pipelines.declared import DeclaredTables

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table
    from etl_assets.steps.newest_changes import NewestChanges

KEYS_AT_ONCE = 1_000_000
"""How many rows of a data file are read at a time if only their keys are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRows:
    """Staged rows, one of each key.

    Attributes:
        contract: The table's contract.
        files: The staged files.
        kept: For each file, the positions of the rows that are one of each key; None: all of them.
        meets: Data files of the table that have one of the keys.
        deletes: Keys and order of the keys whose row is deleted; None: no row is.
    """

    contract: TableContract
    files: Sequence[Path]
    kept: Sequence[np.ndarray] | None
    meets: tuple[str, ...] = ()
    deletes: pa.Table | None = None

    def write(self, folder: Path, known: KnownFiles) -> int:
        """Write the rows as data files into a new folder: `Write.files` of an append.

        Returns:
            Number of rows left out: none, because the table has none of their keys.
        """
        assert not known

        folder.mkdir(parents=True)
        schema = data_file_schema(self.contract)
        if self.contract.delta_partition:
            write_by_partition(self._pieces(schema), self.contract, folder)
            return 0
        for number, file in enumerate(self.files):
            target = folder / f"part-{attempt_name()}.zstd.parquet"
            if self.kept is None and _columns_of(file) == schema.names:
                shutil.move(file, target)
            elif self.kept is None or len(self.kept[number]):
                with new_data_file(target, schema) as writer:
                    for piece in self._pieces_of(number, schema):
                        writer.write_table(piece)
        return 0

    def _pieces(self, schema: pa.Schema) -> Iterator[pa.Table]:
        for number in range(len(self.files)):
            yield from self._pieces_of(number, schema)

    def _pieces_of(self, number: int, schema: pa.Schema) -> Iterator[pa.Table]:
        """Yield the rows of a file that are kept, some at a time."""
        import numpy as np

        file, first = self.files[number], 0
        kept = None if self.kept is None else self.kept[number]
        for piece in pieces_of(file, schema, at_once=rows_at_once(file)):
            if kept is None:
                yield piece
            else:
                begin, end = np.searchsorted(kept, (first, first + piece.num_rows))
                if begin < end:
                    yield piece.take(kept[begin:end] - first)
            first += piece.num_rows


def keyed_rows(
    tables: DeclaredTables,
    files: Sequence[Path],
    table: Table,
    base: Snapshot,
    within: Within | None,
    changes: NewestChanges | None = None,
) -> KeyedRows | None:
    """Return staged rows, one of each key; None where finding stored keys is left to Spark.

    Args:
        tables: The pipeline's tables.
        files: Parquet files with the columns that `PlainRows` has.
        table: The pipeline's table.
        base: The version of it that the load is planned on.
        within: Ranges that hold each row of the table with one of these keys, if known.
        changes: Which of the rows to take, and the deletes beside them; None: one row of each key.

    Raises:
        FilesGone, ReplicaCorrupt: a file of the table is gone or damaged.
    """
    contract, mode = tables.table, tables.spec.table.write_mode
    if not base.is_plain:
        return None
    # 1. Take one row of each key.
    if changes is not None:
        kept, keys = changes.upserts, changes.keys
    else:
        staged = read_columns(contract, files, [*dict.fromkeys((*contract.merge_key, *tables.order))])
        keys, kept = staged.select(list(contract.merge_key)), None
        if mode.by_key:
            kept = one_of_each_key(staged, contract.merge_key, tables.order, newest=mode.keeps_newest)
    # 2. Compare the keys with those of files that may have some.
    stored = list(files_with(base, None, within))
    numbers = dict(base.rows_by_file())
    rows = [numbers[file] for file in stored]
    if None in rows or not is_little_work(sum(each or 0 for each in rows)):
        return None
    with storage_named(table):
        meets = _with_one_of(contract, table.path, base, stored, keys)
    return KeyedRows(
        contract=contract,
        files=files,
        kept=None if kept is None else by_file(files, kept),
        meets=meets,
        deletes=None if changes is None else changes.deletes,
    )


def one_of_each_key(
    rows: pa.Table, keys: Sequence[str], order: Sequence[str], *, newest: bool
) -> np.ndarray | None:
    """Return the positions of one row of each key, ascending; None if each key has one row.

    Args:
        rows: The rows; keys are not null.
        keys: The columns of the key.
        order: Columns that say which row is newer, `_offset` last; a row with null is older than any.
        newest: Whether of rows that are otherwise alike the last one is wanted, by offset; else the first.
    """
    import numpy as np
    import pyarrow.compute as pc

    if _are_different(rows.select(keys)):
        return None
    by_order = [(name, "descending") for name in order[:-1]]
    by_offset = (order[-1], "descending" if newest else "ascending")
    options = pc.SortOptions([*((key, "ascending") for key in keys), *by_order, by_offset])
    places = pc.call_function("sort_indices", [rows], options)
    in_order = rows.select(keys).take(places)
    is_first = np.zeros(rows.num_rows, dtype=bool)
    is_first[0] = True
    for column in in_order.itercolumns():
        differs = pc.call_function("not_equal", [column.slice(1), column.slice(0, rows.num_rows - 1)])
        is_first[1:] |= differs.to_numpy()
    return np.sort(places.to_numpy()[is_first]).astype(np.int64)


def _are_different(keys: pa.Table) -> bool:
    """Return whether no key stands twice; none is null."""
    import numpy as np
    import pyarrow as pa

    if keys.num_columns == 1 and pa.types.is_integer(keys.schema.field(0).type):
        # Sorting is many times faster than hashing, which groups and `np.unique` do.
        in_order = np.sort(keys.column(0).to_numpy())
        return not (in_order[1:] == in_order[:-1]).any()
    return keys.group_by(keys.column_names).aggregate([]).num_rows == keys.num_rows


def _with_one_of(
    contract: TableContract, folder: Path, base: Snapshot, files: Sequence[str], keys: pa.Table
) -> tuple[str, ...]:
    """Return the data files that have a row with one of some keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not files:
        return ()
    wanted = keys.group_by(keys.column_names).aggregate([])
    schema = data_file_schema(contract)
    schema = pa.schema([schema.field(name) for name in keys.column_names])
    single = wanted.column(0).combine_chunks() if len(schema) == 1 else None
    partitions = dict(base.partitions(files)) if contract.delta_partition else {}

    def has_one(piece: pa.Table) -> bool:
        if single is not None:
            found = pc.call_function("is_in", [piece.column(0)], pc.SetLookupOptions(single))
            return bool(pc.call_function("any", [found]).as_py())
        there = piece.group_by(piece.column_names).aggregate([])
        both = pa.concat_tables([wanted.select(schema.names).cast(schema), there.select(schema.names)])
        return both.group_by(both.column_names).aggregate([]).num_rows < both.num_rows

    def pieces(file: str) -> Iterator[pa.Table]:
        return stored_pieces(folder / file, schema, contract, partitions.get(file, {}), at_once=KEYS_AT_ONCE)

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        found = threads.map(lambda file: any(map(has_one, pieces(file))), files)
        return tuple(file for file, has_some in zip(files, found, strict=True) if has_some)


def stored_pieces(
    path: Path, schema: pa.Schema, contract: TableContract, partition: PartitionText, *, at_once: int
) -> Iterator[pa.Table]:
    """Read some columns of a data file, those of its Delta partition too, some rows at a time."""
    import pyarrow as pa

    fixed = {name: value_of(text, contract.column(name).type) for name, text in partition.items()}
    # A file has no partition columns. One other column tells its number of rows.
    there = [field for field in schema if field.name not in fixed]
    there = there or [field for field in data_file_schema(contract) if field.name not in fixed][-1:]
    for piece in pieces_of(path, pa.schema(there), at_once=at_once):
        columns = [
            pa.repeat(pa.scalar(fixed[field.name], field.type), piece.num_rows)
            if field.name in fixed
            else piece.column(field.name)
            for field in schema
        ]
        yield pa.table(columns, schema=schema)


def read_columns(contract: TableContract, files: Sequence[Path], names: Sequence[str]) -> pa.Table:
    """Return some columns of staged files together."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.read_table(file, columns=list(names), partitioning=None) for file in files]
    types = data_file_schema(contract)
    empty = pa.schema([types.field(name) for name in names if name in types.names]).empty_table()
    return pa.concat_tables(tables) if tables else empty


def by_file(files: Sequence[Path], places: np.ndarray) -> list[np.ndarray]:
    """Return positions in all files together as positions in each."""
    import numpy as np
    import pyarrow.parquet as pq

    ends = np.cumsum([0, *(pq.read_metadata(file).num_rows for file in files)])
    return [
        places[np.searchsorted(places, first) : np.searchsorted(places, end)] - first
        for first, end in pairwise(ends)
    ]


def _columns_of(file: Path) -> list[str]:
    import pyarrow.parquet as pq

    return pq.read_schema(file).names

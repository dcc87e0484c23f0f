"""Staged rows of which the table has some keys: data files with older rows of these keys are written again.

This is Delta's MERGE by file for a load that this process has staged. Delta's own compiles and plans for
seconds, however few the rows are, and needs a JVM.

Belongs here: which stored rows are older, and the files. Does not belong here: finding the files that have
some of the keys (`new_keys.py`), and the commit (`delta/write/rewrite.py`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.compute.in_process import is_little_work
from etl_assets.compute.worker_tasks import attempt_name
from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.delta.log.partition_values import folder_of
from etl_assets.delta.read.data_files import new_data_file, pieces_of, rows_at_once, whole_file
from etl_assets.delta.write.changes import IS_DELETED
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.delta.write.rewrite import Rewritten, can_rewrite
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.steps.new_keys import KEYS_AT_ONCE, KeyedRows, by_file, read_columns, stored_pieces
from etl_assets.steps.row_order import Place, is_newer, is_older_than

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

_PLACE, _ROW = "_place", "_row"
_STAGED = "_staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """Rows to merge into the files of one version of a table.

    Attributes:
        table: The table.
        rows: The staged rows, one of each key.
        order: Columns that say which of two rows of a key is newer, the first one first; none: a stored row
            stays as it is.
        stored: The data files with some of the keys; all of them if there is a truncate.
        truncate: Stored rows before this place are removed; None: no row is for that reason.
    """

    table: Table
    rows: KeyedRows
    order: tuple[str, ...]
    stored: tuple[StoredFile, ...]
    truncate: Place | None = None

    def write(self, folder: Path) -> Rewritten:
        """Write the newer rows, and the stored ones beside them, as data files into a new folder.

        Raises:
            OSError: a data file is gone or damaged.
        """
        import numpy as np

        staged = self._staged()
        work = folder.with_name("kept")
        work.mkdir(parents=True)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            # 1. Find the stored rows that are older or deleted, and the staged ones that are not newer.
            compared = list(threads.map(partial(self._compare_file, staged), self.stored))
            # 2. Write the files again that have such rows, without these.
            files = zip(self.stored, compared, strict=True)
            writing = [threads.submit(self._write_kept, work, file, each) for file, each in files]
            # 3. Meanwhile, write the staged rows that no stored row keeps out.
            late = np.concatenate([np.empty(0, dtype=np.int64), *(each.late for each in compared)])
            places = staged.column(_PLACE).filter(call("invert", staged.column(IS_DELETED))).to_numpy()
            places = np.sort(places[~np.isin(places, late)])
            replace(self.rows, kept=by_file(self.rows.files, places)).write(folder, {})
            for each in writing:
                each.result()
        for file in work.rglob("*.parquet"):
            target = folder / file.relative_to(work)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.rename(target)
        updated = sum(each.updated for each in compared)
        return Rewritten(
            removed=tuple(file for file, each in zip(self.stored, compared, strict=True) if len(each.gone)),
            # As in a MERGE, whose source has the rows that a truncate removes.
            source_rows=staged.num_rows + sum(each.truncated for each in compared),
            inserted=len(places) - updated,
            updated=updated,
            deleted=sum(len(each.gone) - each.updated for each in compared),
        )

    def _staged(self) -> pa.Table:
        """Return keys, order, place and `_is_deleted` of the staged rows, one of each key.

        Deletes have no place.
        """
        import numpy as np
        import pyarrow as pa

        contract = self.rows.contract
        names = [*dict.fromkeys((*contract.merge_key, *self.order))]
        found = read_columns(contract, self.rows.files, names)
        found = found.append_column(_PLACE, pa.array(np.arange(found.num_rows, dtype=np.int64)))
        if self.rows.kept is not None:
            numbers = [read_columns(contract, [file], names[:1]).num_rows for file in self.rows.files]
            firsts = np.cumsum([0, *numbers])[:-1]
            kept = [first + places for first, places in zip(firsts, self.rows.kept, strict=True)]
            found = found.take(pa.array(np.concatenate([np.empty(0, dtype=np.int64), *kept])))
        found = found.append_column(IS_DELETED, pa.repeat(pa.scalar(False), found.num_rows))
        if self.rows.deletes is None:
            return found
        gone = self.rows.deletes.select(names)
        gone = gone.append_column(_PLACE, pa.nulls(gone.num_rows, pa.int64()))
        gone = gone.append_column(IS_DELETED, pa.repeat(pa.scalar(True), gone.num_rows))
        return pa.concat_tables([found, gone])

    def _compare_file(self, staged: pa.Table, file: StoredFile) -> _ComparedFile:
        """Compare a data file with the staged rows."""
        import numpy as np
        import pyarrow as pa

        contract, path = self.rows.contract, self.table.path / file.path
        schema = data_file_schema(contract)
        names = dict.fromkeys((*contract.merge_key, *self.order))
        compared = pa.schema([schema.field(name) for name in names])
        gone, late = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
        updated = truncated = first = 0
        for piece in stored_pieces(path, compared, contract, file.partition, at_once=KEYS_AT_ONCE):
            found = self._compare(staged, piece)
            gone.append(first + found.gone)
            late.append(found.late)
            updated += found.updated
            truncated += found.truncated
            first += piece.num_rows
        return _ComparedFile(
            late=np.concatenate(late),
            gone=np.sort(np.concatenate(gone)),
            rows=first,
            updated=updated,
            truncated=truncated,
        )

    def _write_kept(self, folder: Path, file: StoredFile, compared: _ComparedFile) -> None:
        """Write a data file again without the rows that are gone; not if none is, or all are."""
        if not 0 < len(compared.gone) < compared.rows:
            return
        contract = self.rows.contract
        target = folder / folder_of(file.partition, contract.delta_partition)
        target.mkdir(parents=True, exist_ok=True)
        schema = data_file_schema(contract, without=contract.delta_partition)
        name = f"part-{attempt_name()}.zstd.parquet"
        _write_without(self.table.path / file.path, target / name, schema, compared.gone)

    def _compare(self, staged: pa.Table, piece: pa.Table) -> _Compared:
        """Compare rows of a data file with the staged rows."""
        import numpy as np
        import pyarrow as pa

        contract = self.rows.contract
        keys = list(contract.merge_key)
        rows = piece.append_column(_ROW, pa.array(np.arange(piece.num_rows)))
        if contract.nullable_keys:
            rows, staged = _without_nulls(rows, keys), _without_nulls(staged, keys)
        both = rows.join(staged, keys, join_type="inner", right_suffix=_STAGED)
        order = [name for name in self.order if name not in keys]
        mine, theirs = [both.column(name + _STAGED) for name in order], [both.column(name) for name in order]
        is_deleted = both.column(IS_DELETED)
        replaced = pa.repeat(pa.scalar(False), both.num_rows)
        if order:
            # A delete removes a row of its own place too.
            not_older, newer = is_newer(mine, theirs, or_same=True), is_newer(mine, theirs)
            replaced = call("if_else", is_deleted, not_older, newer)
        gone, truncated = both.column(_ROW).filter(replaced).to_numpy(), np.empty(0, dtype=np.int64)
        late = call("and_not", call("invert", replaced), is_deleted)
        is_update = call("and_not", replaced, is_deleted)
        if self.truncate is not None:
            older = rows.column(_ROW).filter(is_older_than(rows, self.truncate)).to_numpy()
            truncated = older[~np.isin(older, gone)]
        return _Compared(
            gone=np.concatenate([gone, truncated]),
            late=both.column(_PLACE).filter(late).to_numpy(),
            updated=call("sum", is_update).as_py() or 0,
            truncated=len(truncated),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Compared:
    """What some rows of a data file are to the staged ones.

    Attributes:
        gone: Positions of rows that are replaced or deleted.
        late: Places of staged rows that are not newer.
        updated: How many of the rows are replaced.
        truncated: How many are before the truncate, and no change decides on them.
    """

    gone: np.ndarray
    late: np.ndarray
    updated: int
    truncated: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _ComparedFile:
    """What a data file is to the staged rows: as `_Compared`, with its number of rows."""

    late: np.ndarray
    gone: np.ndarray
    rows: int
    updated: int
    truncated: int


def known_keys(
    tables: DeclaredTables, rows: KeyedRows, table: Table, base: Snapshot, truncate: Place | None = None
) -> KnownKeys | None:
    """Return the rows to merge by this process; None where Delta does it, because of features or much work.

    Args:
        tables: The pipeline's tables.
        rows: The staged rows; the table has some of their keys.
        table: The pipeline's table.
        base: The version of it that the load is planned on.
        truncate: Stored rows before this place are removed, whatever their keys; None: no row is for that
            reason.
    """
    mode = tables.spec.table.write_mode
    if not mode.by_key or not can_rewrite(table, base):
        return None
    stored = tuple(content_of(base).values())
    if truncate is None:
        by_path = {file.path: file for file in stored}
        stored = tuple(by_path[name] for name in rows.meets)
    if not all(file.tells_rows for file in stored) or not is_little_work(sum(file.rows for file in stored)):
        return None
    order = tables.order if mode.keeps_newest else ()
    return KnownKeys(table=table, rows=rows, order=order, stored=stored, truncate=truncate)


def _without_nulls(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return rows whose keys can be joined: null equals null.

    Only a truncate has nulls there, and it differs from all deletes by a key that is not null.
    """
    import pyarrow as pa

    for name in keys:
        type_ = rows.schema.field(name).type
        zero = "" if type_ == pa.string() else False if type_ == pa.bool_() else 0
        if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
            filled = pa.array([0], pa.int32() if pa.types.is_date32(type_) else pa.int64()).cast(type_)[0]
        else:
            filled = pa.array([zero]).cast(type_)[0]
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, call("coalesce", rows.column(name), filled))
    return rows


def _write_without(path: Path, target: Path, schema: pa.Schema, gone: np.ndarray) -> None:
    """Write a data file again without some of its rows."""
    import numpy as np
    import pyarrow as pa

    first = 0
    with whole_file(path):
        at_once = rows_at_once(path)
    with new_data_file(target, schema) as writer:
        for piece in pieces_of(path, schema, at_once=at_once):
            begin, end = np.searchsorted(gone, (first, first + piece.num_rows))
            stays = np.ones(piece.num_rows, dtype=bool)
            stays[gone[begin:end] - first] = False
            if stays.any():
                writer.write_table(piece.filter(pa.array(stays)))
            first += piece.num_rows

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
from typing import TYPE_CHECKING, Any

from etl_assets.compute.in_process import is_little_work
from etl_assets.compute.worker_tasks import attempt_name
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.delta.read.data_files import new_data_file, pieces_of, rows_at_once, whole_file
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.delta.write.rewrite import Rewritten, can_rewrite
from etl_assets.pipelines.declared import DeclaredTables
from etl_assets.steps.new_keys import KeyedRows, by_file, read_columns

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table

_PLACE, _ROW = "_place", "_row"
_KEYS_AT_ONCE = 1_000_000
_STAGED = "_staged"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKeys:
    """Rows to merge into the files of one version of a table.

    Attributes:
        table: The table.
        rows: The staged rows, one of each key.
        order: Columns that say which of two rows of a key is newer, the first one first; none: a stored row
            stays as it is.
        stored: The data files with some of the keys.
    """

    table: Table
    rows: KeyedRows
    order: tuple[str, ...]
    stored: tuple[StoredFile, ...]

    def write(self, folder: Path) -> Rewritten:
        """Write the newer rows, and the stored ones beside them, as data files into a new folder.

        Raises:
            OSError: a data file is gone or damaged.
        """
        import numpy as np

        staged = self._staged()
        # 1. Write the files again in which a row is older, without such rows.
        work = folder.with_name("kept")
        work.mkdir(parents=True)
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            merged = list(threads.map(partial(self._merge, staged, work), self.stored))
        # 2. Write the staged rows that no stored row keeps out.
        late = np.concatenate([each.late for each in merged])
        places = np.setdiff1d(staged.column(_PLACE).to_numpy(), late)
        replace(self.rows, kept=by_file(self.rows.files, places)).write(folder, {})
        for file in work.iterdir():
            file.rename(folder / file.name)
        updated = sum(each.older for each in merged)
        return Rewritten(
            removed=tuple(file for file, each in zip(self.stored, merged, strict=True) if each.older),
            source_rows=staged.num_rows,
            inserted=len(places) - updated,
            updated=updated,
        )

    def _staged(self) -> pa.Table:
        """Return keys, order and place of the staged rows, one of each key."""
        import numpy as np
        import pyarrow as pa

        contract = self.rows.contract
        names = [*dict.fromkeys((*contract.merge_key, *self.order))]
        found = read_columns(contract, self.rows.files, names)
        found = found.append_column(_PLACE, pa.array(np.arange(found.num_rows, dtype=np.int64)))
        if self.rows.kept is None:
            return found
        numbers = [read_columns(contract, [file], names[:1]).num_rows for file in self.rows.files]
        firsts = np.cumsum([0, *numbers[:-1]])
        kept = [first + places for first, places in zip(firsts, self.rows.kept, strict=True)]
        return found.take(pa.array(np.concatenate(kept)))

    def _merge(self, staged: pa.Table, folder: Path, file: StoredFile) -> _Merged:
        """Compare a data file with the staged rows, and write it without its older rows if it has some."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        path = self.table.path / file.path
        schema = data_file_schema(self.rows.contract)
        keys = list(self.rows.contract.merge_key)
        compared = pa.schema([schema.field(name) for name in [*dict.fromkeys((*keys, *self.order))]])
        late, older, first = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)], 0
        for piece in pieces_of(path, compared, at_once=_KEYS_AT_ONCE):
            rows = piece.append_column(_ROW, pa.array(np.arange(first, first + piece.num_rows)))
            both = rows.join(staged, keys, join_type="inner", right_suffix=_STAGED)
            is_newer = _is_newer(both, self.order)
            older.append(both.column(_ROW).filter(is_newer).to_numpy())
            late.append(both.column(_PLACE).filter(pc.call_function("invert", [is_newer])).to_numpy())
            first += piece.num_rows
        gone = np.sort(np.concatenate(older))
        if len(gone):
            _write_without(path, folder / f"part-{attempt_name()}.zstd.parquet", schema, gone)
        return _Merged(late=np.concatenate(late), older=len(gone))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Merged:
    """What a comparison found: the places of staged rows that are not newer, and how many stored rows are
    older.
    """

    late: np.ndarray
    older: int


def known_keys(tables: DeclaredTables, rows: KeyedRows, table: Table, base: Snapshot) -> KnownKeys | None:
    """Return the rows to merge by this process; None where Delta does it, because of features or much work.

    Args:
        tables: The pipeline's tables.
        rows: The staged rows; the table has some of their keys.
        table: The pipeline's table.
        base: The version of it that the load is planned on.
    """
    mode = tables.spec.table.write_mode
    if not mode.by_key or not can_rewrite(table, base):
        return None
    found = content_of(base)
    by_path = {file.path: file for file in found.values()}
    stored = tuple(by_path[name] for name in rows.meets)
    if not all(file.tells_rows for file in stored) or not is_little_work(sum(file.rows for file in stored)):
        return None
    return KnownKeys(table=table, rows=rows, order=tables.order if mode.keeps_newest else (), stored=stored)


def _is_newer(both: pa.Table, order: Sequence[str]) -> pa.Array:
    """Return whether the staged row of a pair is newer: of equal places in the first column the next decides,
    and null is before everything.
    """
    import pyarrow as pa

    found: Any = pa.repeat(pa.scalar(False), both.num_rows)
    for name in reversed(order):
        mine, theirs = both.column(name + _STAGED), both.column(name)
        is_first = _call("and", _call("is_null", theirs), _call("is_valid", mine))
        is_higher = _call("or", is_first, _call("coalesce", _call("greater", mine, theirs), False))
        are_null = _call("and", _call("is_null", theirs), _call("is_null", mine))
        is_same = _call("or", are_null, _call("coalesce", _call("equal", mine, theirs), False))
        found = _call("or", is_higher, _call("and", is_same, found))
    return found


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


def _call(function: str, *values: Any) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.call_function(
        function, [pa.scalar(each) if isinstance(each, bool) else each for each in values]
    )

"""The data files of order_status_view that new events change, and the files that replace them.

Only files that have an order of the events are rewritten. The unchanged rows of a large file move to a file
of their own; those of small files are written together with the new rows. So orders that still change gather
in the newest file, and the others are not written again (docs/decisions/0033-a-fold-without-merge.md).

A fold of many rows is done in parts, each with all rows of its orders: by this process, or with Spark's
shuffle for very many rows. Does not belong here: how the files are read
and searched for orders (`order_files.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from itertools import pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.compute.shuffle import Piece, figures_by_part, packed, unpacked
from etl_assets.compute.worker_tasks import attempt_name, figures_of
from etl_assets.delta.read.data_files import new_data_file
from etl_assets.delta.read.key_index import hashes_of
from etl_assets.orders.steps.order_files import (
    KEYS_AT_ONCE,
    ORDER_ID,
    ROWS_PER_FILE,
    EventFile,
    Orders,
    ViewFile,
)
from etl_assets.orders.transforms.order_status import (
    KEY,
    event_schema,
    fold_orders,
    view_schema,
)

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

ROWS_PER_PART = 250_000
"""About how many rows are folded at once, and written as one file."""
MAX_ROWS_IN_PROCESS = 2_000_000
"""Most rows that this process reads by itself.

It rewrites them in some seconds, and looks for orders in less than one.
"""
MAX_EVENTS_LOOKED_FOR = 5_000_000
"""With more events, their orders are not looked up: any file may have one."""
_READERS = 2
"""Files that are searched at a time in this process; Arrow does so without holding Python's lock."""
_EVENTS, _STORED, _WRITTEN = "events", "stored", "written"
"""Kinds of pieces: rows of events, rows of the view, and the names of files that are written already."""
_REPEATING = ("tenant_id", "order_status", "currency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of orders: those of the events, and of these the ones new to the view or changed in it."""

    read: int = 0
    inserted: int = 0
    updated: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            read=self.read + other.read,
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """Plan of a fold.

    Attributes:
        orders: The events' orders; None if any file may have one.
        keys: File with the keys of these orders, for workers.
        events: Most events that there can be.
        touched: The files of the view that have one of the orders.
        moved: Rows of these files that are folded, or written together with folded rows.
    """

    orders: Orders | None
    keys: str | None
    events: int
    touched: tuple[ViewFile, ...]
    moved: int

    @property
    def rows(self) -> int:
        """Number of rows to read."""
        return self.events + sum(file.rows for file in self.touched)

    @property
    def parts(self) -> int:
        """Number of parts to fold."""
        return max(1, ceil((self.events + self.moved) / ROWS_PER_PART))


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFiles:
    """A fold of new events into the view.

    Attributes:
        session: Returns the Spark session, for folds that need workers.
        events: Files with the events.
        events_at_most: Rows in these files, new or not.
        view: Files of the view.
        changed_only: Write only the rows that are new to the view or changed in it.
    """

    session: Callable[[], SparkSession]
    events: Sequence[EventFile]
    events_at_most: int
    view: Sequence[ViewFile]
    changed_only: bool = False

    def write(self, folder: Path) -> tuple[Counts, tuple[ViewFile, ...]]:
        """Write the view's new data files into a new folder. Temporary files stay beside the folder.

        Returns:
            The counts of orders, and the files of the view that those in the folder replace. If nothing
            changes, there are neither new files nor replaced ones.
        """
        folder.mkdir(parents=True)
        plan = self._plan(folder)
        if plan.parts == 1 and plan.rows <= MAX_ROWS_IN_PROCESS:
            counts = self._fold_at_once(plan, folder)
        else:
            counts = self._fold_parts(plan, folder)
        _orders_in.cache_clear()  # a long-running process would keep the cached orders
        if counts.inserted or counts.updated:
            return counts, plan.touched
        for file in folder.iterdir():
            file.unlink()
        return counts, ()

    def _plan(self, folder: Path) -> _Plan:
        found = self._orders() if self.view else None
        if found is None:
            rows = sum(file.rows for file in self.view)
            return _Plan(
                orders=None, keys=None, events=self.events_at_most, touched=tuple(self.view), moved=rows
            )
        orders, events = found
        if not events:
            return _Plan(orders=orders, keys=None, events=0, touched=(), moved=0)
        view = [file for file in self.view if file.may_have(orders)]
        keys = str(_put(orders.keys, folder.with_name("orders.arrow")))
        counted = self._count(view, orders, keys)
        touched = tuple(file for file in view if counted[file.path])
        moved = sum(counted[file.path] if file.is_large else file.rows for file in touched)
        return _Plan(orders=orders, keys=keys, events=events, touched=touched, moved=moved)

    def _orders(self) -> tuple[Orders, int] | None:
        """Return the events' orders and the number of events; None if these are too many to look up."""
        import pyarrow as pa

        events, found = 0, [event_schema().empty_table().select(KEY)]
        for file in self.events:
            for rows in file.read(KEY, at_once=KEYS_AT_ONCE):
                if (events := events + rows.num_rows) > MAX_EVENTS_LOOKED_FOR:
                    return None
                found.append(_distinct(rows))
        return Orders(_distinct(pa.concat_tables(found))), events

    def _count(self, view: Sequence[ViewFile], orders: Orders, keys: str) -> dict[str, int]:
        """Return how many of the orders each of some files has, by path."""
        if sum(file.rows for file in view) <= MAX_ROWS_IN_PROCESS:
            with ThreadPoolExecutor(_READERS) as readers:
                counts = readers.map(lambda file: file.count(orders), view)
                return dict(zip((file.path for file in view), counts, strict=True))

        def look(file: ViewFile) -> Iterator[pa.RecordBatch]:
            yield _one_row(path=file.path, orders=file.count(_orders_in(keys)))

        found = figures_of(self.session, view, look, "path STRING, orders BIGINT")
        return {row["path"]: row["orders"] for row in found}

    def _fold_at_once(self, plan: _Plan, folder: Path) -> Counts:
        events = [rows for file in self.events for rows in file.read()]
        maker = _Maker(folder, changed_only=self.changed_only)
        stored = [rows for file in plan.touched for rows in maker.moved(file, plan.orders)]
        return maker.fold(events, stored)

    def _fold_parts(self, plan: _Plan, folder: Path) -> Counts:
        parts, keys, changed_only = plan.parts, plan.keys, self.changed_only
        attempts = folder.with_name("attempts")
        attempts.mkdir()

        # 1. Send each row to the part of its order. The unchanged rows of large files are written here.
        def send(source: EventFile | ViewFile) -> Iterator[Piece]:
            if isinstance(source, EventFile):
                yield from _dealt(_EVENTS, source.read(), parts)
                return
            maker = _Maker(attempts, changed_only=changed_only)
            rows = maker.moved(source, None if keys is None else _orders_in(keys))
            yield from _dealt(_STORED, rows, parts)
            for name in maker.written:
                yield Piece(part=0, kind=_WRITTEN, content=name.encode())

        # 2. Fold each part, which has all rows of its orders.
        def fold(pieces: Sequence[Piece]) -> Iterator[pa.RecordBatch]:
            maker = _Maker(attempts, changed_only=changed_only)
            counts = maker.fold(unpacked(pieces, _EVENTS), unpacked(pieces, _STORED))
            kept = [piece.content.decode() for piece in pieces if piece.kind == _WRITTEN]
            yield _one_row(**asdict(counts), written=[*kept, *maker.written])

        folded = figures_by_part(
            self.session,
            (*self.events, *plan.touched),
            send,
            fold,
            parts=parts,
            schema="read BIGINT, inserted BIGINT, updated BIGINT, written ARRAY<STRING>",
            is_little=plan.rows <= MAX_ROWS_IN_PROCESS,
        )
        # 3. Move the files of the attempts that count into the folder.
        for row in folded:
            for name in row["written"]:
                (attempts / name).rename(folder / name)
        return sum(
            (Counts(**{each.name: row[each.name] for each in fields(Counts)}) for row in folded), Counts()
        )


class _Maker:
    """Writes files of the view into a folder, and collects their names in `written`."""

    def __init__(self, folder: Path, *, changed_only: bool) -> None:
        self.written: list[str] = []
        self._folder = folder
        self._changed_only = changed_only

    def moved(self, file: ViewFile, orders: Orders | None) -> Iterator[pa.Table]:
        """Yield the rows of a file to be written together with new events.

        These are all its rows, or for a large file those of some orders.

        The other rows of a large file are written to a file of their own.
        """
        import pyarrow as pa

        if orders is None or not file.is_large:
            yield from file.read()
            return
        with nullcontext() if self._changed_only else self._new_file() as writer:
            for rows in file.read():
                is_moved = orders.among(rows)
                yield rows.filter(pa.array(is_moved))
                # A row group without rows would cost the file its statistics. A file without any rows does
                # not count.
                if writer is not None and not is_moved.all():
                    writer.write_table(rows.filter(pa.array(~is_moved)))

    def fold(self, events: Sequence[pa.Table], stored: Sequence[pa.Table]) -> Counts:
        """Fold events with the view's rows of their orders, and write the result.

        Rows of other orders in `stored` are written together with it.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        news = pa.concat_tables([event_schema().empty_table(), *events])
        rows = pa.concat_tables([view_schema().empty_table(), *stored])
        has_news = pc.field(ORDER_ID).isin(news.column(ORDER_ID).unique())
        folded = fold_orders(news, rows.filter(has_news))
        if self._changed_only:
            rows = folded.rows.filter(pa.array(folded.is_changed))
        else:
            rows = pa.concat_tables([rows.filter(~has_news), folded.rows])
        if rows.num_rows:
            with self._new_file() as writer:
                writer.write_table(rows, ROWS_PER_FILE)
        return Counts(read=folded.read, inserted=folded.inserted, updated=folded.updated)

    def _new_file(self) -> pq.ParquetWriter:
        name = f"part-{attempt_name()}.zstd.parquet"
        self.written.append(name)
        return new_data_file(self._folder / name, view_schema(), repeating=_REPEATING)


def _dealt(kind: str, tables: Iterable[pa.Table], parts: int) -> Iterator[Piece]:
    """Yield rows in pieces, each with rows of one part."""
    import pyarrow as pa

    for rows in tables:
        if not rows.num_rows:
            continue
        part = _parts_of(rows, parts)
        (batch,) = rows.take(pa.array(np.argsort(part, kind="stable"))).combine_chunks().to_batches()
        ends = np.cumsum(np.bincount(part, minlength=parts)).tolist()
        for number, (begin, end) in enumerate(pairwise((0, *ends))):
            if begin < end:
                yield Piece(part=number, kind=kind, content=packed(batch.slice(begin, end - begin)))


def _parts_of(rows: pa.Table, parts: int) -> np.ndarray:
    """Return the part of each row, by its order."""
    import pyarrow as pa

    orders = rows.column(ORDER_ID).combine_chunks().dictionary_encode()
    hashes = hashes_of(pa.chunked_array([orders.dictionary]))
    return (hashes % np.uint64(parts)).astype(np.int64)[orders.indices.to_numpy()]


def _put(rows: pa.Table, file: Path) -> Path:
    """Write rows to a file that workers read."""
    import pyarrow as pa

    with pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    return file


@lru_cache(maxsize=1)
def _orders_in(file: str) -> Orders:
    """Return the orders in a file. Cached, so that a worker reads the file once for each fold."""
    import pyarrow as pa

    with pa.memory_map(file) as source, pa.ipc.open_file(source) as reader:
        return Orders(reader.read_all())


def _distinct(keys: pa.Table) -> pa.Table:
    return keys.group_by(list(KEY)).aggregate([])


def _one_row(**values: Any) -> pa.RecordBatch:
    """Return a batch with one row of figures. List values are lists of names."""
    import pyarrow as pa

    def array(value: Any) -> pa.Array:
        return pa.array([value], pa.list_(pa.string()) if isinstance(value, list) else None)

    return pa.RecordBatch.from_arrays([array(value) for value in values.values()], names=list(values))

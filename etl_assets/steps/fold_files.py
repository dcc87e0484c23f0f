"""The data files of order_status_view that new events change, and those that go in for them.

Only files with an order of the events are touched. Of a large one the other rows stay in a file of their own; those of
small ones go together with what is new. So orders that still change gather in the newest file, and the rest is not
written again.

Many rows are folded in parts, of which each has all rows of its orders: one round puts rows apart, the next one folds the
parts. This process does it, and Spark's workers where even that would take long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from itertools import chain, pairwise
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from etl_assets.delta.content import with_utc_times
from etl_assets.delta.key_index import hashes_of
from etl_assets.steps.worker_tasks import attempt_name, figures_here, figures_of
from etl_assets.transforms.order_status import EVENT_COLUMNS, KEY, event_schema, fold_orders, view_schema

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyspark.sql import SparkSession

ROWS_A_FILE = 100_000
"""Files of the view with so many rows are large."""
ROWS_A_PART = 250_000
"""About so many rows are folded at once, and written as one file."""
MOST_ROWS_HERE = 2_000_000
"""So many rows are moved in this process, in some seconds; so many of the view are searched in less than one."""
MOST_EVENTS_LOOKED_FOR = 5_000_000
"""Orders of more events are not looked for: any file may have one."""
_REPEATING = ("tenant_id", "order_status", "currency")
_ORDER_ID = KEY[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """A Parquet file with rows of warehouse_rows, of which those above a batch id are new; None: all are."""

    path: str
    after: int | None = None

    def read(self, columns: Sequence[str] = EVENT_COLUMNS) -> Iterator[pa.Table]:
        """Some columns of the new ones, some rows at a time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = pa.schema([event_schema().field(name) for name in columns])
        names = list(columns) if self.after is None else [*columns, "batch_id"]
        for rows in _pieces(self.path, names):
            new = rows if self.after is None else rows.filter(pc.field("batch_id") > self.after)
            yield with_utc_times(new.select(columns)).cast(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFile:
    """A Parquet file with rows of the view."""

    path: str
    rows: int

    @property
    def is_large(self) -> bool:
        """Whether the rows that stay as they are get a file of their own."""
        return self.rows >= ROWS_A_FILE

    def has_any(self, orders: pa.Array) -> bool:
        """Whether it has any of some orders, by their ids alone: two tenants may have the same."""
        import pyarrow.compute as pc

        bounds = pc.call_function("min_max", [orders]).as_py()
        return any(
            rows.filter(pc.field(_ORDER_ID).isin(orders)).num_rows
            for rows in _pieces(self.path, [_ORDER_ID], within=(bounds["min"], bounds["max"]))
        )

    def read(self) -> Iterator[pa.Table]:
        """Its rows with the view's columns, some at a time."""
        schema = view_schema()
        for rows in _pieces(self.path, schema.names):
            yield with_utc_times(rows.select(schema.names)).cast(schema)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of some orders: of those the events are of, how many the view did not have, or had otherwise."""

    orders: int = 0
    inserted: int = 0
    updated: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            orders=self.orders + other.orders,
            inserted=self.inserted + other.inserted,
            updated=self.updated + other.updated,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldFiles:
    """A fold of new events into the view.

    Attributes:
        session: Gives the Spark session, where workers are wanted.
        events: Files with the events.
        events_at_most: How many events those are at most.
        view: Files of the view that may have orders of theirs.
        changed_only: Write the rows that the view does not have so, and no others.
    """

    session: Callable[[], SparkSession]
    events: Sequence[EventFile]
    events_at_most: int
    view: Sequence[ViewFile]
    changed_only: bool = False

    def write(self, folder: Path) -> tuple[Counts, tuple[ViewFile, ...]]:
        """Write the view's new data files into a new folder. What else is needed meanwhile is left beside it.

        Returns:
            What became of the orders, and the files of the view that those in the folder stand for; none of either where
            nothing changes.
        """
        folder.mkdir(parents=True)
        orders = self._orders()
        touched = self._touched(orders, folder)
        if (parts := ceil(self._moved_at_most(orders, touched) / ROWS_A_PART)) > 1:
            counts = self._fold_parts(orders, touched, folder, parts)
        else:
            counts = self._fold_at_once(orders, touched, folder)
        if counts.inserted or counts.updated:
            return counts, touched
        for file in folder.iterdir():
            file.unlink()
        return counts, ()

    def _orders(self) -> pa.Array | None:
        """The ids of the events' orders; None where nothing is looked for, or by too many."""
        import pyarrow as pa

        if not self.view or self.events_at_most > MOST_EVENTS_LOOKED_FOR:
            return None
        found = [rows.column(0).unique() for file in self.events for rows in file.read([_ORDER_ID])]
        return pa.chunked_array(found, pa.string()).unique()

    def _touched(self, orders: pa.Array | None, folder: Path) -> tuple[ViewFile, ...]:
        """The files of the view that have one of the orders."""
        if orders is None:
            return tuple(self.view)
        if not len(orders):
            return ()

        def look(file: ViewFile) -> Iterator[pa.RecordBatch]:
            yield _one_row(path=file.path, has_any=file.has_any(_orders_in(ids)))

        ids = _put_orders(orders, folder)
        rows = sum(file.rows for file in self.view)
        found = self._figures(rows, self.view, look, "path STRING, has_any BOOLEAN")
        paths = {row["path"] for row in found if row["has_any"]}
        return tuple(file for file in self.view if file.path in paths)

    def _moved_at_most(self, orders: pa.Array | None, touched: Sequence[ViewFile]) -> int:
        """How many rows are folded, or written with those that are."""
        if orders is None:
            return self.events_at_most + sum(file.rows for file in touched)
        of_large = min(len(orders), sum(file.rows for file in touched if file.is_large))
        return self.events_at_most + of_large + sum(file.rows for file in touched if not file.is_large)

    def _fold_at_once(self, orders: pa.Array | None, touched: Sequence[ViewFile], folder: Path) -> Counts:
        events = [rows for file in self.events for rows in file.read()]
        maker = _Maker(folder, changed_only=self.changed_only)
        stored = [rows for file in touched for rows in maker.moved(file, orders)]
        return maker.fold(events, stored)

    def _fold_parts(
        self, orders: pa.Array | None, touched: Sequence[ViewFile], folder: Path, parts: int
    ) -> Counts:
        rows = self.events_at_most + sum(file.rows for file in touched)
        ids = None if orders is None else _put_orders(orders, folder)
        changed_only = self.changed_only
        attempts, apart = folder.with_name("attempts"), folder.with_name("apart")
        for each in (attempts, apart):
            each.mkdir()

        def put_apart(source: EventFile | ViewFile) -> Iterator[pa.RecordBatch]:
            maker = _Maker(attempts, changed_only=changed_only)
            is_event = isinstance(source, EventFile)
            wanted = None if ids is None else _orders_in(ids)
            put = _put_apart(source.read() if is_event else maker.moved(source, wanted), apart, parts)
            yield _one_row(is_event=is_event, apart=put, written=maker.written)

        def fold(part: int) -> Iterator[pa.RecordBatch]:
            maker = _Maker(attempts, changed_only=changed_only)
            events, stored = (
                [rows for name in names[is_event] for rows in _of_part(apart / name, part, parts)]
                for is_event in (True, False)
            )
            counts = maker.fold(events, stored)
            yield _one_row(**asdict(counts), written=maker.written)

        moved = self._figures(
            rows,
            (*self.events, *touched),
            put_apart,
            "is_event BOOLEAN, apart ARRAY<STRING>, written ARRAY<STRING>",
        )
        names = {
            is_event: [name for row in moved if row["is_event"] is is_event for name in row["apart"]]
            for is_event in (True, False)
        }
        folded = self._figures(
            rows,
            range(parts),
            fold,
            "orders BIGINT, inserted BIGINT, updated BIGINT, written ARRAY<STRING>",
        )
        for row in (*moved, *folded):
            for name in row["written"]:
                (attempts / name).rename(folder / name)
        return sum(
            (Counts(**{each.name: row[each.name] for each in fields(Counts)}) for row in folded), Counts()
        )

    def _figures(
        self, rows: int, tasks: Sequence[Any], work: Callable[[Any], Iterable[pa.RecordBatch]], schema: str
    ) -> list[dict[str, Any]]:
        """What `work` says of each task, for tasks on so many rows."""
        if rows <= MOST_ROWS_HERE:
            return figures_here(tasks, work)
        return figures_of(self.session(), tasks, work, schema)


class _Maker:
    """What makes files of the view, in a folder, and notes their names as `written`."""

    def __init__(self, folder: Path, *, changed_only: bool) -> None:
        self.written: list[str] = []
        self._folder = folder
        self._changed_only = changed_only

    def moved(self, file: ViewFile, orders: pa.Array | None) -> Iterator[pa.Table]:
        """The rows of a file that are to go together with new events, of some orders or of any.

        The other rows of a large one are written to a file of their own.
        """
        import pyarrow.compute as pc

        if orders is None or not file.is_large:
            yield from file.read()
            return
        is_moved = pc.field(_ORDER_ID).isin(orders)
        with self._new_file() as writer:
            for rows in file.read():
                yield rows.filter(is_moved)
                rest = rows.filter(~is_moved)
                # A row group without rows would cost the file its statistics; without any the file does not count.
                if rest.num_rows and not self._changed_only:
                    writer.write_table(rest)

    def fold(self, events: Sequence[pa.Table], stored: Sequence[pa.Table]) -> Counts:
        """Fold events with the rows that the view has of their orders, and write what comes of it with the other rows."""
        import pyarrow as pa
        import pyarrow.compute as pc

        rows = pa.concat_tables([view_schema().empty_table(), *stored])
        counts = Counts()
        if events:
            new = pa.concat_tables(events)
            has_news = pc.field(_ORDER_ID).isin(new.column(_ORDER_ID).unique())
            folded = fold_orders(new, rows.filter(has_news))
            others = rows.filter(~has_news)
            rows = pa.concat_tables([others, folded.rows])
            counts = Counts(orders=folded.orders, inserted=folded.inserted, updated=folded.updated)
            if self._changed_only:
                rows = folded.rows.filter(pa.array(folded.is_changed))
        if rows.num_rows:
            with self._new_file() as writer:
                writer.write_table(rows, ROWS_A_FILE)
        return counts

    def _new_file(self) -> pq.ParquetWriter:
        import pyarrow.parquet as pq

        name = f"part-{attempt_name()}.zstd.parquet"
        self.written.append(name)
        return pq.ParquetWriter(
            self._folder / name,
            view_schema(),
            compression="zstd",
            compression_level=1,
            use_dictionary=list(_REPEATING),
            store_schema=False,
        )


def _pieces(path: str, columns: Sequence[str], within: tuple[str, str] | None = None) -> Iterator[pa.Table]:
    """Some columns of a Parquet file, as many rows at a time as a worker may hold.

    Args:
        path: The file.
        columns: The columns.
        within: Row groups are left out whose first column has nothing between these, as their statistics tell.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups = [
            number
            for number in range(file.num_row_groups)
            if within is None or _may_have(file, number, columns[0], within)
        ]
        for rows in file.iter_batches(row_groups=groups, columns=list(columns), batch_size=ROWS_A_FILE):
            yield pa.Table.from_batches([rows]).select(columns)


def _may_have(file: pq.ParquetFile, group: int, column: str, within: tuple[str, str]) -> bool:
    names = (file.metadata.schema.column(number).path for number in range(file.metadata.num_columns))
    known = file.metadata.row_group(group).column(list(names).index(column)).statistics
    return known is None or not known.has_min_max or (known.min <= within[1] and within[0] <= known.max)


def _put_apart(pieces: Iterable[pa.Table], folder: Path, parts: int) -> list[str]:
    """Write rows into a file of this attempt's own, of each piece one batch a part, in turn; none without rows."""
    import pyarrow as pa

    name = f"{attempt_name()}.arrow"
    filled = (rows for rows in pieces if rows.num_rows)
    if (first := next(filled, None)) is None:
        return []
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(folder / name, first.schema, options=options) as writer:
        for rows in chain([first], filled):
            part = _parts_of(rows, parts)
            (batch,) = rows.take(pa.array(np.argsort(part, kind="stable"))).combine_chunks().to_batches()
            ends = np.cumsum(np.bincount(part, minlength=parts))
            for begin, end in pairwise((0, *ends.tolist())):
                writer.write_batch(batch.slice(begin, end - begin))
    return [name]


def _parts_of(rows: pa.Table, parts: int) -> np.ndarray:
    """The part that each row is in, by its order."""
    import pyarrow as pa

    orders = rows.column(_ORDER_ID).combine_chunks().dictionary_encode()
    hashes = hashes_of(pa.chunked_array([orders.dictionary]))
    return (hashes % np.uint64(parts)).astype(np.int64)[orders.indices.to_numpy()]


def _of_part(file: Path, part: int, parts: int) -> Iterator[pa.Table]:
    """What `_put_apart` has written of a part."""
    import pyarrow as pa

    with pa.memory_map(str(file)) as source, pa.ipc.open_file(source) as reader:
        for number in range(part, reader.num_record_batches, parts):
            yield pa.Table.from_batches([reader.get_batch(number)])


def _put_orders(orders: pa.Array, folder: Path) -> str:
    """Put ids where workers find them; returns the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = folder.with_name("orders.parquet")
    pq.write_table(pa.table({_ORDER_ID: orders}), file)
    return str(file)


@lru_cache(maxsize=1)
def _orders_in(file: str) -> pa.Array:
    """The ids in a file. Read once for each fold that a process works on."""
    import pyarrow.parquet as pq

    return pq.read_table(file).column(0).combine_chunks()


def _one_row(**values: Any) -> pa.RecordBatch:
    """A row of figures; lists are of names."""
    import pyarrow as pa

    def array(value: Any) -> pa.Array:
        return pa.array([value], pa.list_(pa.string()) if isinstance(value, list) else None)

    return pa.RecordBatch.from_arrays([array(value) for value in values.values()], names=list(values))

"""Files with states of orders: those of warehouse_rows and of the view, read and searched for some orders.

Does not belong here: which files are read and what replaces them (`fold_files.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etl_assets.delta.read.data_files import pieces_of
from etl_assets.delta.read.key_index import hashes_of
from etl_assets.orders.transforms.order_status import EVENT_COLUMNS, KEY, event_schema, view_schema

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_FILE = 100_000
"""Files of the view with this many rows or more are large. Files are also read this many rows at a time."""
KEYS_AT_ONCE = 1_000_000
ORDER_ID = KEY[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFile:
    """A Parquet file of warehouse_rows. Its rows with a batch id above `after` are new; None: all are."""

    path: str
    after: int | None = None

    def read(
        self, columns: Sequence[str] = EVENT_COLUMNS, at_once: int = ROWS_PER_FILE
    ) -> Iterator[pa.Table]:
        """Yield some columns of the new rows, at most about `at_once` rows at a time."""
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = pa.schema([event_schema().field(name) for name in columns])
        if self.after is None:
            yield from pieces_of(self.path, schema, at_once=at_once)
            return
        batch = pa.field("batch_id", pa.int64())
        new = (batch.name, self.after + 1, np.iinfo(np.int64).max)
        for rows in pieces_of(self.path, schema.append(batch), at_once=at_once, between=new):
            yield rows.filter(pc.field(batch.name) > self.after).select(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFile:
    """A Parquet file of the view, and the lowest and highest order id in it, if known."""

    path: str
    rows: int
    lowest: str | None = None
    highest: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether unchanged rows of the file get a file of their own."""
        return self.rows >= ROWS_PER_FILE

    def read(self) -> Iterator[pa.Table]:
        """Yield the file's rows with the view's columns, some at a time."""
        return pieces_of(self.path, view_schema(), at_once=ROWS_PER_FILE)

    def may_have(self, orders: Orders) -> bool:
        """Return whether the file may have one of some orders, by its bounds."""
        low, high = orders.bounds
        return (self.lowest is None or self.lowest <= high) and (self.highest is None or low <= self.highest)

    def count(self, orders: Orders) -> int:
        """Return how many of some orders the file has."""
        import pyarrow as pa

        schema = pa.schema([view_schema().field(name) for name in KEY])
        pieces = pieces_of(self.path, schema, at_once=KEYS_AT_ONCE, between=(ORDER_ID, *orders.bounds))
        return sum(int(orders.among(rows).sum()) for rows in pieces)


class Orders:
    """The keys of some orders, prepared to find these orders among rows."""

    def __init__(self, keys: pa.Table) -> None:
        import pyarrow.compute as pc

        self.keys = keys
        self._ids = keys.column(ORDER_ID).unique()
        self._hashes = np.sort(_hashes(keys))
        self.bounds: tuple[str, str] = tuple(pc.call_function("min_max", [self._ids]).as_py().values())

    def __len__(self) -> int:
        return self.keys.num_rows

    def among(self, rows: pa.Table) -> np.ndarray:
        """Return a mask of the rows that belong to one of the orders, by a hash of tenant and order id.

        Another order with the same hash matches as well, which costs only a needless read.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if len(self) > rows.num_rows:  # Building a lookup table of the ids for so few rows would take longer.
            hashes = _hashes(rows)
            places = np.searchsorted(self._hashes, hashes)
            return self._hashes[np.minimum(places, len(self._hashes) - 1)] == hashes
        options = pc.SetLookupOptions(value_set=self._ids)
        found = pc.call_function("is_in", [rows.column(ORDER_ID)], options).to_numpy()
        (places,) = np.nonzero(found)
        found[places] = np.isin(_hashes(rows.select(KEY).take(pa.array(places))), self._hashes)
        return found


def _hashes(keys: pa.Table) -> np.ndarray:
    """Return a hash for each key, the same in every process. Two keys may have the same hash."""
    tenants, orders = (hashes_of(keys.column(name)) for name in KEY)
    return tenants * np.uint64(31) + orders

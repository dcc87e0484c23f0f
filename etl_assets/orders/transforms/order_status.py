"""Order events folded to one row per order.

The row is the same in whatever order, and however often, events are read.

Columns in, columns out, by pyarrow: the step's process folds a few rows, Spark's workers fold many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.arrow_types import data_file_schema
from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS

if TYPE_CHECKING:
    import pyarrow as pa

KEY = ORDER_STATUS_VIEW.merge_key
EVENT_COLUMNS = (
    *KEY,
    "event_id",
    "event_type",
    "order_status",
    "amount",
    "currency",
    "customer_id",
    "occurred_at",
    "normalized_offset",
    "committed_at",
)
"""Columns of warehouse_rows that are folded."""
_TIMES = {status: f"{status.value}_at" for status in OrderStatus}
_AMOUNTS = {"order_amounts": EventType.ORDER_CREATED, "paid_amounts": EventType.PAYMENT_PROCESSED}
_TOTALS = {"order_amounts": "order_total", "paid_amounts": "paid_total"}
_HOW = {
    **dict.fromkeys(KEY, "first"),
    # The least of several values: any rule that does not depend on the order of reading will do.
    **dict.fromkeys((*_TIMES.values(), "currency", "customer_id"), "min"),
    # From the row with the highest offset.
    **dict.fromkeys(("last_event_id", "last_offset"), "last"),
    "updated_at": "max",
}
"""The aggregation of each column over the rows of an order."""
_ORDER = "order"
"""Column with the number of a row's order among the orders folded together."""
_ENTRY = (_ORDER, "event_id", "amount")
"""Columns of an entry of an order's map."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folded:
    """Result of a fold.

    Attributes:
        rows: order_status_view's columns, one row for each `tenant_id, order_id`.
        read: Number of orders that the events belong to.
        is_changed: For each row, whether it is new to the view or changed in it.
        inserted: Number of rows that are new to the view.
    """

    rows: pa.Table
    read: int
    is_changed: np.ndarray
    inserted: int

    @property
    def updated(self) -> int:
        """Number of rows that are changed in the view."""
        return int(self.is_changed.sum()) - self.inserted


def view_schema() -> pa.Schema:
    """Return the schema of order_status_view's data files."""
    return data_file_schema(ORDER_STATUS_VIEW)


def event_schema() -> pa.Schema:
    """Return the schema of `EVENT_COLUMNS` in data files."""
    import pyarrow as pa

    schema = data_file_schema(WAREHOUSE_ROWS)
    return pa.schema([schema.field(name) for name in EVENT_COLUMNS])


def fold_orders(events: pa.Table, stored: pa.Table) -> Folded:
    """Fold events by order, together with the view's rows of these orders.

    The fold is commutative, associative and idempotent, because minimum, maximum and the union of sets are.

    Args:
        events: `EVENT_COLUMNS`; an event may occur more than once, and may be in the view already.
        stored: Rows of the view, with its columns: those of the events' orders, and any others, which stay as
            they are.
    """
    import pyarrow as pa

    # 1. Fold all columns except the amounts.
    states = pa.concat_tables([_states(events), stored.select(list(_HOW))])
    order = _orders(states)
    rows = _folded(states, order)
    of_events, of_stored = order[: events.num_rows], order[events.num_rows :]
    # 2. Fold the amounts: the union of the maps, and their sums.
    for column, event_type in _AMOUNTS.items():
        told = _told(events, event_type, of_events)
        known = _known(stored.column(column), of_stored)
        entries = _each_once(pa.concat_tables([told, *known]))
        rows = rows.append_column(column, _maps(entries, rows.num_rows))
        rows = rows.append_column(_TOTALS[column], _sums(entries, rows.num_rows))
    rows = rows.append_column("order_status", _status(rows))
    rows = rows.select(ORDER_STATUS_VIEW.names).cast(view_schema())
    # 3. Find the stored rows that changed.
    is_changed = np.ones(rows.num_rows, dtype=bool)
    is_changed[of_stored] = _differ(stored, rows.take(pa.array(of_stored)))
    return Folded(
        rows=rows,
        read=int(np.count_nonzero(np.bincount(of_events))),
        is_changed=is_changed,
        inserted=rows.num_rows - len(of_stored),
    )


def _states(events: pa.Table) -> pa.Table:
    """Return each event as the state that it would be alone, without the amounts."""
    import pyarrow as pa

    columns = {name: events.column(name) for name in (*KEY, "currency", "customer_id")}
    for status, column in _TIMES.items():
        is_reached = call("equal", events.column("order_status"), status.value)
        columns[column] = call("if_else", is_reached, events.column("occurred_at"), None)
    columns["last_event_id"] = events.column("event_id")
    columns["last_offset"] = events.column("normalized_offset")
    columns["updated_at"] = events.column("committed_at")
    return pa.table(columns).select(list(_HOW))


def _orders(states: pa.Table) -> np.ndarray:
    """Return for each row the number of its order, dense from 0."""
    tenant, order = (states.column(name).combine_chunks().dictionary_encode() for name in KEY)
    codes = tenant.indices.to_numpy().astype(np.int64) * len(order.dictionary) + order.indices.to_numpy()
    return np.unique(codes, return_inverse=True)[1]


def _folded(states: pa.Table, order: np.ndarray) -> pa.Table:
    """Return one row per order, sorted by its number, without the amounts."""
    import pyarrow as pa

    by_offset = np.argsort(states.column("last_offset").to_numpy(), kind="stable")
    rows = states.append_column(_ORDER, pa.array(order)).take(pa.array(by_offset))
    # One thread, so that "last" is the row with the highest offset.
    found = rows.group_by(_ORDER, use_threads=False).aggregate(list(_HOW.items())).sort_by(_ORDER)
    return found.select([f"{name}_{how}" for name, how in _HOW.items()]).rename_columns(list(_HOW))


def _told(events: pa.Table, event_type: EventType, order: np.ndarray) -> pa.Table:
    """Return the amounts of events of a type, as `_ENTRY`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_counted = (pc.field("event_type") == event_type.value) & pc.field("amount").is_valid()
    return events.append_column(_ORDER, pa.array(order)).filter(is_counted).select(_ENTRY)


def _known(maps: pa.ChunkedArray, order: np.ndarray) -> Iterator[pa.Table]:
    """Yield the amounts in maps, as `_ENTRY`."""
    import pyarrow as pa

    for chunk in maps.chunks:
        of_chunk, order = order[: len(chunk)], order[len(chunk) :]
        offsets = chunk.offsets.to_numpy()
        first, entries = offsets[0], offsets[-1] - offsets[0]
        numbers = np.repeat(of_chunk, np.diff(offsets))
        columns = [pa.array(numbers), chunk.keys.slice(first, entries), chunk.items.slice(first, entries)]
        yield pa.table(columns, names=_ENTRY)


def _each_once(entries: pa.Table) -> pa.Table:
    """Return each event of an order once, sorted by order."""
    once = entries.group_by(list(_ENTRY[:2]), use_threads=False).aggregate([("amount", "min")])
    return once.rename_columns(_ENTRY).sort_by(_ORDER)


def _maps(entries: pa.Table, orders: int) -> pa.MapArray:
    """Return the map of each order."""
    import pyarrow as pa

    sizes = np.bincount(entries.column(_ORDER).to_numpy(), minlength=orders)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    event_ids, amounts = (entries.column(name).combine_chunks() for name in _ENTRY[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), event_ids, amounts)


def _sums(entries: pa.Table, orders: int) -> pa.ChunkedArray:
    """Return the sum of each order's amounts, 0.00 for an order without amounts."""
    import pyarrow as pa

    sums = entries.group_by(_ORDER, use_threads=False).aggregate([("amount", "sum")])
    place = np.full(orders, -1)
    place[sums.column(_ORDER).to_numpy()] = np.arange(sums.num_rows)
    found = sums.column("amount_sum").take(pa.array(place, mask=place < 0))
    return call("coalesce", found, pa.scalar(Decimal(0), found.type))


def _status(rows: pa.Table) -> pa.ChunkedArray:
    """Return the highest status whose time is known."""
    ranked = sorted(OrderStatus, key=lambda status: status.rank, reverse=True)
    known = (call("is_valid", rows.column(_TIMES[status])) for status in ranked)
    each = (
        call("if_else", is_known, status.value, None) for is_known, status in zip(known, ranked, strict=True)
    )
    return call("coalesce", *each)


def _differ(stored: pa.Table, folded: pa.Table) -> np.ndarray:
    """Return row by row whether they differ. Maps only ever grow, so comparing their sizes is enough."""
    differ = np.zeros(stored.num_rows, dtype=bool)
    for name in (name for name in ORDER_STATUS_VIEW.names if name not in _AMOUNTS):
        before, after = stored.column(name), folded.column(name)
        none = call("and", call("is_null", before), call("is_null", after))
        is_same = call("coalesce", call("equal", before, after), none)
        differ |= ~is_same.to_numpy()
    for name in _AMOUNTS:
        differ |= _sizes(stored.column(name)) != _sizes(folded.column(name))
    return differ


def _sizes(maps: pa.ChunkedArray) -> np.ndarray:
    """Return how many entries each map has."""
    empty = np.empty(0, dtype=np.int64)
    return np.concatenate([empty, *(np.diff(chunk.offsets.to_numpy()) for chunk in maps.chunks)])

"""What became of an order at the sinks of order_status_view. No JVM.

The view does not say which of its versions a row is from. So the first delivery that had an event is the
first one of a version that had read the event's commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.cursor import read_cursors
from etl_assets.observability.delivery_history import SinkHistory
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.observability.history import HistoryEntry
    from etl_assets.placement.domains import FailureDomain


def deliveries_of_order(
    domain: FailureDomain, order: Mapping[str, Any] | None, commits: Sequence[Mapping[str, Any]]
) -> dict[str, HistoryEntry | None]:
    """Return what each sink made of an order with an event, by the name of the deliveries.

    None stands for what is still to come.

    Args:
        domain: Failure domain of the tables.
        order: Its row in order_status_view; None if there is none.
        commits: The `batch_id` of the event's rows in warehouse_rows; none if it was not committed.
    """
    found: dict[str, HistoryEntry | None] = {}
    for sink in _sinks(domain):
        found[sink.deliveries.name] = None
        if order is not None and commits:
            batch = max(row["batch_id"] for row in commits)
            found[sink.deliveries.name] = _entry(sink, order, batch)
    return found


def replays_of_order(domain: FailureDomain, order: Mapping[str, Any]) -> Iterator[HistoryEntry]:
    """Yield the replays of an order that targets of sinks rejected, and what became of them."""
    for sink in _sinks(domain):
        yield from sink.replays(order)


def _sinks(domain: FailureDomain) -> Iterator[SinkHistory]:
    for stage in domain.catalog.sinks_of([ORDER_STATUS_VIEW.name]):
        assert stage.rejects is not None  # every sink may refuse rows
        yield SinkHistory(
            domain=domain, table=ORDER_STATUS_VIEW, deliveries=stage.table, rejects=stage.rejects
        )


def _entry(sink: SinkHistory, order: Mapping[str, Any], batch: int) -> HistoryEntry | None:
    deliveries = sink.recorded()
    first = bisect_left(deliveries, True, key=lambda each: _has_read(sink.domain, each["to_version"], batch))
    if first == len(deliveries):
        return None
    return sink.told(order, deliveries[first], deliveries[first]["to_version"])


def _has_read(domain: FailureDomain, version: int, batch: int) -> bool:
    """Return whether a version of the view has read a batch of warehouse_rows; no if its log is gone."""
    from deltalake.exceptions import DeltaError

    view = platform_table(ORDER_STATUS_VIEW.name, domain)
    try:
        return read_cursors(view, WAREHOUSE_ROWS.name, [None], version)[None] >= batch
    except (DeltaError, FileNotFoundError):
        return False

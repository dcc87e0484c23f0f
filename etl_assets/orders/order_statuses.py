"""Orders by status, read from order_status_view by delta-rs: no Spark."""

from __future__ import annotations

from collections import Counter

from etl_assets.delta.read.data_files import batches_of_snapshot
from etl_assets.delta.write.writing import storage_named
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.placement.domains import FailureDomain
from etl_assets.steps.step import platform_table


def orders_by_status(domain: FailureDomain) -> dict[str, int]:
    """Return the number of orders by status, in ascending order of status;

    empty if the view does not exist yet.
    """
    view = platform_table(ORDER_STATUS_VIEW.name, domain)
    snapshot = view.snapshot()
    if snapshot is None:
        return {}
    counts: Counter[str] = Counter()
    with storage_named(view):
        for batch in batches_of_snapshot(snapshot, ["order_status"]):
            counts.update(batch.column(0).to_pylist())
    return {status.value: counts[status.value] for status in OrderStatus if counts[status.value]}

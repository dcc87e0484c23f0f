"""Invariants of the orders pipeline, beside those that any pipeline may declare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.pipelines.invariant import InvariantResult

if TYPE_CHECKING:
    from etl_assets.orders.missing_rows import Rows
    from etl_assets.placement.domains import FailureDomain


def nothing_lost(domain: FailureDomain) -> InvariantResult:
    """Every raw event of a day is normalized or refused.

    Compared for days that normalized_orders has read and that do not wait to be recomputed after an undo. An
    event that was refused and later replayed counts twice, so there may be more of them, never fewer.
    """
    from etl_assets.orders.missing_rows import not_normalized

    return _result(not_normalized(domain))


def all_committed(domain: FailureDomain) -> InvariantResult:
    """Every normalized event of a day is one warehouse row.

    Compared for days that warehouse_rows has read and that do not wait to be recomputed after an undo.
    """
    from etl_assets.orders.missing_rows import not_committed

    return _result(not_committed(domain))


def _result(wrong: Rows) -> InvariantResult:
    days = ", ".join(f"{day}: {rows:+d}" for day, rows in sorted(wrong.items())[:20])
    return InvariantResult(
        passed=not wrong, metadata={"days_wrong": len(wrong), "rows_missing_by_day": days or "none"}
    )

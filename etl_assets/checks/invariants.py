"""Invariants that hold after every run: counted from file statistics, so that they cost milliseconds and may block."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import dagster as dg

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.tables import (
    NORMALIZED_ORDERS,
    NORMALIZED_ORDERS_EXCEPTIONS,
    RAW_EVENTS,
    WAREHOUSE_ROWS,
)
from etl_assets.delta.cursor import taken_back
from etl_assets.delta.offsets import next_offset, retired_offsets
from etl_assets.placement.domains import FailureDomain
from etl_assets.settings import Settings
from etl_assets.steps.step import platform_table

Rows = dict[str, int]


def rows_by_day(domain: FailureDomain, table: str, *, outcome: str | None = None) -> Rows:
    """Rows of a table for each day, by file statistics."""
    snapshot = platform_table(table, domain).snapshot()
    if snapshot is None:
        return {}
    if outcome is None:
        return {day: rows for (day,), rows in snapshot.rows_by("partition_date").items()}
    by_outcome = snapshot.rows_by("partition_date", "outcome")
    return {day: rows for (day, found), rows in by_outcome.items() if found == outcome}


def dense_offsets(domain: FailureDomain, table: str) -> dg.AssetCheckResult:
    """Offsets run from 0 without a gap: as many were dealt as there are rows, and rows that an undo took out."""
    snapshot = platform_table(table, domain).snapshot()
    rows = 0 if snapshot is None else snapshot.row_count()
    retired = 0 if snapshot is None else retired_offsets(snapshot)
    highest = next_offset(snapshot) - 1
    return dg.AssetCheckResult(
        passed=highest + 1 == rows + retired,
        metadata={"rows": rows, "highest_offset": highest, "offsets_retired_by_undo": retired},
    )


def nothing_lost(domain: FailureDomain) -> dg.AssetCheckResult:
    """Every raw event of a day is normalized or refused.

    Compared only for days that have been normalized at all and do not wait to be made again after an undo; an event that was refused and later replayed counts twice,
    so there may be more of them, never fewer.
    """
    raw = rows_by_day(domain, RAW_EVENTS.name)
    normalized = rows_by_day(domain, NORMALIZED_ORDERS.name)
    refused = rows_by_day(domain, NORMALIZED_ORDERS_EXCEPTIONS.name, outcome=Outcome.REJECTED.value)
    waiting = taken_back(
        platform_table(NORMALIZED_ORDERS.name, domain), platform_table(RAW_EVENTS.name, domain)
    )
    known = {day for day in raw if day in normalized or day in refused} - waiting
    missing = {day: raw[day] - normalized.get(day, 0) - refused.get(day, 0) for day in known}
    too_many = {day: normalized.get(day, 0) - raw.get(day, 0) for day in normalized}
    return _result(
        {day: n for day, n in missing.items() if n > 0} | {d: -n for d, n in too_many.items() if n > 0}
    )


def all_committed(domain: FailureDomain) -> dg.AssetCheckResult:
    """Every normalized event of a day is one warehouse row, for the days that are in the warehouse.

    Days that wait to be made again after an undo are left out.
    """
    normalized = rows_by_day(domain, NORMALIZED_ORDERS.name)
    committed = rows_by_day(domain, WAREHOUSE_ROWS.name)
    waiting = taken_back(
        platform_table(WAREHOUSE_ROWS.name, domain), platform_table(NORMALIZED_ORDERS.name, domain)
    )
    return _result(
        {
            day: normalized.get(day, 0) - rows
            for day, rows in committed.items()
            if day not in waiting and rows != normalized.get(day, 0)
        }
    )


def _result(wrong: Rows) -> dg.AssetCheckResult:
    days = ", ".join(f"{day}: {rows:+d}" for day, rows in sorted(wrong.items())[:20])
    return dg.AssetCheckResult(
        passed=not wrong, metadata={"days_wrong": len(wrong), "rows_missing_by_day": days or "none"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """What must hold of an asset's table after every run.

    Attributes:
        asset: The asset.
        name: Name of the check.
        evaluate: Looks at the tables of a domain, by file statistics.
    """

    asset: str
    name: str
    evaluate: Callable[[FailureDomain], dg.AssetCheckResult]

    @property
    def description(self) -> str:
        """What it says, in words."""
        function = getattr(self.evaluate, "func", self.evaluate)
        return (function.__doc__ or "").strip()


INVARIANTS = (
    Invariant(
        asset=RAW_EVENTS.name, name="dense_offsets", evaluate=partial(dense_offsets, table=RAW_EVENTS.name)
    ),
    Invariant(
        asset=NORMALIZED_ORDERS.name,
        name="dense_offsets",
        evaluate=partial(dense_offsets, table=NORMALIZED_ORDERS.name),
    ),
    Invariant(asset=NORMALIZED_ORDERS.name, name="nothing_lost", evaluate=nothing_lost),
    Invariant(asset=WAREHOUSE_ROWS.name, name="all_committed", evaluate=all_committed),
)
"""All of them, in the order of the data path."""


def invariant_checks(settings: Settings) -> list[dg.AssetChecksDefinition]:
    """The blocking checks of the data path."""

    def build(invariant: Invariant) -> dg.AssetChecksDefinition:
        @dg.asset_check(
            asset=invariant.asset, name=invariant.name, blocking=True, description=invariant.description
        )
        def check() -> dg.AssetCheckResult:
            return invariant.evaluate(settings.placement().reader())

        return check

    return [build(invariant) for invariant in INVARIANTS]

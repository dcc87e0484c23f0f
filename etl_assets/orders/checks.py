"""Invariants that hold after every run.

They are counted from file statistics, cost milliseconds, and may block.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

import dagster as dg

from etl_assets.delta.write.offsets import next_offset, retired_offsets
from etl_assets.orders.missing_rows import Rows, not_committed, not_normalized
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.placement.domains import FailureDomain
from etl_assets.settings import Settings
from etl_assets.steps.step import platform_table


def dense_offsets(domain: FailureDomain, table: str) -> dg.AssetCheckResult:
    """Offsets run from 0 without a gap: as many as there are rows, and rows that an undo took out."""
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

    Compared for days that normalized_orders has read and that do not wait to be recomputed after an undo. An
    event that was refused and later replayed counts twice, so there may be more of them, never fewer.
    """
    return _result(not_normalized(domain))


def all_committed(domain: FailureDomain) -> dg.AssetCheckResult:
    """Every normalized event of a day is one warehouse row.

    Compared for days that warehouse_rows has read and that do not wait to be recomputed after an undo.
    """
    return _result(not_committed(domain))


def _result(wrong: Rows) -> dg.AssetCheckResult:
    days = ", ".join(f"{day}: {rows:+d}" for day, rows in sorted(wrong.items())[:20])
    return dg.AssetCheckResult(
        passed=not wrong, metadata={"days_wrong": len(wrong), "rows_missing_by_day": days or "none"}
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Invariant:
    """A condition on an asset's table that must hold after every run.

    Attributes:
        asset: The asset.
        name: Name of the check.
        evaluate: Checks the tables of a domain, by file statistics. Its docstring is the check's description.
    """

    asset: str
    name: str
    evaluate: Callable[[FailureDomain], dg.AssetCheckResult]

    @property
    def description(self) -> str:
        """The condition in words: the docstring of `evaluate`."""
        function = getattr(self.evaluate, "func", self.evaluate)
        return inspect.getdoc(function) or ""


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
"""All invariants, in the order of the data path."""


def invariant_checks(settings: Settings, assets: Collection[str]) -> list[dg.AssetChecksDefinition]:
    """Build the blocking checks of those of some assets that are on the data path."""

    def build(invariant: Invariant) -> dg.AssetChecksDefinition:
        @dg.asset_check(
            asset=invariant.asset, name=invariant.name, blocking=True, description=invariant.description
        )
        def check() -> dg.AssetCheckResult:
            return invariant.evaluate(settings.placement().reader())

        return check

    return [build(invariant) for invariant in INVARIANTS if invariant.asset in assets]

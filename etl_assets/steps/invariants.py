"""Invariants that any pipeline may declare. Its own ones are in its own modules."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from etl_assets.pipelines.invariant import Invariant, InvariantResult

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain


def dense_offsets(domain: FailureDomain, table: str) -> InvariantResult:
    """Offsets run from 0 without a gap: as many as there are rows, and rows that an undo took out."""
    from etl_assets.delta.write.offsets import next_offset, retired_offsets
    from etl_assets.steps.step import platform_table

    snapshot = platform_table(table, domain).snapshot()
    rows = 0 if snapshot is None else snapshot.row_count()
    retired = 0 if snapshot is None else retired_offsets(snapshot)
    highest = next_offset(snapshot) - 1
    return InvariantResult(
        passed=highest + 1 == rows + retired,
        metadata={"rows": rows, "highest_offset": highest, "offsets_retired_by_undo": retired},
    )


def has_dense_offsets(table: str) -> Invariant:
    """Return the invariant that the offsets of a table are dense."""
    return Invariant(table=table, name="dense_offsets", evaluate=partial(dense_offsets, table=table))

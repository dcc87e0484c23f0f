"""What a delivery has to bring: nothing, what is new, or everything. A pure decision.

Belongs here: the decision from versions. Does not belong here: reading rows (`steps/deliver.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from etl_assets.sinks.sink import SinkPosition


class Extent(StrEnum):
    """What a delivery brings."""

    NOTHING = "nothing"
    NEW = "new"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The table as a step finds it.

    Attributes:
        position: Its newest versions.
        rows_taken_out: Returns whether an undo took rows out after the target's position, or might have.
        has_truncate: Whether a truncate removed rows after it.
    """

    position: SinkPosition
    rows_taken_out: bool = False
    has_truncate: bool = False


def extent_of(target: SinkPosition | None, head: Head, *, asked_whole: bool = False) -> Extent:
    """Return what a target needs.

    Args:
        target: Where the target is; None if it has nothing.
        head: Where the table is.
        asked_whole: Whether an operator asked for everything.
    """
    if target is None or target.table_id != head.position.table_id:
        return Extent.WHOLE
    if target.version > head.position.version or target.tombstones > head.position.tombstones:
        return Extent.WHOLE  # beyond the table: it was taken back
    if asked_whole or head.rows_taken_out or head.has_truncate:
        return Extent.WHOLE
    return Extent.NOTHING if target == head.position else Extent.NEW

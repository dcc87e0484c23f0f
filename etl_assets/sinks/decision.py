"""What a delivery has to bring: nothing, what is new, or everything. A pure decision.

Belongs here: the decision from versions. Does not belong here: reading rows (`steps/deliver.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from etl_assets.sinks.sink import SinkPosition


class DeliveryExtent(StrEnum):
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


def extent_of(
    target: SinkPosition | None,
    head: Head,
    *,
    recorded: SinkPosition | None = None,
    asked_whole: bool = False,
) -> DeliveryExtent:
    """Return what a target needs.

    Args:
        target: Where the target is; None if it has nothing.
        head: Where the table is.
        recorded: Where the last recorded delivery left the target; None if that is not known.
        asked_whole: Whether an operator asked for everything.
    """
    if target is None or target.table_id != head.position.table_id:
        return DeliveryExtent.WHOLE
    if target.version > head.position.version or target.tombstones > head.position.tombstones:
        return DeliveryExtent.WHOLE  # beyond the table: it was taken back
    if recorded is not None and _is_behind(target, recorded):
        return DeliveryExtent.WHOLE  # the target was put back from a backup of its own
    if asked_whole or head.rows_taken_out or head.has_truncate:
        return DeliveryExtent.WHOLE
    return DeliveryExtent.NOTHING if target == head.position else DeliveryExtent.NEW


def _is_behind(target: SinkPosition, recorded: SinkPosition) -> bool:
    """Return whether a target lacks a delivery that is recorded. One whose writer was killed is never behind:
    the target commits before the record.
    """
    return target.table_id == recorded.table_id and (
        target.version < recorded.version or target.replays < recorded.replays
    )

"""Cursors in a table's log, and the cursors that a commit must turn into transaction ids so that they last.

Belongs here: cursors by name, as commits keep them. Does not belong here: the meaning of a cursor
(`cursor.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.delta.log.entries import UNDO, recent_user_metadata

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

LASTING = "cursors_last"
"""Key in the user metadata of a commit after which every cursor of the table is a transaction id."""
REMEMBERED_COMMITS = 100
"""Number of commits whose user metadata is searched, newest first, if none says that all cursors last."""


def remembered_cursors(table: Table, version: int) -> dict[str, int]:
    """Return the cursors in the user metadata of commits up to a version of the table.

    The search ends at the last undo, whose cursors are -1, or at a commit that made all cursors last.
    """
    remembered: dict[str, int] = {}
    for metadata in recent_user_metadata(table.path, version, REMEMBERED_COMMITS):
        for name, cursor in (metadata.get("cursors") or {}).items():
            remembered[name] = max(remembered.get(name, -1), cursor)
        if UNDO in metadata or LASTING in metadata:
            break
    return remembered


def lasting_cursors(table: Table, base_version: int, cursors: Mapping[str, int]) -> dict[str, int]:
    """Return the transaction ids of a commit after which every cursor of a table lasts.

    Args:
        table: The table.
        base_version: The version the commit follows.
        cursors: Cursors that the commit advances or sets back.

    Returns:
        `cursors`, and those that up to the base are in user metadata only.
    """
    snapshot = table.snapshot(base_version)
    if snapshot is None:
        return dict(cursors)
    remembered = remembered_cursors(table, base_version)
    known = snapshot.transaction_versions(remembered)
    passing = {
        name: cursor for name, cursor in remembered.items() if name not in known or cursor > known[name]
    }
    return passing | dict(cursors)

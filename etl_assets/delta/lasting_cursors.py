"""Which cursors the log of a table holds, and which of them a commit has to make last.

Belongs here: cursors by their name, as commits keep them. Does not belong here: what a cursor means (`cursor.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.delta.log import UNDO, recent_user_metadata

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

LASTING = "cursors_last"
"""Key of the user metadata of a commit after which every cursor of the table is a transaction id."""
REMEMBERED_COMMITS = 100
"""How many commits back user metadata is looked at, where none says that all cursors last."""


def remembered_cursors(table: Table, version: int) -> dict[str, int]:
    """The cursors in user metadata up to a version of the table: since the last undo, with those it set back at -1, or since
    a commit that made all of them last.
    """
    remembered: dict[str, int] = {}
    for metadata in recent_user_metadata(table.path, version, REMEMBERED_COMMITS):
        for name, cursor in (metadata.get("cursors") or {}).items():
            remembered[name] = max(remembered.get(name, -1), cursor)
        if UNDO in metadata or LASTING in metadata:
            break
    return remembered


def lasting_cursors(table: Table, base_version: int, cursors: Mapping[str, int]) -> dict[str, int]:
    """The transaction ids of a commit after which every cursor of a table lasts.

    Args:
        table: The table.
        base_version: The version the commit follows.
        cursors: What the commit advances, or sets back.

    Returns:
        These, and those that up to the base stand in user metadata only.
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

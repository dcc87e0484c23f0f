"""How many rows came to be acknowledged, from the log entries of a mirrored table. No JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.delta.log import read_entry
from etl_assets.errors import MirrorError, Unanswered

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

MAX_ENTRIES = 200
"""Of more than that only the newest are looked at: one look must not read a history."""


def rows_acknowledged(table: Table, after: int, upto: int) -> int:
    """Rows that the versions after one and up to another added, less those they took out; not below zero.

    Compaction moves rows and does not count. Entries that are not to be had count nothing.
    """
    if upto <= after:
        return 0
    rows = 0
    try:
        table.version()  # so that the folder is one that has them
        for version in range(max(after + 1, upto - MAX_ENTRIES + 1), upto + 1):
            entry = read_entry(table.path, version)
            rows += sum(file.rows for file in entry.added if file.changes_rows)
            rows -= sum(file.rows for file in entry.removed if file.changes_rows)
    except (MirrorError, Unanswered, OSError, ValueError):
        return max(0, rows)
    return max(0, rows)

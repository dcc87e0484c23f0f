"""Number of acknowledged rows, from the log entries of a mirrored table. No JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.delta.log.entries import read_entry
from etl_assets.errors import MirrorError, Unanswered

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

MAX_ENTRIES = 200
"""Only the newest entries are read, at most this number: one call must not read a whole history."""


def rows_acknowledged(table: Table, after: int, upto: int) -> int:
    """Return the rows that versions `after` + 1 to `upto` added, less those they removed; at least 0.

    Compaction moves rows and does not count. Entries that cannot be read count as 0.
    """
    if upto <= after:
        return 0
    rows = 0
    try:
        table.version()  # binds `path` to a replica that has these versions
        for version in range(max(after + 1, upto - MAX_ENTRIES + 1), upto + 1):
            entry = read_entry(table.path, version)
            rows += sum(file.rows for file in entry.added if file.changes_rows)
            rows -= sum(file.rows for file in entry.removed if file.changes_rows)
    except (MirrorError, Unanswered, OSError, ValueError):
        return max(0, rows)
    return max(0, rows)

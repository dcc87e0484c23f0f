"""How many rows are little work, which this process does by itself."""

from __future__ import annotations

MAX_ROWS = 2_000_000
"""Rows whose keys this process holds and compares: some hundred megabytes. Spark shares out more."""


def is_little_work(rows: int | None) -> bool:
    """Return whether this process does the work on some rows; their number is None if it is unknown."""
    return rows is not None and rows <= MAX_ROWS

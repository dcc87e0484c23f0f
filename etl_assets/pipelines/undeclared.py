"""The tables of an installation that no pipeline declares: those of users' own assets above all.

Belongs here: what the catalog asks about them. Does not belong here: how they are found
(`placement/undeclared_tables.py`), and what a table says of its asset (`delta/asset_record.py`).
"""

from __future__ import annotations

from typing import Protocol


class UndeclaredTables(Protocol):
    """Finds tables that are there although no pipeline declares them."""

    def names(self) -> tuple[str, ...]:
        """Return the names of all of them that can be found now."""
        ...

    def has(self, name: str) -> bool:
        """Return whether there is such a table."""
        ...

    def unlisted(self) -> tuple[str, ...]:
        """Return why tables may be missing from the answers, in sentences; empty if none can be."""
        ...

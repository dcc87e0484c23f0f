"""The effect that a run has on a table."""

from __future__ import annotations

from enum import StrEnum


class WriteMode(StrEnum):
    """The effect of a run on the table.

    UPSERT: the table keeps the newest row of each key.
    INSERT: the table keeps the first row of each key.
    APPEND: every row is added, once for each run.
    REPLACE: afterwards the run's partitions hold exactly the run's rows.
    APPLY_CHANGES: the table keeps the newest row of each key, without the keys whose newest change is a
        delete.
    """

    UPSERT = "upsert"
    INSERT = "insert"
    APPEND = "append"
    REPLACE = "replace"
    APPLY_CHANGES = "apply_changes"

    @property
    def by_key(self) -> bool:
        """Whether keys identify rows."""
        return self in (WriteMode.UPSERT, WriteMode.INSERT, WriteMode.APPLY_CHANGES)

    @property
    def keeps_newest(self) -> bool:
        """Whether the newest row of a key stands."""
        return self in (WriteMode.UPSERT, WriteMode.APPLY_CHANGES)

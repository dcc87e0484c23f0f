"""Compact a table: merge the small files of its closed days, and those of today where there are too many.

The rows stay as they are, and so do the cursors of readers.

Belongs here: planning and committing. Does not belong here: which files are worth it
(`delta/maintenance/compaction.py`), and when (`jobs/compaction.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.maintenance.compaction import Compaction, commit_compaction, plan_compactions
from etl_assets.delta.write.lock import POLL_SECONDS

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.steps.step import StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Number and size of the data files of a version."""

    version: int
    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.files:,} files of {self.bytes:,} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """The step. A kill loses only the commit under way; the next run continues.

    Once all is compact, a run changes nothing.

    A table without days is rewritten if it has `undated_files` small files.
    """

    context: StepContext
    table: str
    undated_files: int = 2

    def run(self) -> tuple[Extent, Extent]:
        """Compact what is due now. Does not start Spark if nothing is due.

        Returns:
            The table's extent before and after.

        Raises:
            TableBusy: another process wrote the table for too long.
        """
        table = self.context.table(self.table)
        before = extent(table)
        for compaction in self._due(table, self.context.clock().date()):
            with self.context.turn(table.name):
                commit_compaction(
                    self.context.session, table, compaction, wait_seconds=self.context.lock_wait_seconds
                )
            # Processes that wait for the table's lock get it before the next commit.
            time.sleep(2 * POLL_SECONDS)
        return before, extent(table)

    def is_due(self) -> bool:
        """Return whether there are files to rewrite. Reads the log only."""
        return bool(self._due(self.context.table(self.table), self.context.clock().date()))

    def _due(self, table: Table, today: dt.date) -> list[Compaction]:
        snapshot = table.snapshot()
        if snapshot is None:
            return []
        return list(plan_compactions(snapshot, today, undated_files=self.undated_files))


def extent(table: Table) -> Extent:
    """Return the extent of a table's newest version."""
    snapshot = table.snapshot()
    sizes = [] if snapshot is None else [size for size, _ in snapshot.sizes_by()]
    return Extent(version=-1 if snapshot is None else snapshot.version, files=len(sizes), bytes=sum(sizes))

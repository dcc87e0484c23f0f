"""Compacting a table: small files of its closed days become few, and where there are too many, those of today. Rows, and what
readers have consumed, stay as they are.

Belongs here: planning and committing. Does not belong here: what is worth it (`delta/compaction.py`), and when
(`jobs/compaction.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.compaction import Compaction, commit_compaction, plan_compactions
from etl_assets.delta.lock import POLL_SECONDS

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.steps.step import StepContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """Data files of a version, and their bytes."""

    version: int
    files: int
    bytes: int

    def __str__(self) -> str:
        return f"{self.files:,} files of {self.bytes:,} bytes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compact:
    """The step. A kill in between loses the commit under way; running it again goes on, and then changes nothing.

    A table without days is written anew if it has `undated_files` small ones.
    """

    context: StepContext
    table: str
    undated_files: int = 2

    def run(self) -> tuple[Extent, Extent]:
        """Compact what is due now; the table's extent before and after. Nothing due: Spark is not asked for.

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
            time.sleep(2 * POLL_SECONDS)  # whoever waits for the table's lock gets it before the next commit
        return before, extent(table)

    def is_due(self) -> bool:
        """Whether there is anything to write anew. Reads the log only."""
        return bool(self._due(self.context.table(self.table), self.context.clock().date()))

    def _due(self, table: Table, today: dt.date) -> list[Compaction]:
        snapshot = table.snapshot()
        if snapshot is None:
            return []
        return list(plan_compactions(snapshot, today, undated_files=self.undated_files))


def extent(table: Table) -> Extent:
    """What a table has of files."""
    snapshot = table.snapshot()
    sizes = [] if snapshot is None else [size for size, _ in snapshot.sizes_by()]
    return Extent(version=-1 if snapshot is None else snapshot.version, files=len(sizes), bytes=sum(sizes))

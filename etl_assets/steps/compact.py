"""Compacting a table: small files of its closed days become few. Rows, and what readers have consumed, stay as they are.

Belongs here: planning on the newest version and committing. Does not belong here: what is worth it
(`delta/compaction.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.compaction import commit_compaction, plan_compactions
from etl_assets.errors import CommitConflict

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.steps.step import StepContext

_ATTEMPTS = 3


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
    """The step. A kill in between loses the commit under way; running it again goes on, and then changes nothing."""

    context: StepContext
    table: str

    def run(self) -> tuple[Extent, Extent]:
        """Compact; the table's extent before and after.

        Raises:
            CommitConflict: others kept committing to the table in between.
        """
        table = self.context.table(self.table)
        before = after = extent(table)
        attempts = 0
        while (snapshot := table.snapshot()) is not None:
            closed_before = self.context.clock().date()
            compaction = next(plan_compactions(snapshot, closed_before), None)
            if compaction is None:
                break
            try:
                commit_compaction(
                    self.context.spark,
                    table,
                    compaction,
                    base_version=snapshot.version,
                    wait_seconds=self.context.lock_wait_seconds,
                )
            except CommitConflict:
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
            after = extent(table)
        return before, after


def extent(table: Table) -> Extent:
    """What a table has of files."""
    snapshot = table.snapshot()
    sizes = [] if snapshot is None else [size for size, _ in snapshot.sizes_by()]
    return Extent(version=-1 if snapshot is None else snapshot.version, files=len(sizes), bytes=sum(sizes))

"""Truncation of the log of a table in one failure domain: files before the versions to keep are removed.

Delta's writers remove entries by age when they make a checkpoint, after 30 days by default. By then a table
with a commit every few seconds has several hundred thousand of them, and every reader lists them all. So a
number of versions is kept here as well. `mirroring/maintenance/log_cleanup.py` does the same for mirrored
tables, where the domains must agree on it.
"""

from __future__ import annotations

import bisect
import logging
from dataclasses import dataclass
from pathlib import Path

from etl_assets.delta.log.entries import (
    checkpoint_path,
    checkpoints,
    log_names,
    newest_checkpoint,
    newest_entry,
    oldest_entry,
)
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.mirroring.maintenance.log_cleanup import MOVES_PER_RETENTION, names_before, version_of

logger = logging.getLogger("etl_assets")

AT_ONCE = 10_000
"""Files that one commit removes, or a few more: a log that grew for months must not hold a commit up."""
_LOOKS = 100
"""The log is checked at every version that is a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLog:
    """The part of a log that can be removed.

    Attributes:
        first: The version at which the log begins without it, -1 for a log without entries.
        names: Its files, in the order of removal.
    """

    first: int
    names: tuple[str, ...]


def find_old_log(table_path: Path, keep: int, *, at_once: int | None = None) -> OldLog:
    """Find the files before the newest checkpoint that leaves `keep` versions readable, none without one.

    With `at_once` it prefers the newest such checkpoint that has no more than that many files before it, if
    there is one. The rest then begins with a checkpoint, however much there was.
    """
    names = log_names(table_path)
    newest, oldest = newest_entry(names), oldest_entry(names)
    before = sorted(version for name in names if (version := version_of(name)) is not None)
    candidates = sorted(each for each in checkpoints(names) if oldest < each <= newest - keep + 1)
    most = len(candidates)
    if at_once is not None:
        most = bisect.bisect_right(
            candidates, at_once, key=lambda version: bisect.bisect_left(before, version)
        )
    # The newest checkpoint with at most `at_once` files before it, or else the first one after it.
    preferred = [*reversed(candidates[:most]), *candidates[most:]]
    first = next((each for each in preferred if _can_be_read(checkpoint_path(table_path, each))), None)
    # `_last_checkpoint` must never name a checkpoint that is missing.
    if first is None or newest_checkpoint(table_path) < first:
        return OldLog(first=oldest, names=())
    return OldLog(first=first, names=tuple(names_before(names, first)))


def remove_old_log(table_path: Path, old: OldLog, *, table: str) -> None:
    """Remove the old part of a log. This may run at any moment, twice, or in two processes at once.

    At every moment the rest is read from a checkpoint on; an older version cannot be opened at all.
    """
    failpoint(Failpoint.LOG_BEFORE_REMOVE, table=table)
    log = table_path / "_delta_log"
    for name in old.names:
        (log / name).unlink(missing_ok=True)
    logger.info(
        "%s: the log begins at version %d now, %d files of it were removed", table, old.first, len(old.names)
    )


def truncate_log(table_path: Path, version: int, keep: int, *, table: str) -> None:
    """Truncate a log at some commits, after the commit of `version`. The commit counts even if this fails."""
    if version % _LOOKS:
        return
    try:
        old = find_old_log(table_path, keep, at_once=AT_ONCE)
        entries = sum(name.endswith(".json") for name in old.names)
        if entries >= max(1, keep // MOVES_PER_RETENTION):
            remove_old_log(table_path, old, table=table)
    except OSError as error:
        logger.warning("the log of %s was not shortened: %s", table, error)


def _can_be_read(checkpoint: Path) -> bool:
    """Return whether a checkpoint is whole Parquet with rows.

    No entry is removed because of a checkpoint that a power cut left incomplete.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(checkpoint).metadata.num_rows > 0
    except (pa.ArrowException, OSError):
        return False

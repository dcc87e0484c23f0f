"""A shorter log of a table in one failure domain: what lies before the versions that stay goes.

Delta's writers remove entries by age, 30 days where nothing else is said, when they make a checkpoint. By then a table with a
commit every few seconds has several hundred thousand of them, and whoever opens it lists them all. So a number of versions stays
here as well (`mirroring/log_cleanup.py` is the same for mirrored tables, where it has to be agreed on).
"""

from __future__ import annotations

import bisect
import logging
from dataclasses import dataclass
from pathlib import Path

from etl_assets.delta.log import (
    checkpoint_path,
    checkpoints,
    log_names,
    newest_checkpoint,
    newest_entry,
    oldest_entry,
)
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.mirroring.log_cleanup import MOVES_PER_RETENTION, names_before, version_of

logger = logging.getLogger("etl_assets")

AT_ONCE = 10_000
"""Files that one commit removes, or a few more: one that shortens a log which grew for months is not held up for long."""
_LOOKS = 100
"""A look at the log with every so-manyth version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLog:
    """What can go from a log.

    Attributes:
        first: The version at which the log begins without it, -1 for none at all.
        names: Its files, in the order in which they may go.
    """

    first: int
    names: tuple[str, ...]


def find_old_log(table_path: Path, keep: int, *, at_once: int | None = None) -> OldLog:
    """The files before the newest checkpoint that leaves `keep` versions readable; without such a one there are none.

    With `at_once` the newest one that has no more files before it, if there is one: what is left then begins with a checkpoint,
    however much there was.
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
    preferred = [*reversed(candidates[:most]), *candidates[most:]]
    first = next((each for each in preferred if _can_be_read(checkpoint_path(table_path, each))), None)
    # What names the newest checkpoint must not come to name one that is gone.
    if first is None or newest_checkpoint(table_path) < first:
        return OldLog(first=oldest, names=())
    return OldLog(first=first, names=tuple(names_before(names, first)))


def remove_old_log(table_path: Path, old: OldLog, *, table: str) -> None:
    """Remove what can go. At any moment, done twice or by two at once, what is left is read from a
    checkpoint on, or an older version cannot be opened at all.
    """
    failpoint(Failpoint.LOG_BEFORE_REMOVE, table=table)
    log = table_path / "_delta_log"
    for name in old.names:
        (log / name).unlink(missing_ok=True)
    logger.info(
        "%s: the log begins at version %d now, %d files of it were removed", table, old.first, len(old.names)
    )


def truncate_log(table_path: Path, version: int, keep: int, *, table: str) -> None:
    """Shorten a log, now and then, after a commit has made a version. The commit counts whatever comes of it."""
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
    """Whether it is Parquet with rows to its end: nothing goes on the strength of what a power cut left."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.ParquetFile(checkpoint).metadata.num_rows > 0
    except (pa.ArrowException, OSError):
        return False

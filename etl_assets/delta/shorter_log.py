"""A shorter log of a table in one failure domain: what lies before the versions that stay goes.

Delta's writers remove entries by age, 30 days where nothing else is said, when they make a checkpoint. By then a table with a
commit every few seconds has several hundred thousand of them, and whoever opens it lists them all. So here as well a number of versions
stays (`mirroring/clean_up.py` is the same for mirrored tables, where it has to be agreed on).
"""

from __future__ import annotations

import itertools
import logging
import re
from dataclasses import dataclass
from pathlib import Path

from etl_assets.delta.log import checkpoint_path, log_names, newest_checkpoint, newest_entry, oldest_entry
from etl_assets.mirroring.clean_up import names_before
from etl_assets.testing.failpoints import Failpoint, failpoint

logger = logging.getLogger("etl_assets")

AT_ONCE = 10_000
"""Files that one commit removes at most: one that shortens a log which grew for months is not held up for long."""
_LOOKS = 100
"""A look at the log with every so-manyth version."""
_MOVES_A_RETENTION = 10
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class OldLog:
    """What can go from a log.

    Attributes:
        first: The version at which the log begins without it, -1 for none at all.
        names: Its files, in the order in which they may go.
    """

    first: int
    names: tuple[str, ...]


def find_old_log(table_path: Path, keep: int) -> OldLog:
    """The files before the newest checkpoint that leaves `keep` versions readable; without such a one there are none."""
    names = log_names(table_path)
    newest, oldest = newest_entry(names), oldest_entry(names)
    whole = OldLog(first=oldest, names=())
    last_to_begin = newest - keep + 1
    candidates = sorted(
        (int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name)) is not None), reverse=True
    )
    for first in candidates:
        if oldest < first <= last_to_begin and _can_be_read(checkpoint_path(table_path, first)):
            # What names the newest checkpoint must not come to name one that is gone.
            points_beyond = newest_checkpoint(table_path) >= first
            return OldLog(first=first, names=tuple(names_before(names, first))) if points_beyond else whole
    return whole


def remove_old_log(table_path: Path, old: OldLog, *, table: str) -> int:
    """Remove what can go; returns how many files. At any moment, done twice or by two at once, what is left is read from a
    checkpoint on, or an older version cannot be opened at all.
    """
    failpoint(Failpoint.LOG_BEFORE_REMOVE, table=table)
    log = table_path / "_delta_log"
    for name in old.names:
        (log / name).unlink(missing_ok=True)
    return len(old.names)


def keep_log_short(table_path: Path, version: int, keep: int, *, table: str) -> None:
    """Shorten a log, now and then, after a commit has made a version. The commit counts whatever comes of it."""
    if version % _LOOKS:
        return
    try:
        old = find_old_log(table_path, keep)
        entries = sum(name.endswith(".json") for name in old.names)
        if entries >= max(1, keep // _MOVES_A_RETENTION):
            some = OldLog(first=old.first, names=tuple(itertools.islice(old.names, AT_ONCE)))
            remove_old_log(table_path, some, table=table)
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

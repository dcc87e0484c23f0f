"""When a run has read everything that its source had when it began: pure decisions.

A source may never be empty, so a run does not wait for that.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl_assets.sources.unread_days import Watched


def has_read_all(
    found: Watched,
    *,
    begun: dt.datetime,
    now: dt.datetime,
    settle_seconds: float,
    read: float,
    first_records: float | None,
) -> bool:
    """Return whether all that is unread came after the run began.

    Args:
        found: What is unread, by a look after the run began.
        begun: When the run began.
        now: When the look was.
        settle_seconds: How long a file is left alone after a change. One that is still left alone later
            than that has changed since.
        read: Records that the run has read.
        first_records: Records that were unread at its first look, if the source counts them.
    """
    if found.left:
        return False
    if found.unsettled and now < begun + dt.timedelta(seconds=settle_seconds):
        return False
    if found.files and (found.oldest_ns is None or found.oldest_ns <= begun.timestamp() * 1e9):
        return False
    lag = found.lag
    if lag is None or lag.records == 0:
        return True
    if lag.oldest is not None and lag.oldest > begun:
        return True
    return first_records is not None and read >= first_records

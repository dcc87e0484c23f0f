"""Waiting for files that have just come, so that a command reads them instead of leaving them to a next one.

Belongs here: how long a command waits, and what it says of files that go on changing. Does not belong here: when a file counts
as complete (`sources/landing.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from etl_assets.cli.dead_letter_options import say

if TYPE_CHECKING:
    from etl_assets.sources.unread_days import Watched

_CLOCK_STEP_SECONDS = 0.1


def look_until_settled(look: Callable[[], Watched], *, settle_seconds: float, wait: bool) -> Watched:
    """Look for unread files; where some have just changed, wait once for as long as they need, and look again.

    A file that changes in between is left: its writer may never end.
    """
    found = look()
    if found.unsettled and wait:
        what = "it" if found.unsettled == 1 else "them"
        say(
            f"{_files(found.unsettled)} changed less than {settle_seconds:g} s ago: waiting for {what}"
            " (landing.settle_seconds; --no-wait does not)"
        )
        time.sleep(settle_seconds + _CLOCK_STEP_SECONDS)
        found = look()
    return found


def say_what_is_left(unsettled: int, *, settle_seconds: float) -> None:
    """Name the files that are not read, and from when on a run reads them."""
    ready = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=settle_seconds)
    verb = "is still being written and was" if unsettled == 1 else "are still being written and were"
    say(
        f"{_files(unsettled)} {verb} not read: run again after {ready:%H:%M:%S} UTC, or {settle_seconds:g} s after the last change"
    )


def _files(number: int) -> str:
    return f"{number:,} {'file' if number == 1 else 'files'}"

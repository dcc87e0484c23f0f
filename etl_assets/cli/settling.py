"""Waiting for files that have just arrived, so that this command reads them and not the next one.

Belongs here: how long a command waits, and its message about files that keep changing. Does not belong here:
when a file counts as complete (`sources/landing.py`).
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from etl_assets.cli.dead_letter_options import say

if TYPE_CHECKING:
    from etl_assets.observability.pending import UnreadFiles

_CLOCK_STEP_SECONDS = 0.1


def look_until_settled(look: Callable[[], UnreadFiles], *, wait: bool) -> UnreadFiles:
    """Search for unread files. If some have just changed, wait once until they settle, and search again.

    A file that changes in between is left unread: its writer may never end.
    """
    found = look()
    if found.unsettled and wait:
        settle_seconds = found.longest_settle_seconds
        what = "it" if found.unsettled == 1 else "them"
        say(
            f"{_files(found.unsettled)} changed less than {settle_seconds:g} s ago: waiting for {what}"
            " (settle_seconds; --no-wait does not)"
        )
        time.sleep(settle_seconds + _CLOCK_STEP_SECONDS)
        found = look()
    return found


def say_what_is_left(unsettled: int, *, settle_seconds: float) -> None:
    """Report the files that were not read, and when a run will read them."""
    ready = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=settle_seconds)
    verb = "is still being written and was" if unsettled == 1 else "are still being written and were"
    say(
        f"{_files(unsettled)} {verb} not read: run again after {ready:%H:%M:%S} UTC, or {settle_seconds:g} s"
        " after the last change"
    )


def _files(number: int) -> str:
    return f"{number:,} {'file' if number == 1 else 'files'}"

"""Which days of the landing folder have something to read: the decision of the landing sensor, without Dagster or Spark.

The cursor is a time and the days still open, not a list of files: a day's folder is looked into when its modification
time is not before the cursor, or when it was open at the last look. So a tick costs one `stat` for each day of history.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from etl_assets.errors import SourceUnreadable
from etl_assets.sources.landing import Folders
from etl_assets.sources.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCursor:
    """Where the watch has got to.

    Attributes:
        seen_ns: Folders modified before this time have been looked into.
        open_days: Days that had unread or unsettled files at the last look, or had not come yet.
        first_day: The first partition then; when it has been changed, everything is looked into anew.
    """

    seen_ns: int = 0
    open_days: tuple[dt.date, ...] = ()
    first_day: dt.date | None = None

    def dump(self) -> str:
        """As text for Dagster."""
        first_day = None if self.first_day is None else self.first_day.isoformat()
        open_days = [day.isoformat() for day in self.open_days]
        return json.dumps({"seen_ns": self.seen_ns, "open_days": open_days, "first_day": first_day})

    @classmethod
    def load(cls, text: str | None) -> WatchCursor:
        """From the text; anything unreadable starts from the beginning, which only costs a longer look."""
        try:
            content = json.loads(text or "{}")
            days = tuple(dt.date.fromisoformat(day) for day in content.get("open_days", ()))
            first_day = content.get("first_day")
            return cls(
                seen_ns=int(content.get("seen_ns", 0)),
                open_days=days,
                first_day=None if first_day is None else dt.date.fromisoformat(first_day),
            )
        except (ValueError, TypeError, AttributeError):
            return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a look found.

    Attributes:
        ready: Days with closed, unread files.
        unsettled: Number of files that are still being written.
        left: Number of days that were not looked into, because there are so many: the next look goes on with them.
        outside: Days with files that have no partition, because they are before the first day or in the future.
        strangers: Entries of the landing folder that are no day.
        unreadable: Errors of days whose folder cannot be listed.
        cursor: To look from next time.
    """

    ready: tuple[dt.date, ...]
    unsettled: int
    left: int
    outside: tuple[dt.date, ...]
    strangers: tuple[str, ...]
    cursor: WatchCursor
    unreadable: Mapping[dt.date, str] = field(default_factory=dict)

    def remarks(self, *, first_day: dt.date, settle_seconds: float) -> Iterator[str]:
        """What is in the folder and is not ready, in words.

        Args:
            first_day: First partition, as it was looked for.
            settle_seconds: As it was looked for.
        """
        if self.unsettled:
            yield f"{self.unsettled} files changed less than {settle_seconds:g} s ago and are not read yet"
        if self.left:
            yield f"{self.left} more {'day is' if self.left == 1 else 'days are'} looked into next time"
        if self.outside:
            days = ", ".join(map(str, self.outside[:5]))
            yield (
                f"{days} {'and more ' if len(self.outside) > 5 else ''}lie outside of the partitions, which start on"
                f" {first_day} and end today; set start_date, or move the files"
            )
        if self.strangers:
            names = ", ".join(self.strangers[:5])
            yield f"{names} in the landing folder are no days (YYYY-MM-DD) and are never read"
        for day, error in self.unreadable.items():
            yield f"{day}: {error}"


def watch(
    folders: tuple[Folders, ...],
    ledger: Ledger,
    cursor: WatchCursor,
    *,
    first_day: dt.date,
    now: dt.datetime,
    settle_seconds: float,
    most_days: int,
) -> Watched:
    """Look for unread files.

    Args:
        folders: The landing folder and the replays.
        ledger: What raw_events has read.
        cursor: Where the last look ended.
        first_day: First partition.
        now: The time; its day is the last partition.
        settle_seconds: How long a file must have been unchanged.
        most_days: Look into at most that many days; the others stay open for the next tick.
    """
    now_ns = int(now.timestamp() * 1e9)
    if cursor.first_day not in (None, first_day):
        cursor = WatchCursor()
    modified: dict[dt.date, int] = {}
    for folder in folders:
        for day, mtime_ns in folder.days():
            modified[day] = max(modified.get(day, 0), mtime_ns)
    suspects = sorted(day for day in modified if modified[day] >= cursor.seen_ns or day in cursor.open_days)
    inside = [day for day in suspects if first_day <= day <= now.date()]
    looked, later = inside[:most_days], inside[most_days:]
    # A day that has not come yet is looked into when it has, even if nothing changes in it until then.
    ahead = [day for day in suspects if day > now.date()]
    ready, still_open, unsettled, unreadable = [], later + ahead, 0, {}
    for day in looked:
        try:
            listings = [
                folder.list_day(day, now_ns=now_ns, settle_seconds=settle_seconds) for folder in folders
            ]
        except SourceUnreadable as error:
            unreadable[day] = error.message
            still_open.append(day)
            continue
        waiting = sum(len(listing.unsettled) for listing in listings)
        files = [file for listing in listings for file in listing.files]
        unread = ledger.unread(files)
        unsettled += waiting
        if unread:
            ready.append(day)
        if unread or waiting:
            still_open.append(day)
    return Watched(
        ready=tuple(ready),
        unsettled=unsettled,
        left=len(later),
        outside=tuple(day for day in suspects if day not in inside),
        strangers=folders[0].strangers(),
        unreadable=unreadable,
        # A folder may change within the same clock tick as this look: those of the last seconds are looked into again.
        cursor=WatchCursor(
            seen_ns=max(cursor.seen_ns, now_ns - 10_000_000_000),
            open_days=tuple(sorted(still_open)),
            first_day=first_day,
        ),
    )

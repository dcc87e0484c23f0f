"""Days of a source's folder with files to read: the decision of the sensors.

Knows no Dagster and no Spark.

The cursor is a time and the days still open, not a list of files. A day's folder is listed when its
modification time is not before the cursor, or when the day was open at the last tick. So a tick costs one
`stat` for each day of history; in a folder without days, one for each file.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from etl_assets.errors import SourceUnreadable
from etl_assets.sources.landing import LANDING, Folders, shown
from etl_assets.sources.ledger import Ledger
from etl_assets.sources.ranges import Lag, Positions
from etl_assets.sources.source_files import SourceFile

MAX_NAMES = 5
"""Most names in a remark about entries that are not read; the rest is a number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Entries of a day's folder that are never read: their number, and the names of the first."""

    names: tuple[str, ...]
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCursor:
    """Position of the watch.

    Attributes:
        seen_ns: Folders modified before this time have been listed.
        open_days: Days with unread or unsettled files at the last tick, and days in the future.
        first_day: The first partition at the last tick; if it has changed, everything is listed again.
        unread: Entries of each day that are never read, as of its last listing.
    """

    seen_ns: int = 0
    open_days: tuple[dt.date, ...] = ()
    first_day: dt.date | None = None
    unread: Mapping[dt.date, Unread] = field(default_factory=dict)

    def dump(self) -> str:
        """Return the cursor as text for Dagster."""
        first_day = None if self.first_day is None else self.first_day.isoformat()
        open_days = [day.isoformat() for day in self.open_days]
        unread = {day.isoformat(): [of.names, of.number] for day, of in self.unread.items()}
        return json.dumps(
            {"seen_ns": self.seen_ns, "open_days": open_days, "first_day": first_day, "unread": unread}
        )

    @classmethod
    def load(cls, text: str | None) -> WatchCursor:
        """Parse a cursor. Unreadable text gives a cursor at the beginning, which costs one longer tick."""
        try:
            content = json.loads(text or "{}")
            days = tuple(dt.date.fromisoformat(day) for day in content.get("open_days", ()))
            first_day = content.get("first_day")
            return cls(
                seen_ns=int(content.get("seen_ns", 0)),
                open_days=days,
                first_day=None if first_day is None else dt.date.fromisoformat(first_day),
                unread={
                    dt.date.fromisoformat(day): Unread(names=tuple(names), number=int(number))
                    for day, (names, number) in content.get("unread", {}).items()
                },
            )
        except (ValueError, TypeError, AttributeError):
            return cls()


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Result of a tick.

    Attributes:
        ready: Days with closed, unread files.
        unsettled: Number of files that are still being written.
        set_aside: Number of entries, in the days listed, whose name marks them as unfinished.
        folder: The folder with the files.
        changed: Files that were read before and have changed since, as `<day>/<name>`.
        sizes: Bytes of the unread files of each ready day.
        left: Number of days left to the next tick, because there are too many.
        outside: Days with files but without a partition: before the first day, or in the future.
        strangers: Entries of the folder that are not days.
        unreadable: Errors of days whose folder cannot be listed.
        files: Number of unread files of the ready days.
        oldest_ns: When the oldest of them was last changed (nanoseconds since 1970); None if there are none.
        newest_ns: When the newest of them was last changed.
        lag: What a source that is read in ranges has beyond its positions; None for files.
        positions: These positions.
        cursor: Cursor of the next tick; it includes the entries that are never read.
    """

    ready: tuple[dt.date, ...]
    unsettled: int
    left: int
    outside: tuple[dt.date, ...]
    strangers: tuple[str, ...]
    cursor: WatchCursor
    folder: Folders
    sizes: Mapping[dt.date, int] = field(default_factory=dict)
    unreadable: Mapping[dt.date, str] = field(default_factory=dict)
    set_aside: int = 0
    changed: tuple[str, ...] = ()
    files: int = 0
    oldest_ns: int | None = None
    newest_ns: int | None = None
    lag: Lag | None = None
    positions: Positions = field(default_factory=dict)

    @property
    def _place(self) -> str:
        return "the landing folder" if self.folder.source == LANDING else shown(self.folder.place)

    @property
    def _elsewhere(self) -> str:
        return "" if self.folder.source == LANDING else f" in {self._place}"

    @property
    def _files(self) -> str:
        return "event files" if self.folder.source == LANDING else "files of this source"

    def remarks(self, *, first_day: dt.date, settle_seconds: float) -> Iterator[str]:
        """Yield sentences about files in the folder that are not ready.

        Args:
            first_day: First partition, as given to `watch`.
            settle_seconds: Settling time, as given to `watch`.
        """
        if self.unsettled:
            yield f"{self.unsettled} files changed less than {settle_seconds:g} s ago and are not read yet"
        if self.left:
            yield f"{self.left} more {'day is' if self.left == 1 else 'days are'} looked into next time"
        if self.set_aside:
            yield (
                "not read yet because of unfinished files' names (`.` or `_` first, .tmp, .part,"
                f" .inprogress): {self.set_aside:,}"
            )
        if self.changed:
            yield f"changed after being read, and read again: {_some(self.changed)}"
        if self.outside:
            yield (
                f"{_some([str(day) for day in self.outside])} lie outside of the partitions, which start on"
                f" {first_day} and end today; set start_date, or move the files"
            )
        if self.strangers:
            yield f"{_some(self.strangers)} in {self._place} are no days (YYYY-MM-DD) and are never read"
        if unread := self.cursor.unread:
            names = [f"{day}/{name}" for day in sorted(unread) for name in unread[day].names]
            number = sum(of_day.number for of_day in unread.values())
            yield (
                f"{_some(names, number)}{self._elsewhere} are no {self._files} ({self.folder.file_names}; no"
                " links, no folders) and are never read"
            )
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
    """Find unread files.

    Args:
        folders: The folder with the files, and the replays.
        ledger: The files that the source's table has read.
        cursor: Cursor of the last tick.
        first_day: First partition.
        now: The time; its day is the last partition.
        settle_seconds: How long a file must have been unchanged.
        most_days: Most days to list; the others stay open for the next tick.
    """
    now_ns = int(now.timestamp() * 1e9)
    if cursor.first_day not in (None, first_day):
        cursor = WatchCursor()
    folders = tuple(folder.scanned() for folder in folders)
    modified: dict[dt.date, int] = {}
    for folder in folders:
        for day, mtime_ns in folder.days():
            modified[day] = max(modified.get(day, 0), mtime_ns)
    suspects = sorted(day for day in modified if modified[day] >= cursor.seen_ns or day in cursor.open_days)
    inside = [day for day in suspects if first_day <= day <= now.date()]
    looked, later = inside[:most_days], inside[most_days:]
    # A future day is listed once it has come, even if nothing changes in it until then.
    ahead = [day for day in suspects if day > now.date()]
    ready, still_open, unsettled, unreadable = [], later + ahead, 0, {}
    set_aside, changed = 0, []
    unread_files: list[SourceFile] = []
    sizes: dict[dt.date, int] = {}
    never_read = {day: of_day for day, of_day in cursor.unread.items() if day in modified}
    for day in looked:
        try:
            listings = [
                folder.list_day(day, now_ns=now_ns, settle_seconds=settle_seconds) for folder in folders
            ]
        except SourceUnreadable as error:
            unreadable[day] = f"{error.message}; {error.fix}"
            still_open.append(day)
            continue
        ignored = [name for listing in listings for name in listing.ignored]
        never_read[day] = Unread(names=tuple(ignored[:MAX_NAMES]), number=len(ignored))
        set_aside += sum(len(listing.set_aside) for listing in listings)
        waiting = sum(len(listing.unsettled) for listing in listings)
        files = [file for listing in listings for file in listing.files]
        unread = ledger.unread(files)
        changed += [f"{day}/{shown(file.name)}" for file in ledger.changed(unread)]
        unsettled += waiting
        if unread:
            ready.append(day)
            sizes[day] = sum(file.size for file in unread)
            unread_files += unread
        if unread or waiting:
            still_open.append(day)
    return Watched(
        ready=tuple(ready),
        sizes=sizes,
        unsettled=unsettled,
        left=len(later),
        outside=tuple(sorted(day for day in modified if not first_day <= day <= now.date())),
        strangers=folders[0].strangers(),
        folder=replace(folders[0], scan=None),
        unreadable=unreadable,
        set_aside=set_aside,
        changed=tuple(changed),
        files=len(unread_files),
        oldest_ns=min((file.mtime_ns for file in unread_files), default=None),
        newest_ns=max((file.mtime_ns for file in unread_files), default=None),
        cursor=WatchCursor(
            seen_ns=_seen_until(cursor.seen_ns, now_ns, max(modified.values(), default=0)),
            open_days=tuple(sorted(still_open)),
            first_day=first_day,
            unread={day: of_day for day, of_day in sorted(never_read.items()) if of_day.number},
        ),
    )


def _seen_until(seen_ns: int, now_ns: int, newest_ns: int) -> int:
    """Return the time before which folders that were modified are known.

    A folder may change within the same clock tick as its listing: the folders of the last seconds are listed
    again, and the newest one once more whatever the clock says. The clock of the folder's file system may be
    behind that of this machine, so nothing later than the newest folder counts as seen.
    """
    return max(seen_ns, min(now_ns - 10_000_000_000, newest_ns + (seen_ns >= newest_ns)))


def _some(names: Sequence[str], number: int | None = None) -> str:
    """Return the first of some names, and how many more there are."""
    more = (len(names) if number is None else number) - len(names[:MAX_NAMES])
    return ", ".join(names[:MAX_NAMES]) + (f" and {more:,} more" if more else "")

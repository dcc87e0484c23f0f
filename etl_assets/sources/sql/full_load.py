"""A query as a source that is read as a whole: each load has all rows, in ranges of their ids.

Guarantees:

- After a load the table has exactly the rows that it read: each range has those that differ from the last
  record of their id (`comparison.py`), and the last range the ids that are gone.
- One session reads one snapshot of the database, where the database keeps one. A load that another session
  goes on with continues after the last range, and sees the database as it is then.
- Without an interval, a load is followed by another until the database's rows are those that were read: the
  digest of what was read is added up range by range, and compared with the database's.
- Order: ids, as the database compares them.

Belongs here: when a load begins, and its ranges. Does not belong here: asking the database (`database.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.errors import EtlAssetsError
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange
from etl_assets.sources.sql.bounds import KeyBounds, Pair
from etl_assets.sources.sql.database import Database
from etl_assets.sources.sql.key_columns import check_key_columns
from etl_assets.sources.sql.staged import IDS, QUERY, ROWS, WITHOUT_KEY, file_name, staged_files


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPosition:
    """How far a load is.

    Attributes:
        load: Its number, from 1 on; 0 before the first one.
        began_at: When it began, in ISO 8601; empty before the first one.
        after: The last pair that was read; None at the beginning and at the end.
        is_done: Whether it has read everything.
        digest: Digest of the rows that it has read; empty if loads begin by time.
    """

    load: int = 0
    began_at: str = ""
    after: Pair | None = None
    is_done: bool = True
    digest: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the position as JSON."""
        return {
            "load": self.load,
            "began_at": self.began_at,
            "after": None if self.after is None else self.after.as_json(),
            "done": self.is_done,
            "digest": self.digest,
        }

    @staticmethod
    def of(positions: Positions) -> LoadPosition:
        """Return the position of a source's; that of an incremental load is none."""
        found: Mapping[str, Any] = positions.get(QUERY) or {}
        if "load" not in found:
            return LoadPosition()
        return LoadPosition(
            load=found["load"],
            began_at=found["began_at"],
            after=Pair.of(found["after"]),
            is_done=found["done"],
            digest=found["digest"],
        )


@dataclass(slots=True, kw_only=True)
class SqlFullLoad:
    """A query, read as a whole each time.

    Attributes:
        name: What messages call it.
        database: The database that is asked.
        id: One or two columns that identify a row.
        interval_seconds: How long after the beginning of a load the next one begins; None: whenever the
            digest of the result is another one.
        now: Returns the time; its day is that of the records.
    """

    name: str
    database: Database
    id: tuple[str, ...]
    interval_seconds: float | None = None
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)
    _session: tuple[int, str] | None = field(default=None, init=False)
    _is_mixed: bool = field(default=False, init=False)

    @property
    def is_repeatable(self) -> bool:
        """No: rows change."""
        return False

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next range of the load that is under way, or of one that is due; None otherwise."""
        before = LoadPosition.of(positions)
        if before.is_done and not self._may_be_due(before):
            return None
        try:
            return self._planned(positions, before, max_bytes=max_bytes, max_records=max_records)
        except EtlAssetsError:
            self.database.release()
            raise

    def _planned(
        self, positions: Positions, before: LoadPosition, *, max_bytes: int, max_records: int
    ) -> ReadRange | None:
        snapshot = self.database.hold()
        if before.is_done and not self._is_due(before):
            self.database.release()
            return None
        is_continued = self._join(before, snapshot)
        load = before.load + 1 if before.is_done else before.load
        # 1. Find the end of the range, and whether rows are left after it.
        check_key_columns(self.database, self.name, (self.id[0], self.id[-1]), before.after)
        limit = max(1, min(max_records, max_bytes // max(1, self.database.row_bytes())))
        end = self.database.last(KeyBounds(after=before.after), limit)
        is_last = end is None or self.database.last(KeyBounds(after=end), 1) is None
        # 2. Say where the load is after it.
        after = LoadPosition(
            load=load,
            began_at=self.now().isoformat() if before.is_done else before.began_at,
            after=None if is_last else end,
            is_done=is_last,
            digest=self._digest_after(before, end, is_last=is_last),
        )
        return ReadRange(
            begin=positions,
            end={QUERY: after.as_json()},
            details={
                "day": self.now().date().isoformat(),
                "after": None if before.after is None else before.after.as_json(),
                "until": None if end is None else end.as_json(),
                "ids": is_last,
                "session": snapshot,
            },
            # Rows may have changed between two sessions: look again whether they have.
            more=not is_last or self._is_mixed,
            notes=("the load goes on in another session, after its last range",) if is_continued else (),
        )

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write the rows of a range as lines of JSON, and at the end of a load the ids of all rows."""
        load = wanted.end[QUERY]["load"]
        after, until = Pair.of(wanted.details["after"]), Pair.of(wanted.details["until"])
        day = folder / wanted.details["day"]
        day.mkdir(parents=True, exist_ok=True)
        rows, without_key = day / file_name(ROWS, load), day / file_name(WITHOUT_KEY, load)
        if until is not None:
            self.database.write(KeyBounds(after=after, until=until), rows)
        if wanted.details["ids"]:
            self.database.write(None, without_key)
            self.database.write_ids(tuple(dict.fromkeys(self.id)), folder / IDS)
            self.database.release()
        return RangeRead(read=wanted, files=staged_files(wanted, (rows, without_key)))

    def confirm(self, positions: Positions) -> None:
        """Do nothing: rows stay where they are."""

    def lag(self, positions: Positions) -> Lag:
        """Return whether there is something to read; how many rows differ is not known."""
        before = LoadPosition.of(positions)
        is_due = not before.is_done
        if before.is_done and self._may_be_due(before):
            is_due = self._is_due(before)
        return Lag(records=None if is_due else 0, oldest=None, first_day=self.now().date())

    def close(self) -> None:
        """Let go of connections."""
        self._session, self._is_mixed = None, False
        self.database.close()

    def _join(self, before: LoadPosition, snapshot: str) -> bool:
        """Let this session be the one that reads a load; return whether another one has read a part of it."""
        session = (before.load + 1 if before.is_done else before.load, snapshot)
        is_continued = not before.is_done and self._session != session
        self._is_mixed = not before.is_done and (self._is_mixed or is_continued)
        self._session = session
        return is_continued

    def _may_be_due(self, before: LoadPosition) -> bool:
        """Return whether a load may begin, as far as this is known without the database."""
        if self.interval_seconds is None or not before.load:
            return True
        began_at = dt.datetime.fromisoformat(before.began_at)
        return self.now() >= began_at + dt.timedelta(seconds=self.interval_seconds)

    def _is_due(self, before: LoadPosition) -> bool:
        """Return whether a load begins that may be due."""
        if self.interval_seconds is not None or not before.load:
            return True
        with self.database.snapshot():
            digest = f"{self.database.digest(KeyBounds())}/{self.database.digest(None)}"
        return digest != before.digest

    def _digest_after(self, before: LoadPosition, end: Pair | None, *, is_last: bool) -> str:
        """Return the digest of the rows that a load has read after a range."""
        if self.interval_seconds is not None:
            return ""
        digest = _NOTHING if before.is_done else before.digest or _NOTHING
        if end is not None:
            digest = _sum(digest, self.database.digest(KeyBounds(after=before.after, until=end)))
        return f"{digest}/{self.database.digest(None)}" if is_last else digest


_NOTHING = "0:0"
"""The digest of no rows."""


def _sum(one: str, other: str) -> str:
    """Return the digest of two sets of rows together."""
    pairs = zip(one.split(":"), other.split(":"), strict=True)
    return ":".join(str(int(first) + int(second)) for first, second in pairs)

"""A query as a source: what is new since a position, by an ascending key.

Guarantees:

- Order: rows are read in the order of `(incremental key, id)`, as the database compares them.
- Replay: a range is a pair of keys, and is read again by them. It has the rows that the database has then:
  one that changed since has moved on to a later range.
- Late rows: a row that becomes visible with a key that was passed already is read if its key lies within the
  overlap. The digest of the overlap's rows shows that there is one. Beyond the overlap it is not read.
- Deleted rows are noticed where ids are compared (`comparison.py`): every `detect_deletes_seconds` a range
  has the ids of all rows too.
- Rows without a key or an id have no place in that order. They are read apart, whenever one of them changes.

Belongs here: which rows are read next. Does not belong here: asking the database (`database.py`), and
checking a declaration (`validation.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange
from etl_assets.sources.sql.bounds import KeyBounds, Pair
from etl_assets.sources.sql.database import Database
from etl_assets.sources.sql.key_columns import check_key_columns
from etl_assets.sources.sql.staged import COLUMNS, IDS, QUERY, ROWS, WITHOUT_KEY, staged_files

MAX_COUNTED = 100_000
"""Rows that `lag` counts at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlQuery:
    """A query, read incrementally.

    Attributes:
        name: What messages call it.
        database: The database that is asked.
        key: Column of the incremental key.
        id: Column that orders rows of equal keys.
        overlap: How far before the position to look for late rows: seconds, or a number.
        detect_deletes_seconds: How often all ids are read; None: never.
        write_columns: Writes rows in bounds as columns, and those that are not plain as lines of JSON, into
            two files. None: all rows are lines.
        today: Returns the day under which rows are stored that are planned now.
        now: Returns the time.
    """

    name: str
    database: Database
    key: str
    id: str
    overlap: Decimal | None = None
    detect_deletes_seconds: float | None = None
    write_columns: Callable[[KeyBounds, Path, Path], None] | None = None
    today: Callable[[], dt.date] = lambda: dt.datetime.now(dt.UTC).date()
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC)

    @property
    def is_repeatable(self) -> bool:
        """No: a row that has changed since is no longer in the range."""
        return False

    def plan(self, positions: Positions, *, max_bytes: int, max_records: int) -> ReadRange | None:
        """Return the next range; None if no row was added, changed in the overlap, or lost its key."""
        position: Mapping[str, Any] = positions.get(QUERY) or {}
        before = Pair.of(position.get("pair"))
        self._check(before)
        with self.database.snapshot():
            limit = max(1, min(max_records, max_bytes // max(1, self.database.row_bytes())))
            end = self.database.last(KeyBounds(after=before), limit)
            late = self._is_late(before, position)
            nulls = self.database.digest(None)
            other_nulls = nulls != _nulls_of(position)
            ids = self._compares_ids(position)
            if end is None and not late and not other_nulls and not ids:
                return None
            after = end or before
            window = "" if after is None else self._window(after)
        pair = None if after is None else after.as_json()
        compared = {} if self.detect_deletes_seconds is None else {"compared": self._compared(position, ids)}
        return ReadRange(
            begin=positions,
            end={QUERY: {"pair": pair, "window": window, "nulls": nulls, **compared}},
            details={
                "day": self.today().isoformat(),
                "late": late,
                "nulls": other_nulls and nulls != _NOTHING,
                **({"ids": True} if ids else {}),
            },
            more=end is not None,
        )

    def read(self, wanted: ReadRange, folder: Path) -> RangeRead:
        """Write the rows of a range as lines of JSON under the day of its plan."""
        position: Mapping[str, Any] = wanted.begin.get(QUERY) or {}
        before, until = Pair.of(position.get("pair")), Pair.of(wanted.end[QUERY]["pair"])
        self._check(before)
        day = folder / wanted.details["day"]
        day.mkdir(parents=True, exist_ok=True)
        overlap = self.overlap if wanted.details["late"] else None
        columns, rows, without_key = day / COLUMNS, day / ROWS, day / WITHOUT_KEY
        if until is not None and (until != before or overlap is not None):
            bounds = KeyBounds(after=before, until=until, overlap=overlap)
            if self.write_columns is None:
                self.database.write(bounds, rows)
            else:
                self.write_columns(bounds, columns, rows)
        if wanted.details["nulls"]:
            self.database.write(None, without_key)
        if wanted.details.get("ids"):
            self.database.write_ids((self.id,), folder / IDS)
        return RangeRead(read=wanted, files=staged_files(wanted, (columns, rows, without_key)))

    def confirm(self, positions: Positions) -> None:
        """Do nothing: rows stay where they are."""

    def lag(self, positions: Positions) -> Lag:
        """Return how many rows lie beyond the position (None: over `MAX_COUNTED`), and the first time.

        Late rows and changed ones without a key are not counted: None too. All are read under today's day,
        however old their keys are.
        """
        position: Mapping[str, Any] = positions.get(QUERY) or {}
        before = Pair.of(position.get("pair"))
        bounds = KeyBounds(after=before)
        with self.database.snapshot():
            rows = self.database.count(bounds, MAX_COUNTED + 1)
            if not rows:
                other = (
                    self._compares_ids(position)
                    or self._is_late(before, position)
                    or self.database.digest(None) != _nulls_of(position)
                )
                return Lag(records=None if other else 0, oldest=None, first_day=self.today())
            oldest = self.database.first_time(bounds)
        return Lag(records=rows if rows <= MAX_COUNTED else None, oldest=oldest, first_day=self.today())

    def close(self) -> None:
        """Let go of connections."""
        self.database.close()

    def _is_late(self, before: Pair | None, position: Mapping[str, Any]) -> bool:
        """Return whether the overlap has other rows than at the position."""
        return before is not None and self._window(before) != position.get("window", "")

    def _window(self, pair: Pair) -> str:
        if self.overlap is None:
            return ""
        return self.database.digest(KeyBounds(after=pair, until=pair, overlap=self.overlap))

    def _compares_ids(self, position: Mapping[str, Any]) -> bool:
        """Return whether it is time to read all ids; before the first range there is nothing to compare."""
        if self.detect_deletes_seconds is None or not position:
            return False
        compared = position.get("compared")
        if compared is None:
            return True
        due = dt.datetime.fromisoformat(compared) + dt.timedelta(seconds=self.detect_deletes_seconds)
        return self.now() >= due

    def _compared(self, position: Mapping[str, Any], ids: bool) -> str | None:
        """Return when ids were last compared, after a range."""
        return self.now().isoformat() if ids or not position else position.get("compared")

    def _check(self, before: Pair | None) -> None:
        check_key_columns(self.database, self.name, (self.key, self.id), before)


_NOTHING = "0:0"
"""The digest of no rows."""


def _nulls_of(position: Mapping[str, Any]) -> str:
    """Return the digest of the rows without a key that a position has."""
    return position.get("nulls", _NOTHING)

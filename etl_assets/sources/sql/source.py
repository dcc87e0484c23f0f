"""A query as a source: what is new since a position, by an ascending key.

Guarantees:

- Order: rows are read in the order of `(incremental key, id)`, as the database compares them.
- Replay: a range is a pair of keys, and is read again by them. It has the rows that the database has then:
  one that changed since has moved on to a later range.
- Late rows: a row that becomes visible with a key that was passed already is read if its key lies within the
  overlap. The digest of the overlap's rows shows that there is one. Beyond the overlap it is not read.
- Rows without a key or an id have no place in that order. They are read apart, whenever one of them changes.

Belongs here: which rows are read next. Does not belong here: asking the database (`database.py`), and
checking a declaration (`validation.py`).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from etl_assets.errors import SourceRefused
from etl_assets.sources.ranges import Lag, Positions, RangeRead, ReadRange, StagedFile
from etl_assets.sources.sql.bounds import Key, KeyBounds, Pair
from etl_assets.sources.sql.database import Database

QUERY = "query"
"""The one partition of the input, in positions."""
MAX_COUNTED = 100_000
"""Rows that `lag` counts at most."""
_SAME = ({"int2", "int4", "int8", "numeric"}, {"text", "varchar"})
"""Types whose values compare alike: a column may change from one to another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlQuery:
    """A query, read incrementally.

    Attributes:
        name: What messages call it.
        database: The database that is asked.
        key: Column of the incremental key.
        id: Column that orders rows of equal keys.
        overlap: How far before the position to look for late rows: seconds, or a number.
        today: Returns the day under which rows are stored that are planned now.
    """

    name: str
    database: Database
    key: str
    id: str
    overlap: Decimal | None = None
    today: Callable[[], dt.date] = lambda: dt.datetime.now(dt.UTC).date()

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
            if end is None and not late and not other_nulls:
                return None
            after = end or before
            window = "" if after is None else self._window(after)
        pair = None if after is None else after.as_json()
        return ReadRange(
            begin=positions,
            end={QUERY: {"pair": pair, "window": window, "nulls": nulls}},
            details={
                "day": self.today().isoformat(),
                "late": late,
                "nulls": other_nulls and nulls != _NOTHING,
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
        if until is not None and (until != before or overlap is not None):
            self._write(KeyBounds(after=before, until=until, overlap=overlap), day / _ROWS)
        if wanted.details["nulls"]:
            self._write(None, day / _WITHOUT_KEY)
        files = tuple(
            StagedFile(day=dt.date.fromisoformat(day.name), name=name, place=f"{_place(wanted)}/{name}")
            for name in (_ROWS, _WITHOUT_KEY)
            if (day / name).exists()
        )
        return RangeRead(read=wanted, files=files)

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
                other = self._is_late(before, position) or self.database.digest(None) != _nulls_of(position)
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

    def _write(self, bounds: KeyBounds | None, path: Path) -> None:
        self.database.write(bounds, path)
        if path.stat().st_size == 0:
            path.unlink()

    def _check(self, before: Pair | None) -> None:
        """Check the key columns against the query's result and the position.

        Raises:
            SourceRefused: a key column is missing, or has another type than the position.
        """
        columns = {each.name: each for each in self.database.columns()}
        held = {self.key: before.key if before else None, self.id: before.id if before else None}
        for name, key in held.items():
            if (column := columns.get(name)) is None:
                raise SourceRefused(
                    f"{self.name}: the query's result has no column {name} any more",
                    fix=f"let the query return it again; it returns {', '.join(columns)}",
                    source=self.name,
                )
            if column.type and not column.orders:
                raise self._type_refused(name, column.type, "it has no order that positions can follow")
            if key is not None and not _alike(key, column.type):
                raise self._type_refused(name, column.type, f"the position has a value of type {key.type}")

    def _type_refused(self, name: str, type_: str, why: str) -> SourceRefused:
        return SourceRefused(
            f"{self.name}: the column {name} is {type_}, and {why}",
            fix=f"cast it in the query to the type that it had, or name another key than {name}",
            source=self.name,
        )


_NOTHING = "0:0"
"""The digest of no rows."""
_ROWS, _WITHOUT_KEY = "rows.jsonl", "rows-without-key.jsonl"


def _nulls_of(position: Mapping[str, Any]) -> str:
    """Return the digest of the rows without a key that a position has."""
    return position.get("nulls", _NOTHING)


def _place(wanted: ReadRange) -> str:
    """Return what no other range is called, so that no two records have one source position."""
    text = json.dumps([wanted.begin, wanted.end], sort_keys=True)
    return f"{QUERY}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _alike(key: Key, type_: str) -> bool:
    return not type_ or key.type == type_ or any({key.type, type_} <= kinds for kinds in _SAME)

"""Changes that lack values of their row, completed from other changes and from stored rows, in Arrow.

A change has a text with what it lacked when it arrived: a JSON object from the name of a field to the place
in the sequence of the change that its value is from, or to the empty text if no change has had it yet. NULL:
the change has all values of its own place. So a value is replaced by one of a later place only, and a row
ends up the same in whatever order its changes arrive.

A change of a key lacks the values of another row: that of the key before. The delete of that row is at the
same place in the sequence, directly before it. Under `FORMER_KEY` the object has this key as JSON.

Belongs here: which value each change gets. Does not belong here: reading stored rows and writing changes
(`partial_changes.py`, `steps/complete_changes.py`), and which changes are late (`changes.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_calls import call
from etl_assets.contracts.tables.tombstones import IS_TRUNCATE
from etl_assets.delta.write.changes import IS_DELETED

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

IS_STORED = "_is_stored"
"""Column, true or false: whether a row is one of the table, or a tombstone, and no change."""
FORMER_KEY = ""
"""What a change lacks under this name is the key that its row had before. No field has an empty name."""
_AT_ONCE = 10_000
"""Rows are taken so many at a time, so that no array of texts has more than 2 GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LackingColumns:
    """What columns of changes mean that may lack values.

    Attributes:
        keys: Columns that identify a row.
        sequence: The column that places a change in the sequence: a text that sorts, or a number.
        arrival: The column that counts changes in the order of their arrival.
        lacks: The column that says what a change lacks.
        fields: For each column that may be lacked, the name of its field.
        key_fields: The names of the fields of the keys.
    """

    keys: tuple[str, ...]
    sequence: str
    arrival: str
    lacks: str
    fields: Mapping[str, str]
    key_fields: tuple[str, ...]

    @property
    def former(self) -> tuple[str, ...]:
        """Columns with the key that the row of a change had before; null if it is the same."""
        return tuple(f"_former_{number}" for number in range(len(self.keys)))


def completed_changes(rows: pa.Table, columns: LackingColumns) -> pa.Table:
    """Return changes with the values that they lack, as far as another one or a stored row has them.

    Args:
        rows: Changes with `_is_deleted`, `_is_truncate` and `_is_stored`, stored rows of their keys and of
            their former keys, and tombstones of both as stored deletes. May have the columns of `former`.
        columns: The meaning of the columns.

    Returns:
        The changes in their order, without `_is_stored` and former keys. After them the stored rows that got
        a value: with the `_offset` of the change that has it, so that they are newer than what is stored.
    """
    import numpy as np
    import pyarrow as pa

    found = _Completion(rows=rows, columns=columns)
    found.run()
    # 1. Which rows there are: stored ones only if they got a value.
    stored = rows.column(IS_STORED).to_numpy()
    filled = sorted(each for each in found.places if stored[each] and found.is_news(each))
    kept = np.concatenate([np.flatnonzero(~stored), np.array(filled, dtype=np.int64)]).astype(np.int64)
    # 2. Where each of their values is.
    names = [name for name in rows.column_names if name not in (IS_STORED, *columns.former)]
    values = {}
    for name in names:
        givers = np.arange(rows.num_rows)
        for number, giver in found.givers.get(name, {}).items():
            givers[number] = giver
        values[name] = _taken(rows.column(name), givers[kept])
    lacks, arrivals = values[columns.lacks].to_pylist(), values[columns.arrival].to_pylist()
    for place, number in enumerate(kept.tolist()):
        if number in found.places:
            lacks[place] = json.dumps(found.places[number], separators=(",", ":"), sort_keys=True)
            if stored[number]:
                arrivals[place] = found.arrivals[number]
    values[columns.lacks] = pa.chunked_array([pa.array(lacks, pa.string())])
    values[columns.arrival] = pa.chunked_array([pa.array(arrivals, pa.int64())])
    return pa.table(values)


@dataclass(frozen=True, slots=True)
class _Giver:
    """A row that has a value: the place of the value, when it arrived, and the number of the row."""

    place: str
    arrival: int
    row: int

    def is_after(self, other: _Giver) -> bool:
        return (self.place, self.arrival) > (other.place, other.arrival)


@dataclass(slots=True, kw_only=True)
class _Completion:
    """One pass over rows in the order of the sequence.

    Attributes:
        rows: The rows.
        columns: The meaning of their columns.
        givers: For a column, the row whose value a row takes, by the number of the row.
        places: Places of the values of rows that lack some, by field; the empty text if nothing has it.
        arrivals: When the last value of such a row arrived.
    """

    rows: pa.Table
    columns: LackingColumns
    givers: dict[str, dict[int, int]] = field(default_factory=dict, init=False)
    places: dict[int, dict[str, str]] = field(default_factory=dict, init=False)
    arrivals: dict[int, int] = field(default_factory=dict, init=False)
    _before: dict[int, dict[str, str]] = field(default_factory=dict, init=False)
    _live: dict[Any, dict[str, _Giver]] = field(default_factory=dict, init=False)
    _gone: dict[Any, tuple[str, dict[str, _Giver]]] = field(default_factory=dict, init=False)
    """Of the last deleted row of each key: the place of the delete, and what it had."""

    def run(self) -> None:
        """Find a giver for each value that is lacked."""
        keys = _tuples(self.rows, self.columns.keys)
        former = _tuples(self.rows, self.columns.former)
        lacks = self.rows.column(self.columns.lacks).to_pylist()
        sequences = [place_text(each) for each in self.rows.column(self.columns.sequence).to_pylist()]
        arrivals = self.rows.column(self.columns.arrival).to_pylist()
        is_deleted = self.rows.column(IS_DELETED).to_pylist()
        is_truncate = self.rows.column(IS_TRUNCATE).to_pylist()
        for row in _in_order(self.rows, self.columns):
            key, place = keys[row], sequences[row]
            if is_truncate[row]:
                self._live.clear()
            elif is_deleted[row]:
                if (had := self._live.pop(key, None)) is not None:
                    self._gone[key] = place, had
            else:
                whole = _Giver(place, arrivals[row], row)
                had = self._had(key, former[row] if former else None, place)
                self._live[key] = self._completed(whole, lacks[row], had)

    def is_news(self, row: int) -> bool:
        """Return whether a row has got a value that it did not have."""
        return self.places[row] != self._before[row]

    def _had(self, key: Any, former: Any, place: str) -> Mapping[str, _Giver]:
        """Return what the row of a change had before it."""
        if former is None:
            return self._live.get(key, {})
        deleted_at, had = self._gone.get(former, ("", {}))
        return had if deleted_at == place else {}

    def _completed(self, whole: _Giver, lacks: str | None, had: Mapping[str, _Giver]) -> dict[str, _Giver]:
        """Return who has the values of a row after a change."""
        mine = dict.fromkeys(self.columns.fields, whole)
        if lacks is None:
            return mine
        lacked = json.loads(lacks)
        lacked.pop(FORMER_KEY, None)
        places, arrival = dict(lacked), whole.arrival
        for name, field_ in self.columns.fields.items():
            if field_ not in lacked:
                continue
            known = _Giver(lacked[field_], whole.arrival, whole.row) if lacked[field_] else None
            before = had.get(name)
            best = before if known is None or (before is not None and before.is_after(known)) else known
            if best is None:
                del mine[name]
                continue
            mine[name] = best
            places[field_] = best.place
            arrival = max(arrival, best.arrival)
            self.givers.setdefault(name, {})[whole.row] = best.row
        self.places[whole.row], self._before[whole.row] = places, lacked
        self.arrivals[whole.row] = arrival
        return mine


def place_text(place: str | int | None) -> str:
    """Return a place in the sequence as a text that sorts."""
    return "" if place is None else f"{place:020d}" if isinstance(place, int) else place


def _in_order(rows: pa.Table, columns: LackingColumns) -> Iterable[int]:
    """Return the numbers of rows by their places. Rows that are stored come before changes of their place."""
    import pyarrow.compute as pc

    order = [columns.sequence, columns.arrival]
    options = pc.SortOptions([(name, "ascending", "at_start") for name in order])
    return pc.call_function("sort_indices", [rows.select(order)], options).to_pylist()


def _tuples(rows: pa.Table, names: tuple[str, ...]) -> list[Any]:
    """Return some columns as one value for each row; None where one of them is null."""
    if not set(names) <= set(rows.column_names):
        return []
    values = [rows.column(name).to_pylist() for name in names]
    if len(values) == 1:
        return values[0]
    return [None if None in each else each for each in zip(*values, strict=True)]


def _taken(column: pa.ChunkedArray, places: np.ndarray) -> pa.ChunkedArray:
    """Return values at places, some at a time."""
    import pyarrow as pa

    type_ = column.type
    large = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}.get(type_)
    whole = column if large is None else column.cast(large)
    whole = whole.combine_chunks() if whole.num_chunks != 1 else whole.chunk(0)
    parts = [
        call("take", whole, pa.array(places[first : first + _AT_ONCE])).cast(type_)
        for first in range(0, len(places), _AT_ONCE)
    ]
    return pa.chunked_array(parts, type_) if parts else pa.chunked_array([], type_)

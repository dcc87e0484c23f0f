"""Delta's statistics of a data file: how many rows, and of each listed column the bounds and the nulls.

Belongs here: which statistics an entry may hold, and how they are spelled. A file has them of every listed column, or of none:
of a column without bounds beside others that have them, delta-rs takes the bounds for null, and a reader that asks for a
value of it is not shown the file.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_LETTERS = 1_024
"""Of a longer text the bounds hold its beginning."""
_LAST_LETTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A column of a file: its nulls, and its lowest and highest value, both None where all are null."""

    nulls: int
    low: Any = None
    high: Any = None

    def tells(self, rows: int) -> bool:
        """Whether there is a bound for each value of a file with so many rows."""
        return self.nulls == rows or (_is_bound(self.low) and _is_bound(self.high))


def statistics(rows: int, columns: Mapping[str, Bounds | None]) -> dict[str, Any]:
    """The statistics of a file.

    Args:
        rows: How many rows it has.
        columns: Bounds by listed column; None where nobody knows them. One such takes those of the others with it.
    """
    told = {name: bounds for name, bounds in columns.items() if bounds is not None and bounds.tells(rows)}
    if not told or len(told) < len(columns):
        return {"numRecords": rows}
    filled = {name: bounds for name, bounds in told.items() if bounds.low is not None}
    return {
        "numRecords": rows,
        "minValues": {name: _lower(bounds.low) for name, bounds in filled.items()},
        "maxValues": {name: _upper(bounds.high) for name, bounds in filled.items()},
        "nullCount": {name: bounds.nulls for name, bounds in told.items()},
    }


def bounds_of(values: pa.ChunkedArray) -> Bounds:
    """The bounds of a column, by its values."""
    import pyarrow.compute as pc

    found = pc.call_function("min_max", [values]).as_py()
    return Bounds(values.null_count, found["min"], found["max"])


def bounds_over(some: Iterable[Bounds]) -> Bounds:
    """The bounds of the pieces of a column together."""
    pieces = list(some)
    filled = [each for each in pieces if each.low is not None]
    return Bounds(
        sum(each.nulls for each in pieces),
        min((each.low for each in filled), default=None),
        max((each.high for each in filled), default=None),
    )


def listed(fields: Iterable[Mapping[str, Any]], names: Collection[str] | None) -> list[str]:
    """Of the columns of a table those that its files have bounds of; of all of them, where the table lists none.

    Args:
        fields: The columns as the log has them.
        names: Those that it lists (`delta.dataSkippingStatsColumns`).
    """
    simple = (field["name"] for field in fields if isinstance(field["type"], str))
    return [name for name in simple if names is None or name in names]


def as_json(found: Mapping[str, Any]) -> str:
    """Statistics as an entry holds them. A decimal is a number with all its digits."""
    return _encoded(found)


def _is_bound(value: Any) -> bool:
    return isinstance(value, bool | int | str | Decimal | dt.date)  # a time is a date, too


def _lower(value: Any) -> Any:
    return value[:_MAX_LETTERS] if isinstance(value, str) else value


def _upper(value: Any) -> Any:
    if isinstance(value, str) and len(value) > _MAX_LETTERS:
        return value[:_MAX_LETTERS] + _LAST_LETTER
    return value


def _encoded(value: Any) -> str:
    match value:
        case Mapping():
            fields = (f"{json.dumps(name)}:{_encoded(each)}" for name, each in value.items())
            return f"{{{','.join(fields)}}}"
        case Decimal():
            return f"{value:f}"
        case dt.datetime() if value.tzinfo is None:
            return json.dumps(value.isoformat())
        case dt.datetime():
            return json.dumps(value.astimezone(dt.UTC).replace(tzinfo=None).isoformat() + "Z")
        case dt.date():
            return json.dumps(value.isoformat())
    return json.dumps(value)

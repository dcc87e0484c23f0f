"""Delta's statistics of a data file: its number of rows, and the bounds and nulls of each listed column.

Belongs here: which statistics an entry may hold, and their spelling. A file has statistics of every listed
column, or of none. If one column lacks bounds beside others that have them, delta-rs takes its bounds for
null: a reader that asks for one of its values is not shown the file.
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
"""The bounds of a longer text hold only its first characters."""
_LAST_LETTER = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Bounds:
    """A column of a file: its nulls, and its lowest and highest value, both None where all are null."""

    nulls: int
    low: Any = None
    high: Any = None

    def tells(self, rows: int) -> bool:
        """Return whether the bounds cover every value, in a file with this many rows."""
        return self.nulls == rows or (_is_bound(self.low) and _is_bound(self.high))


def statistics(rows: int, columns: Mapping[str, Bounds | None]) -> dict[str, Any]:
    """Return the statistics of a file.

    Args:
        rows: Number of its rows.
        columns: Bounds by listed column; None where they are unknown. One unknown column removes the bounds
            of all.
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
    """Return the bounds of a column, computed from its values."""
    import pyarrow.compute as pc

    found = pc.call_function("min_max", [values]).as_py()
    return Bounds(values.null_count, found["min"], found["max"])


def bounds_over(some: Iterable[Bounds]) -> Bounds:
    """Return the bounds of the pieces of a column together."""
    pieces = list(some)
    filled = [each for each in pieces if each.low is not None]
    return Bounds(
        sum(each.nulls for each in pieces),
        min((each.low for each in filled), default=None),
        max((each.high for each in filled), default=None),
    )


def listed(fields: Iterable[Mapping[str, Any]], names: Collection[str] | None) -> list[str]:
    """Return the columns that a table's files have bounds of; all simple columns where the table lists none.

    Args:
        fields: The columns as the log has them.
        names: The columns that the table lists (`delta.dataSkippingStatsColumns`), None if it lists none.
    """
    simple = (field["name"] for field in fields if isinstance(field["type"], str))
    return [name for name in simple if names is None or name in names]


def as_json(found: Mapping[str, Any]) -> str:
    """Return statistics as an entry holds them. A decimal is a number with all its digits."""
    return _encoded(found)


def _is_bound(value: Any) -> bool:
    return isinstance(value, bool | int | str | Decimal | dt.date)  # a datetime is a date, too


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

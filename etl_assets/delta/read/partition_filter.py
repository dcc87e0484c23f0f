"""Values of a Delta partition column as a condition: in SQL, and on the typed values of file statistics.

Belongs here: which values are meant. Does not belong here: which values a Dagster partition key means
(`io_managers/partition_keys.py`), or how the log writes a value.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from etl_assets.contracts.sql_text import string_literal

Value = str | int | bool | dt.date | dt.datetime
"""A value as file statistics have it; `datetime` with its time zone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFilter:
    """Some values of a column, all of one type.

    Attributes:
        values: Single values.
        spans: Ranges, each from its first value up to, but not including, its second.
    """

    values: frozenset[Value] = frozenset()
    spans: tuple[tuple[Any, Any], ...] = ()

    @classmethod
    def of(cls, *values: Value) -> PartitionFilter:
        """Return the filter of single values."""
        return cls(values=frozenset(values))

    @classmethod
    def between(cls, start: Value, end: Value) -> PartitionFilter:
        """Return the filter of the values from `start` up to, but not including, `end`."""
        return cls(spans=((start, end),))

    @classmethod
    def union(cls, parts: Iterable[PartitionFilter]) -> PartitionFilter:
        """Return the filter of the values of all parts; ranges that touch become one."""
        parts = list(parts)
        return cls(
            values=frozenset().union(*(part.values for part in parts)),
            spans=tuple(_joined(span for part in parts for span in part.spans)),
        )

    def holds(self, value: Value | None) -> bool:
        """Return whether the filter includes a value; NULL is never included."""
        if value is None:
            return False
        return value in self.values or any(start <= value < end for start, end in self.spans)

    def condition(self, column: str) -> str:
        """Return a Spark SQL condition on a column, given as SQL names it. The condition is NULL for NULL."""
        parts = []
        if self.values:
            parts.append(f"{column} IN ({', '.join(sorted(map(_literal, self.values)))})")
        parts += [
            f"({column} >= {_literal(start)} AND {column} < {_literal(end)})" for start, end in self.spans
        ]
        if not parts:
            return "FALSE"
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"


def _joined(spans: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    joined: list[tuple[Any, Any]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def _literal(value: Value) -> str:
    if isinstance(value, str):
        return string_literal(value)
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, dt.datetime):
        # With its zone, so that the session's does not matter.
        return f"TIMESTAMP '{value.astimezone(dt.UTC).isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    return str(value)

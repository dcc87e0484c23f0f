"""Values of a table's column that a Dagster partition key represents.

Belongs here: the column types that tell an asset's partitions apart, and how each reads a key. A key must
represent values of its own, and always the same ones, when rows are stored, merged, loaded and counted.
Anything else is refused before a row is written. Does not belong here: conditions on the values
(`delta/read/partition_filter.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.errors import ContractError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

NO_PARTITION = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Delta stores as NULL in a partition column."""
_INTEGERS = frozenset({"byte", "short", "integer", "long"})
_DAY = dt.timedelta(days=1)
_CLOCK_CHANGE = dt.timedelta(hours=2)
_AS_TEXT = (
    "make {column} a STRING column that holds the partition key, for example F.lit(context.partition_key),"
    " and store the asset under a new name or remove its table first"
)


def values_by_key(
    definition: dg.PartitionsDefinition, keys: Sequence[str], *, column: str, type_: DataType, asset: str
) -> dict[str, PartitionFilter]:
    """Return the values of the column that each partition key represents.

    A STRING column holds the key itself. A DATE or TIMESTAMP column of an asset with time windows holds any
    value within the key's window. Otherwise a DATE, BOOLEAN or whole number column holds the value that Spark
    writes as the key.

    Raises:
        ContractError: a key represents no value of the column. Carries `asset`, `column` and `value`, the
            key.
    """
    value_of = _reader(definition, type_.typeName())
    if value_of is None:
        kind = type(definition).__name__
        raise ContractError(
            f"the column {column} of the asset {asset} is {type_.simpleString().upper()}, which cannot tell"
            f" the partitions of a {kind} apart",
            fix=_AS_TEXT.format(column=column),
            asset=asset,
            column=column,
        )
    found: dict[str, PartitionFilter] = {}
    for key in keys:
        values = value_of(key)
        if values is None:
            raise ContractError(
                f"the partition key {key!r} of the asset {asset} is no value of its column {column}, which is"
                f" {type_.simpleString().upper()}",
                fix=f"name the partition as Spark writes the value ({_EXAMPLES[type_.typeName()]}), or "
                + _AS_TEXT.format(column=column),
                asset=asset,
                column=column,
                value=key,
            )
        found[key] = values
    return found


_EXAMPLES: Mapping[str, str] = {
    "string": "a text that is not empty",
    "date": "2026-01-31",
    "timestamp": "a time window",
    "boolean": "true or false",
    **dict.fromkeys(_INTEGERS, "1, not 01"),
}


def _reader(
    definition: dg.PartitionsDefinition, type_: str
) -> Callable[[str], PartitionFilter | None] | None:
    """Return the function from a key to its values; None if the column type cannot be used.

    The function returns None for a key that represents no value.
    """
    windows = definition if isinstance(definition, dg.TimeWindowPartitionsDefinition) else None
    if type_ == "string":
        return lambda key: None if key in NO_PARTITION else PartitionFilter.of(key)
    if type_ == "date":
        return (
            _date if windows is None else lambda key: _dates(windows.time_window_for_partition_key(key), key)
        )
    if type_ == "timestamp" and windows is not None:
        return lambda key: _instants(windows.time_window_for_partition_key(key))
    if type_ == "boolean":
        return lambda key: PartitionFilter.of(key == "true") if key in ("true", "false") else None
    if type_ in _INTEGERS:
        return _integer
    return None


def _integer(key: str) -> PartitionFilter | None:
    try:
        number = int(key)
    except ValueError:
        return None
    return PartitionFilter.of(number) if str(number) == key else None


def _date(key: str) -> PartitionFilter | None:
    try:
        day = dt.date.fromisoformat(key)
    except ValueError:
        return None
    return PartitionFilter.of(day) if day.isoformat() == key else None


def _dates(window: dg.TimeWindow, key: str) -> PartitionFilter | None:
    """Return the days of a window from midnight to midnight.

    For another window of about a day, return the day that the key names; else None.
    """
    if window.start.time() == window.end.time() == dt.time():
        return PartitionFilter.between(window.start.date(), window.end.date())
    is_a_day = abs(window.end - window.start - _DAY) < _CLOCK_CHANGE
    return _date(key) if is_a_day else None


def _instants(window: dg.TimeWindow) -> PartitionFilter:
    return PartitionFilter.between(window.start.astimezone(dt.UTC), window.end.astimezone(dt.UTC))

"""Keys of a row that was written as JSON, as values of the table that it came from.

Targets have their own forms of times and numbers: a decimal is a text or a number, a time has a `Z` or an
offset. Belongs here: reading them by the type of the key column. Does not belong here: writing them
(`sinks/`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.column_types import ColumnType, DecimalType, ScalarType

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract


def parse_row(text: str | bytes) -> Mapping[str, Any]:
    """Parse a row that was written as JSON; numbers keep their digits.

    Raises:
        ValueError: the text is not a JSON object.
    """
    row = json.loads(text, parse_float=Decimal)
    if not isinstance(row, dict):
        raise ValueError("not an object")
    return row


def key_values(row: Mapping[str, Any], contract: TableContract) -> tuple[Any, ...]:
    """Return the keys of a row, in the order of the table's.

    Raises:
        ValueError: a key is missing, or no value of its column's type.
    """
    try:
        return tuple(
            None if row[name] is None else _value(row[name], contract.column(name).parsed_type)
            for name in contract.merge_key
        )
    except (KeyError, TypeError, InvalidOperation) as error:
        raise ValueError(f"no value of a key: {error}") from error


def _value(value: Any, type_: ColumnType) -> Any:
    match type_:
        case DecimalType():
            return Decimal(str(value))
        case ScalarType("INT" | "BIGINT"):
            return int(value)
        case ScalarType("DATE"):
            return dt.date.fromisoformat(value)
        case ScalarType("TIMESTAMP"):
            at = dt.datetime.fromisoformat(value)
            return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
        case ScalarType("BOOLEAN") if isinstance(value, bool):
            return value
        case ScalarType("STRING") if isinstance(value, str):
            return value
    raise ValueError(f"{type(value).__name__} is no {type_.ddl}")

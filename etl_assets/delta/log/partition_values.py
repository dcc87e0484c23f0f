"""Values of Delta partition columns as text: in log entries, and in the names of folders.

Belongs here: the one spelling of each value, both ways. Does not belong here: which partitions a table has.
The spelling is that of Spark and Delta, so that each program finds and reads the files of the others. A time
is UTC.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from etl_assets.errors import ContractError, InputError

PartitionText = Mapping[str, str | None]
"""Values of partition columns as a log entry spells them; None for null."""
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(1, 0x20)))
"""Characters that Spark escapes in the name of a folder (ExternalCatalogUtils).

Letters of other alphabets stay as they are: of an escaped one, Spark would read each byte as a character.
"""
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")


def as_text(value: Any) -> str | None:
    """Return a value as a log entry spells it. Null and the empty text are the same partition.

    Raises:
        ContractError: a partition column cannot have a value of that type.
    """
    match value:
        case None | "":
            return None
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case Decimal():
            return f"{value:f}"
        case dt.datetime() if value.tzinfo is None:
            return value.isoformat(sep=" ")
        case dt.datetime():
            utc = value.astimezone(dt.UTC).replace(tzinfo=None)
            return f"{utc.isoformat(timespec='microseconds')}Z"
        case dt.date():
            return value.isoformat()
    raise ContractError(
        f"a value of type {type(value).__name__} cannot be in a partition column",
        fix="partition by a text, a whole number, a decimal, a boolean, a date or a timestamp",
        found=type(value).__name__,
    )


def day_of(text: str | None, *, table: str) -> dt.date:
    """Return the day of a partition.

    Raises:
        InputError: the partition's value is not a day.
    """
    try:
        return dt.date.fromisoformat(text or "")
    except ValueError as error:
        raise InputError(
            f"the table {table} has rows in the partition {text!r}, which is not a day",
            fix="find out which program wrote them, and give them their day or delete them there",
            table=table,
            value=text,
        ) from error


def folder_of(partition: PartitionText, columns: Iterable[str]) -> str:
    """Return the folder of a partition's data files, as Spark names it. Its parts follow `columns`."""
    return "/".join(f"{_escaped(column)}={_folder_value(partition[column])}" for column in columns)


def values_in(folders: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Return the columns and values in the names of folders, as a log entry spells them."""
    for folder in folders:
        column, _, value = folder.partition("=")
        yield _unescaped(column), None if value == _NULL_FOLDER else _unescaped(value)


def value_of(text: str | None, type_: str) -> Any:
    """Return the value that a log entry spells, of a column of the type DATE, STRING, INT or BIGINT."""
    if text is None or type_ == "STRING":
        return text
    return dt.date.fromisoformat(text) if type_ == "DATE" else int(text)


def with_zone(text: str | None) -> str | None:
    """Return a time of a TIMESTAMP column as a log entry spells it, from a UTC text with or without zone."""
    if text is None:
        return None
    at = dt.datetime.fromisoformat(text)
    return as_text(at if at.tzinfo is not None else at.replace(tzinfo=dt.UTC))


def _folder_value(text: str | None) -> str:
    return _escaped(text) if text else _NULL_FOLDER


def _escaped(text: str) -> str:
    return "".join(f"%{ord(letter):02X}" if letter in _ESCAPED else letter for letter in text)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)

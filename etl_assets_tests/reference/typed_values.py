"""What a value of a JSON record becomes in a column of a type, said once more in plain Python."""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from typing import Any

BLANKS = "".join(map(chr, range(0x21))) + "\x7f"
WRONG = object()
"""The value is not of the type."""
_DECIMAL = re.compile(r"DECIMAL\((\d+),(\d+)\)")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
_DOUBLE = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))?"
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def typed(value: Any, type_: str) -> Any:
    """The value in the column: `None` for null, `WRONG` for a value of another type.

    Args:
        value: As the canonical record has it, its numbers `int` or `Decimal`.
        type_: A scalar type.
    """
    if value is None:
        return None
    if type_ == "STRING":
        return value if isinstance(value, str) else text_of(value)
    if decimal := _DECIMAL.fullmatch(type_):
        return _decimal(value, int(decimal[1]), int(decimal[2]))
    return {"INT": _int(31), "BIGINT": _int(63), "BOOLEAN": _boolean, "DATE": _date,
            "TIMESTAMP": _timestamp, "DOUBLE": _double}[type_](value)  # fmt: skip


def text_of(value: Any) -> str:
    """A value that is no text as canonical JSON."""
    match value:
        case dict():
            return (
                "{"
                + ",".join(
                    f"{json.dumps(key, ensure_ascii=False)}:{_json(value[key])}" for key in sorted(value)
                )
                + "}"
            )
        case list():
            return "[" + ",".join(map(_json, value)) + "]"
        case bool() | None:
            return json.dumps(value)
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else text_of(value)


def _number_text(value: Any) -> str | None:
    """The value as the text of a number."""
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        return None
    return value.strip(BLANKS) if isinstance(value, str) else text_of(value)


def _int(bits: int) -> Any:
    def convert(value: Any) -> Any:
        text = _number_text(value)
        if text is None or not re.fullmatch(r"[+-]?[0-9]+", text):
            return WRONG
        return int(text) if -(2**bits) <= int(text) < 2**bits else WRONG

    return convert


def _decimal(value: Any, precision: int, scale: int) -> Any:
    text = _number_text(value)
    if text is None or not _NUMBER.fullmatch(text):
        return WRONG
    whole, _, fraction = text.partition(".")
    if len(fraction.rstrip("0")) > scale or abs(int(whole)) >= 10 ** (precision - scale):
        return WRONG
    return Decimal(text)


def _boolean(value: Any) -> Any:
    text = text_of(value) if isinstance(value, bool) else value
    if not isinstance(text, str):
        return WRONG
    return {"true": True, "false": False}.get(text.strip(BLANKS).lower(), WRONG)


def _date(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return WRONG
    try:
        return dt.date.fromisoformat(value)
    except ValueError:
        return WRONG


def _timestamp(value: Any) -> Any:
    if isinstance(value, bool):
        return WRONG
    if isinstance(value, int):
        try:
            return _EPOCH + dt.timedelta(milliseconds=value)
        except OverflowError:
            return WRONG
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return WRONG
    year, month, day, hour, minute, second = (int(part or 0) for part in found.groups()[:6])
    micros = int((found[7] or "0").ljust(6, "0")[:6])
    sign, hours, minutes = found[9] or "+", int(found[10] or 0), int(found[11] or 0)
    if minutes > 59 or hours * 60 + minutes > 18 * 60:
        return WRONG
    shift = dt.timedelta(hours=hours, minutes=minutes)
    try:
        at = dt.datetime(year, month, day, hour, minute, second, micros, tzinfo=dt.UTC)
        return at - shift if sign == "+" else at + shift
    except (ValueError, OverflowError):
        return WRONG


def _double(value: Any) -> Any:
    text = _number_text(value)
    if text is None or not _DOUBLE.fullmatch(text):
        return WRONG
    number = float(text)
    return WRONG if math.isinf(number) else number

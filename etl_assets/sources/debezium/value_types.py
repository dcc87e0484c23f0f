"""Values of Debezium's and Kafka Connect's logical types as JSON that columns take.

Days are `2026-01-31`, times ISO 8601 in UTC, decimals texts with all digits. A value of another form than its
type says is an error. Types that are not named here stay as they are.

Belongs here: from a type's name to the conversion, and from a schema to the conversions of its fields. Does
not belong here: which schema an event has (`envelopes.py`, `avro_values.py`).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from etl_assets.sources.debezium.not_an_event import NotAnEvent

Convert = Callable[[Any], Any]
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times are written with their zone, UTC
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_LAST_DAY = dt.date.max.toordinal()
_PER_SECOND = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
_DECLARED_DECIMAL = re.compile(r"decimal\(([0-9]+)\)\Z")
_MAX_SCALE = 1_000


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise NotAnEvent("it is no whole number, which its type says")
    return value


def day(value: Any) -> str:
    """Return a number of days since 1970."""
    ordinal = _EPOCH_DAY + _whole(value)
    if not 1 <= ordinal <= _LAST_DAY:
        raise NotAnEvent("its day is outside of the years 1 to 9999")
    return dt.date.fromordinal(ordinal).isoformat()


def timestamp(value: Any, *, unit: str) -> str:
    """Return a number of milli-, micro- or nanoseconds since 1970 as a time in UTC."""
    seconds, rest = divmod(_whole(value), _PER_SECOND[unit])
    try:
        at = _EPOCH + dt.timedelta(seconds=seconds)
    except OverflowError:
        raise NotAnEvent("its time is outside of the years 1 to 9999") from None
    return f"{at.isoformat()}{_fraction(rest, unit)}Z"


def time_of_day(value: Any, *, unit: str) -> str:
    """Return a number of milli-, micro- or nanoseconds as `12:00:00`; MySQL has negative and long ones."""
    whole = _whole(value)
    seconds, rest = divmod(abs(whole), _PER_SECOND[unit])
    sign = "-" if whole < 0 else ""
    clock = f"{seconds // 3_600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{sign}{clock}{_fraction(rest, unit)}"


def _fraction(rest: int, unit: str) -> str:
    digits = f"{rest:0{len(str(_PER_SECOND[unit])) - 1}}".rstrip("0")
    return f".{digits}" if digits else ""


def decimal(value: Any, *, scale: int) -> Any:
    """Return the bytes of an unscaled number in base64 as a decimal text; a number stays one."""
    if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
        return value  # decimal.handling.mode=double
    return _plain(_unscaled(value), scale)


def variable_scale_decimal(value: Any) -> Any:
    """Return `{"scale": 2, "value": "AeI="}` as a decimal text."""
    if not isinstance(value, dict) or not isinstance(scale := value.get("scale"), int):
        raise NotAnEvent("it has no scale and value, which its type says")
    return _plain(_unscaled(value.get("value")), scale)


def _unscaled(value: Any) -> int:
    try:
        content = base64.b64decode(value, validate=True) if isinstance(value, str) else b""
    except binascii.Error:
        content = b""
    if not content:
        raise NotAnEvent("it is not the base64 of a decimal, which its type says")
    return int.from_bytes(content, "big", signed=True)


def _plain(unscaled: int, scale: int) -> str:
    if abs(scale) > _MAX_SCALE:
        raise NotAnEvent(f"its scale {scale} is out of bounds")
    sign, digits = ("-" if unscaled < 0 else ""), str(abs(unscaled))
    if scale <= 0:
        return f"{sign}{digits}{'0' * -scale if unscaled else ''}"
    digits = digits.zfill(scale + 1)
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}"


def _iso_day(value: Any) -> Any:
    return value.removesuffix("Z") if isinstance(value, str) else value


_BY_NAME: Mapping[str, Convert] = {
    "io.debezium.time.Date": day,
    "org.apache.kafka.connect.data.Date": day,
    "io.debezium.time.IsoDate": _iso_day,
    "io.debezium.time.Timestamp": partial(timestamp, unit="millis"),
    "io.debezium.time.MicroTimestamp": partial(timestamp, unit="micros"),
    "io.debezium.time.NanoTimestamp": partial(timestamp, unit="nanos"),
    "org.apache.kafka.connect.data.Timestamp": partial(timestamp, unit="millis"),
    "io.debezium.time.Time": partial(time_of_day, unit="millis"),
    "io.debezium.time.MicroTime": partial(time_of_day, unit="micros"),
    "io.debezium.time.NanoTime": partial(time_of_day, unit="nanos"),
    "org.apache.kafka.connect.data.Time": partial(time_of_day, unit="millis"),
    "io.debezium.data.VariableScaleDecimal": variable_scale_decimal,
}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


def named(name: Any, parameters: Any = None) -> Convert | None:
    """Return the conversion of a logical type by its name in a schema; None if values stay as they are."""
    if name == _DECIMAL:
        text = str(parameters.get("scale")) if isinstance(parameters, Mapping) else ""
        if not re.fullmatch(r"-?[0-9]{1,4}", text):
            raise NotAnEvent("a decimal of its schema has no scale")
        return partial(decimal, scale=int(text))
    return _BY_NAME.get(name) if isinstance(name, str) else None


def declared(type_: str) -> Convert:
    """Return the conversion of a type as a declaration has it under `types`."""
    if found := _DECLARED_DECIMAL.match(type_):
        return partial(decimal, scale=int(found[1]))
    kind, _, unit = type_.partition("_")
    if kind == "date":
        return day
    return partial(timestamp if kind == "timestamp" else time_of_day, unit=unit)


def of_schema(schema: Any) -> Convert | None:
    """Return the conversion of the values of a Connect schema, as `JsonConverter` writes it.

    Raises:
        NotAnEvent: the schema has a decimal without scale.
    """
    if not isinstance(schema, Mapping):
        return None
    if found := named(schema.get("name"), schema.get("parameters")):
        return found
    if schema.get("type") == "array":
        return array(of_schema(schema.get("items")))
    if schema.get("type") == "struct":
        fields = schema.get("fields")
        known = [each for each in fields if isinstance(each, Mapping)] if isinstance(fields, list) else []
        return struct({str(each.get("field")): of_schema(each) for each in known})
    return None


def array(items: Convert | None) -> Convert | None:
    """Return the conversion of a list."""
    if items is None:
        return None
    return partial(_converted_items, convert=items)


def _converted_items(value: Any, *, convert: Convert) -> Any:
    if not isinstance(value, list):
        return value
    return [each if each is None else convert(each) for each in value]


def struct(fields: Mapping[str, Convert | None]) -> Convert | None:
    """Return the conversion of an object."""
    known = {name: each for name, each in fields.items() if each is not None}
    return partial(converted, conversions=known) if known else None


def converted(value: Any, *, conversions: Mapping[str, Convert]) -> Any:
    """Return an object with some of its values converted.

    Raises:
        NotAnEvent: a value is not of its type. Names the field.
    """
    if not isinstance(value, dict):
        return value
    return {name: _one(name, each, conversions.get(name)) for name, each in value.items()}


def _one(name: str, value: Any, convert: Convert | None) -> Any:
    if value is None or convert is None:
        return value
    try:
        return convert(value)
    except NotAnEvent as error:
        raise NotAnEvent(f"{name} cannot be read: {error}") from None

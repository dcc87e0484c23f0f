"""Error message for an invalid platform file: the field, the value found, what is allowed, and no secret."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from etl_assets.errors import SettingsError
from etl_assets.settings.connections import (
    CONNECTION_TYPES,
    Connection,
    type_of,
)
from etl_assets.settings.domains import DomainSettings
from etl_assets.settings.platform import Settings
from etl_assets.settings.section import Section
from etl_assets.settings.spark import is_secret

_OF_MORE_THAN_A_VALUE = {
    "extra_forbidden",
    "model_type",
    "model_attributes_type",
    "dict_type",
    "list_type",
    "tuple_type",
}
"""Types of pydantic's errors about an unknown field, or a value in place of a section or a list."""
_BOUNDS = {"expected": "one of", "ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
_OF_NO_USE = {"error", "pattern", "field_type", "actual_length", "class_name"}
"""Parts of pydantic's errors that are of no use to people."""
_FIELDS = {"connections": "file_connections"}
_NAMES = {field: name for name, field in _FIELDS.items()}
"""Names in the platform file of fields that are called otherwise in code."""
_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"]*@|(?<=[^\s'\"][?;])[^\s'\"]*=[^\s'\"]*")


def refusal(file: Path, error: ValidationError) -> SettingsError:
    """Return the error that names the first wrong field."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    allowed, given = _allowed(first), _given(first)
    what = field if given is None else f"{field} = {given}"
    # For a validator of ours, the reason is the error's own text.
    why = (
        "it is not of the form that is expected"
        if first["type"] == "string_pattern_mismatch"
        else first.get("ctx", {}).get("error", first["msg"])
    )
    return SettingsError(
        f"{file}: {what} is wrong: {why}" if field else f"{file}: {why}",
        fix=f"allowed: {allowed}" if allowed else "see docs/settings.md for the fields and their values",
        field=field,
        value=given,
        allowed=allowed,
    )


def _given(first: Any) -> str | None:
    """Return the value found; None unless the field is known, has a single value and cannot hold a secret."""
    loc = first["loc"]
    # What stands in a connection may be a password in the wrong place.
    may_be_secret = loc[:2] == ("spark", "config") or loc[:1] == ("connections",)
    known = first["type"] not in _OF_MORE_THAN_A_VALUE and not may_be_secret
    if not known or not isinstance(first["input"], (str, int, float, dt.date)):
        return None
    return _CREDENTIALS.sub("…", repr(first["input"]))


def _allowed(first: Any) -> str:
    """Return what is allowed, in words: the broken pattern or bound, or the known field names."""
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        given, types = first.get("ctx", {}).get("tag", ""), [type_of(each) for each in CONNECTION_TYPES]
        close = difflib.get_close_matches(str(given), types, n=1)
        return (f"did you mean `{close[0]}`? " if close else "") + "types: " + ", ".join(types)
    if first["type"] == "extra_forbidden":
        fields = _section(first["loc"]).model_fields
        names = [_NAMES.get(name, name) for name in fields if name != "home"]
        close = difflib.get_close_matches(str(first["loc"][-1]), names, n=1)
        return (f"did you mean `{close[0]}`? " if close else "") + "fields: " + ", ".join(names)
    if first["type"] == "string_type" and first["loc"][:2] == ("spark", "config") and len(first["loc"]) == 3:
        return _in_quotes(str(first["loc"][2]), first["input"])
    words = [
        f"{_BOUNDS.get(key, key)} {value:g}"
        if isinstance(value, float)
        else f"{_BOUNDS.get(key, key)} {value}"
        for key, value in first.get("ctx", {}).items()
        if key not in _OF_NO_USE and not first["type"].startswith("date")
    ]
    if first["type"].startswith("date"):
        words.append("a day as YYYY-MM-DD")
    if examples := _examples(first["loc"]):
        words.append(f"{'' if words else 'values '}such as {' or '.join(f'`{each}`' for each in examples)}")
    return ", ".join(words)


def _in_quotes(setting: str, given: object) -> str:
    shown = str(given).lower() if isinstance(given, bool) else str(given)
    known = isinstance(given, (bool, int, float)) and not is_secret(setting)
    return f'a text, in quotes: `{setting}: "{shown if known else "…"}"`'


def _examples(location: tuple[str | int, ...]) -> list[str]:
    """Return valid values of a field: its examples, or its default."""
    if (field := _field(location)) is None:
        return []
    default = field.default if isinstance(field.default, tuple) else (field.default,)
    given = field.examples or [
        value for value in default if isinstance(value, (str, int, float, dt.date, Path))
    ]
    return [str(value) for value in given]


def _field(location: tuple[str | int, ...]) -> FieldInfo | None:
    name = _FIELDS.get(str(location[0]), str(location[0])) if location else ""
    if (top := Settings.model_fields.get(name)) is None:
        return None
    names = [part for part in location[1:] if isinstance(part, str)]
    kind = DomainSettings if location[0] == "domains" else top.annotation
    if location[0] == "connections":
        kind, names = _connection(location), names[2:]
    if isinstance(kind, type) and issubclass(kind, Section):
        return kind.model_fields.get(names[0]) if names else None
    return top


def _section(location: tuple[str | int, ...]) -> type[Section]:
    """Return the section of a field: sections are one level deep, but those of domains and connections."""
    if len(location) == 1:
        return Settings
    if location[0] == "connections":
        return _connection(location) or Connection
    kind = Settings.model_fields[str(location[0])].annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else DomainSettings


def _connection(location: tuple[str | int, ...]) -> type[Section] | None:
    """Return the class of a connection, by the type in a location such as connections.NAME.postgres.host."""
    kinds = {type_of(each): each for each in CONNECTION_TYPES}
    return kinds.get(str(location[2])) if len(location) > 2 else None

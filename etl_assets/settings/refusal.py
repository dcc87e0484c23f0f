"""What is said of a platform file that is refused: the field, what was found, what is allowed, and no secret."""

from __future__ import annotations

import datetime as dt
import difflib
import re
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from etl_assets.errors import SettingsError
from etl_assets.settings.domains import DomainSettings
from etl_assets.settings.platform import Settings
from etl_assets.settings.section import Section

_OF_MORE_THAN_A_VALUE = {
    "extra_forbidden",
    "model_type",
    "model_attributes_type",
    "dict_type",
    "list_type",
    "tuple_type",
}
"""What pydantic says where a field is not known, or a value stands in place of a section or a list."""
_CREDENTIALS = re.compile(r"(?<=://)[^\s'\"]*@|(?<=[^\s'\"][?;])[^\s'\"]*=[^\s'\"]*")


def refusal(file: Path, error: ValidationError) -> SettingsError:
    """The error that names the first field that is wrong."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    allowed, given = _allowed(first), _given(first)
    what = field if given is None else f"{field} = {given}"
    # Of a validator of ours it is the error's own text.
    why = first.get("ctx", {}).get("error", first["msg"])
    return SettingsError(
        f"{file}: {what} is wrong: {why}" if field else f"{file}: {why}",
        fix=f"allowed: {allowed}" if allowed else "see docs/settings.md for the fields and their values",
        field=field,
        value=given,
        allowed=allowed,
    )


def _given(first: Any) -> str | None:
    """The value that was found, if it is that of a field which can hold no secret: a known one, of a single value."""
    known = first["type"] not in _OF_MORE_THAN_A_VALUE and first["loc"][:2] != ("spark", "config")
    if not known or not isinstance(first["input"], (str, int, float, dt.date)):
        return None
    return _CREDENTIALS.sub("…", repr(first["input"]))


def _allowed(first: Any) -> str:
    """What may stand there, in words: the pattern or bound that was broken, or the known field names."""
    if first["type"] == "extra_forbidden":
        names = [name for name in _section(first["loc"]).model_fields if name != "home"]
        close = difflib.get_close_matches(str(first["loc"][-1]), names, n=1)
        return (f"did you mean `{close[0]}`? " if close else "") + "fields: " + ", ".join(names)
    return ", ".join(f"{key} {value}" for key, value in first.get("ctx", {}).items() if key != "error")


def _section(location: tuple[str | int, ...]) -> type[Section]:
    """The part of the file a field stands in: sections are one level deep, and domains the only list of them."""
    if len(location) == 1:
        return Settings
    kind = Settings.model_fields[str(location[0])].annotation
    return kind if isinstance(kind, type) and issubclass(kind, Section) else DomainSettings

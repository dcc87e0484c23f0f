"""MongoDB's Extended JSON, versions 1 and 2, as JSON that columns take.

Ids are their hexadecimal digits, times ISO 8601 in UTC, numbers numbers (a decimal is a text), bytes base64,
undefined values null. What has no form of its own, such as a regular expression, stays as it is.
"""

from __future__ import annotations

import re
from typing import Any

from etl_assets.contracts import canonical_json
from etl_assets.contracts.canonical_json import Refused
from etl_assets.sources.debezium.not_an_event import NotAnEvent
from etl_assets.sources.debezium.value_types import timestamp

_WHOLE = re.compile(r"-?[0-9]{1,20}\Z")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z")


def parsed(text: Any, what: str) -> Any:
    """Return the values of a text in Extended JSON.

    Args:
        text: The text.
        what: The field that it is, for people.

    Raises:
        NotAnEvent: it is none.
    """
    if not isinstance(text, str):
        raise NotAnEvent(f"{what} is no text in JSON, as MongoDB's connector writes it")
    try:
        value, _ = canonical_json.parse(text.encode())
    except Refused as refused:
        raise NotAnEvent(f"{what} is no text in JSON: {refused.error}") from None
    return plain(value)


def plain(value: Any) -> Any:
    """Return a value of Extended JSON as plain JSON."""
    match value:
        case {"$oid": str(digits)} | {"$symbol": str(digits)} | {"$numberDecimal": str(digits)}:
            return digits
        case {"$numberLong": each} | {"$numberInt": each}:
            return int(each) if _WHOLE.match(str(each)) else each
        case {"$numberDouble": each}:
            return float(each) if _NUMBER.match(str(each)) else str(each)
        case {"$date": at}:
            at = plain(at)
            return timestamp(at, unit="millis") if isinstance(at, int) else at
        case {"$binary": {"base64": str(content)}} | {"$binary": str(content)}:
            return content
        case {"$uuid": str(text)} | {"$code": str(text)}:
            return text
        case {"$undefined": True}:
            return None
        case dict():
            return {name: plain(each) for name, each in value.items()}
        case list():
            return [plain(each) for each in value]
    return value

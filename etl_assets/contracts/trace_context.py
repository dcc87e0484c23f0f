"""The W3C trace context of a record: the value of the header `traceparent`.

Belongs here: its form (https://www.w3.org/TR/trace-context/). Does not belong here: where records have it
from (`sources/`), and where it is sent (`sinks/`).
"""

from __future__ import annotations

import re
from typing import Any

TRACEPARENT = "traceparent"
"""The header of HTTP and of Kafka records."""
MAX_CHARACTERS = 256
_TRACE_ID = re.compile(r"(?!0{32})[0-9a-f]{32}")
_FORM = re.compile(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?P<trace_id>(?!0{32})[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}"
    r"(?P<more>-[!-~]*)?"
)


def trace_id_of(value: Any) -> str | None:
    """Return the trace id of a `traceparent`; None if the value is none, or another text."""
    if not isinstance(value, str) or len(value) > MAX_CHARACTERS or not (found := _FORM.fullmatch(value)):
        return None
    # Only versions after the first one may have more parts.
    return None if found["version"] == "00" and found["more"] is not None else found["trace_id"]


def is_trace_id(value: str) -> bool:
    """Return whether a text is a trace id."""
    return _TRACE_ID.fullmatch(value) is not None

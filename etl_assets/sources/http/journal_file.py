"""A journal file: its name, and its form.

A file holds the records of the requests that were made durable together. It starts with a line for each
request that has something to be remembered: `#` and a JSON object. No record starts with `#`, and readers
take these lines for blank ones. Then comes one record a line. A file is complete when it has its name, and
never changes. Its name states its time, so that every copy has the same modification time.

Belongs here: values. Does not belong here: writing them into domains (`serve/journal.py`), and reading them
(`journal_lines.py`, `catch_up.py`).
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HTTP = "http"
"""Name of the source, in the columns `source` of its tables."""
SUFFIX = ".jsonl"
KEYED = "k"
HEADER = b"#"
_TIME = "%Y%m%dT%H%M%S%f"
_NAME = re.compile(r"(?P<time>\d{8}T\d{12})-(?P<server>[0-9a-f]{8})-(?P<number>\d{6,})(?P<keyed>k?)\.jsonl")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def journal_path(root: Path, pipeline: str) -> Path:
    """Return the folder of a pipeline's journal under the root of a domain."""
    return root / "journal" / pipeline


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalName:
    """The name of a journal file.

    Attributes:
        at: When its records were accepted.
        server: Id of the process that wrote it.
        number: Number of the file, of that process.
        keyed: Whether a request of it has an `Idempotency-Key`.
    """

    at: dt.datetime
    server: str
    number: int
    keyed: bool

    @property
    def day(self) -> dt.date:
        """The day of arrival (UTC)."""
        return self.at.date()

    @property
    def mtime_ns(self) -> int:
        """The modification time that every copy has."""
        return (self.at - _EPOCH) // dt.timedelta(microseconds=1) * 1_000

    def __str__(self) -> str:
        key = KEYED if self.keyed else ""
        return f"{self.at.strftime(_TIME)}-{self.server}-{self.number:06}{key}{SUFFIX}"

    @classmethod
    def parse(cls, name: str) -> JournalName | None:
        """Return the parts of a name; None if it is no journal file's."""
        if (found := _NAME.fullmatch(name)) is None:
            return None
        try:
            at = dt.datetime.strptime(found["time"], _TIME).replace(tzinfo=dt.UTC)
        except ValueError:
            return None
        return cls(at=at, server=found["server"], number=int(found["number"]), keyed=bool(found["keyed"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalRequest:
    """A request whose records are in a file.

    Attributes:
        records: Its records, each the JSON text of an object without line feeds.
        key: Its `Idempotency-Key`, with the client that it belongs to; None without one.
        content: SHA-256 of what was sent under the key.
        traceparent: Its W3C trace context.
    """

    records: Sequence[bytes]
    key: str | None = None
    content: str | None = None
    traceparent: str | None = None

    @property
    def has_header(self) -> bool:
        """Whether there is something to be remembered of it."""
        return self.key is not None or self.traceparent is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedRequest:
    """A request with a key, as its file remembers it.

    Attributes:
        key: The key, with the client that it belongs to.
        content: SHA-256 of what was sent.
        events: Number of its records.
        line: The line of its first record.
    """

    key: str
    content: str
    events: int
    line: int


def first_lines(requests: Sequence[JournalRequest]) -> list[int]:
    """Return the line of the first record of each request, from 1."""
    line = 1 + sum(each.has_header for each in requests)
    found = []
    for each in requests:
        found.append(line)
        line += len(each.records)
    return found


def file_content(requests: Sequence[JournalRequest]) -> bytes:
    """Return the content of a file."""
    lines: list[bytes] = []
    for each, line in zip(requests, first_lines(requests), strict=True):
        if each.has_header:
            header: dict[str, Any] = {"events": len(each.records), "line": line}
            if each.key is not None:
                header |= {"key": each.key, "content": each.content}
            if each.traceparent is not None:
                header["traceparent"] = each.traceparent
            lines.append(HEADER + json.dumps(header).encode())
    for each in requests:
        lines += each.records
    return b"\n".join([*lines, b""])


def remembered(path: Path) -> Iterator[RememberedRequest]:
    """Yield the requests with a key of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError, KeyError: it is no journal file.
    """
    with path.open("rb") as lines:
        for line in lines:
            if not line.startswith(HEADER):
                return
            header = json.loads(line[1:])
            if "key" in header:
                yield RememberedRequest(
                    key=header["key"],
                    content=header["content"],
                    events=header["events"],
                    line=header["line"],
                )

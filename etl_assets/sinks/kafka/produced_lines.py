"""Lines of JSON to send: checked before the first one is sent, where they are in a file.

Belongs here: reading and checking lines, and the id that a line gets. Does not belong here: sending
(`producer.py`).
"""

from __future__ import annotations

import hashlib
import os
import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from etl_assets.errors import InputError

MAX_LINE_BYTES = 16 << 20
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LineFields:
    """Which fields of a record mean something to the producer.

    Attributes:
        id_field: The field with the record's id; a record without one gets it. None: ids are in headers only.
        key_field: The field whose value is the record's key.
    """

    id_field: str | None = None
    key_field: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line to send.

    Attributes:
        value: The JSON text.
        key: The record's key.
        event_id: The id that it has itself.
    """

    value: bytes
    key: str | None = None
    event_id: str | None = None

    def with_id(self, field: str, event_id: str) -> bytes:
        """Return the text with an id in it. The rest of it stays as it is, with all digits of numbers."""
        rest = self.value.lstrip()[1:]
        comma = b"" if rest.lstrip().startswith(b"}") else b","
        return b"{" + orjson.dumps(field) + b":" + orjson.dumps(event_id) + comma + rest


def checked(line: bytes, number: int, fields: LineFields) -> Line:
    """Return a line that can be sent.

    Raises:
        InputError: it is no JSON object, or a field of it cannot be an id or a key.
    """
    if len(line) > MAX_LINE_BYTES:
        raise _wrong(number, f"has more than {MAX_LINE_BYTES:,} bytes", "send smaller records")
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _wrong(number, f"is no JSON: {error.msg}", "correct the line; each holds one object") from error
    if not isinstance(value, dict):
        raise _wrong(number, "is no JSON object", "let each line hold one object")
    found = value.get(fields.id_field) if fields.id_field else None
    if fields.id_field in value and (found is None or found == "" or isinstance(found, (dict, list))):
        raise _wrong(
            number, f"has no single value in {fields.id_field}", "give it an id, or leave the field out"
        )
    key = value.get(fields.key_field) if fields.key_field else None
    if fields.key_field and (key is None or isinstance(key, (dict, list, float))):
        raise _wrong(number, f"has no text or whole number in {fields.key_field}", "every record needs a key")
    return Line(
        value=line,
        key=None if key is None else _text(key),
        event_id=None if found is None else _text(found),
    )


def check_file(path: Path, fields: LineFields) -> tuple[str, int, int]:
    """Check all lines of a file, and return the SHA-256 of its content, its bytes, and how many lines it has.

    Raises:
        InputError: a line cannot be sent; names it.
    """
    digest, size, lines = hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        for number, line in enumerate(_split(file.read), 1):
            digest.update(line)
            size += len(line)
            if line.strip():
                checked(line.rstrip(b"\r\n"), number, fields)
                lines += 1
    return digest.hexdigest(), size, lines


def file_lines(path: Path, fields: LineFields, *, digest: str, size: int) -> Iterator[Line]:
    """Yield the lines of a file that was checked.

    Raises:
        InputError: it is not the file that was checked.
    """
    found, left = hashlib.sha256(), size

    with path.open("rb") as file:

        def read(most: int) -> bytes:
            nonlocal left
            chunk = file.read(min(most, left))
            left -= len(chunk)
            return chunk

        for number, line in enumerate(_split(read), 1):
            found.update(line)
            if line.strip():
                yield checked(line.rstrip(b"\r\n"), number, fields)
    if found.hexdigest() != digest:
        raise InputError(f"{path} was changed while it was sent", fix="send it again when it is complete")


def stream_lines(descriptor: int, fields: LineFields, *, idle: Callable[[], None]) -> Iterator[Line]:
    """Yield the lines of a pipe or terminal; call `idle` each second in which nothing arrives.

    Raises:
        InputError: a line cannot be sent; the ones before it were yielded.
    """

    def read(most: int) -> bytes:
        while not select.select([descriptor], [], [], 1.0)[0]:
            idle()
        return os.read(descriptor, most)

    for number, line in enumerate(_split(read), 1):
        if line.strip():
            yield checked(line.rstrip(b"\r\n"), number, fields)


def _split(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield lines with their ends. Of a line that is too long, what was read is yielded: it is refused."""
    held = b""
    while chunk := read(_CHUNK_BYTES):
        *lines, held = (held + chunk).split(b"\n")
        for line in lines:
            yield line + b"\n"
        if len(held) > MAX_LINE_BYTES:
            yield held
            return
    if held:
        yield held


def _text(value: str | float | bool) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _wrong(number: int, what: str, fix: str) -> InputError:
    return InputError(f"line {number:,} {what}", fix=fix)

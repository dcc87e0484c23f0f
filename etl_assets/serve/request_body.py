"""The body of a request: read within limits, decompressed, and cut into records.

A record keeps the text that was sent: numbers are not read into floats. What a record must contain is for its
pipeline; here it must be a JSON object of no more than so many bytes.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from json import JSONDecoder
from typing import Any

from fastapi import Request
from starlette.requests import ClientDisconnect

from etl_assets.serve.problems import ProblemDetails

JSON_TYPE, LINES_TYPES = "application/json", ("application/x-ndjson", "application/jsonl")
_SPACE = " \t\r\n"
_GZIP = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """Limits of a body: bytes after decompression, events, and seconds until it is there."""

    max_bytes: int
    max_events: int
    seconds: float


async def read_body(request: Request, limits: BodyLimits, hold: Callable[[int], object]) -> bytes:
    """Return the whole body, decompressed.

    Args:
        request: The request.
        limits: What is accepted.
        hold: Takes the number of bytes that are in memory, as it grows; raises if there is no room for them.

    Raises:
        ProblemDetails: it is too large, too slow, cut off or of another encoding, or there is no room for it.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", ""):
        raise ProblemDetails(415, "unsupported-encoding", f"Content-Encoding {encoding!r}; use gzip, or none")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_bytes:
        raise _too_large(limits)
    chunks = request.stream()
    if encoding == "gzip":
        chunks = _unzipped(chunks, limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in chunks:
                body += chunk
                if len(body) > limits.max_bytes:
                    raise _too_large(limits)
                hold(len(body))
    except TimeoutError:
        raise ProblemDetails(
            408, "body-timeout", f"the body did not arrive within {limits.seconds:g} s; nothing was stored"
        ) from None
    except ClientDisconnect:
        raise ProblemDetails(400, "cut-off", "the body was cut off; nothing was stored") from None
    return bytes(body)


async def _unzipped(chunks: AsyncIterator[bytes], limits: BodyLimits) -> AsyncIterator[bytes]:
    """Yield decompressed pieces of bounded size; a file may have several gzip members."""
    unzip, piece = zlib.decompressobj(_GZIP), 1 << 16
    ended = True
    try:
        async for chunk in chunks:
            waiting = chunk
            while waiting:
                if unzip.eof:
                    unzip = zlib.decompressobj(_GZIP)
                ended = False
                yield unzip.decompress(waiting, piece)
                waiting = unzip.unused_data if unzip.eof else unzip.unconsumed_tail
                ended = unzip.eof
    except zlib.error as error:
        raise ProblemDetails(400, "bad-gzip", f"the body is not gzip: {error}; nothing was stored") from None
    while not ended and (more := unzip.decompress(unzip.unconsumed_tail, piece)):
        yield more
        ended = unzip.eof
    if not ended:
        raise ProblemDetails(400, "bad-gzip", "the gzip body is cut off; nothing was stored")


def records_of(
    body: bytes, content_type: str | None, limits: BodyLimits, max_record_bytes: int
) -> list[bytes]:
    """Return the records of a body: of one object, an array of objects, or an object a line.

    Raises:
        ProblemDetails: it is none of these, or has too many records, or too large ones. Nothing is stored.
    """
    kind = _kind(content_type)
    if kind != JSON_TYPE and kind not in LINES_TYPES:
        raise ProblemDetails(
            415, "unsupported-media-type", f"Content-Type {kind!r}; use {JSON_TYPE} or {LINES_TYPES[0]}"
        )
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise ProblemDetails(400, "not-utf-8", f"byte {error.start + 1} of the body is not UTF-8") from None
    found = _lines(text) if kind in LINES_TYPES else _values(text)
    records: list[bytes] = []
    wrong: list[dict[str, Any]] = []
    for number, (value, part) in enumerate(found):
        if number >= limits.max_events:
            raise ProblemDetails(
                413, "too-many-events", f"more than {limits.max_events:,} events; send several requests"
            )
        # A line feed between the parts of an object is white space: inside of a text it is escaped.
        record = part.replace("\n", " ").replace("\r", " ").encode()
        if len(record) > max_record_bytes:
            raise ProblemDetails(
                413,
                "event-too-large",
                f"event {number} has {len(record):,} bytes, and at most {max_record_bytes:,} are taken;"
                " nothing was stored",
                errors=[{"pointer": f"/{number}", "detail": "too large"}],
            )
        if type(value) is not dict:
            wrong.append({"pointer": f"/{number}", "detail": "not a JSON object"})
        records.append(record)
    if wrong:
        raise ProblemDetails(
            422,
            "not-an-object",
            f"{len(wrong):,} of {len(records):,} events are no JSON objects; nothing was stored",
            errors=wrong[:100],
        )
    if not records:
        raise ProblemDetails(422, "no-events", "the body has no events; send an object, an array, or lines")
    return records


def is_lone_object(body: bytes, content_type: str | None) -> bool:
    """Return whether a body that has records is one object, and neither an array nor lines."""
    return _kind(content_type) == JSON_TYPE and body.lstrip()[:1] == b"{"


def _kind(content_type: str | None) -> str:
    return (content_type or JSON_TYPE).partition(";")[0].strip().lower()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_DECODER = JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant)


def _values(text: str) -> Iterator[tuple[Any, str]]:
    """Yield the value of a text, or those of its array, each with its own text."""
    begin = _skip(text, 0)
    if text[begin : begin + 1] != "[":
        value, end = _decoded(text, begin, "the body")
        _expect_end(text, end)
        yield value, text[begin:end]
        return
    at = _skip(text, begin + 1)
    if text[at : at + 1] == "]":
        _expect_end(text, at + 1)
        return
    number = 0
    while True:
        value, end = _decoded(text, at, f"event {number}")
        yield value, text[at:end]
        number += 1
        end = _skip(text, end)
        mark = text[end : end + 1]
        if mark == "]":
            _expect_end(text, end + 1)
            return
        if mark != ",":
            raise _malformed(f"after event {number - 1} there is neither `,` nor `]`")
        at = _skip(text, end + 1)


def _lines(text: str) -> Iterator[tuple[Any, str]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if part := line.strip(_SPACE):
            value, end = _decoded(part, 0, f"line {number}")
            if end != len(part):
                raise _malformed(f"line {number} has more than one value")
            yield value, part


def _decoded(text: str, at: int, what: str) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except RecursionError:
        raise _malformed(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise _malformed(f"{what} is not JSON: {error}") from None


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _expect_end(text: str, end: int) -> None:
    if _skip(text, end) != len(text):
        raise _malformed("there is more after the value; send lines as application/x-ndjson")


def _malformed(detail: str) -> ProblemDetails:
    return ProblemDetails(400, "malformed-json", f"{detail}; nothing was stored")


def _too_large(limits: BodyLimits) -> ProblemDetails:
    return ProblemDetails(
        413,
        "body-too-large",
        f"the body has more than {limits.max_bytes:,} bytes, decompressed; send several requests",
    )

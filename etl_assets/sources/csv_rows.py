"""Rows of a CSV file: which of its lines belong together, because a quoted value has line ends in it.

Belongs here: from lines to rows, as bytes. Does not belong here: the values of a row (`formats.py`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from enum import Enum, auto
from typing import NamedTuple

from etl_assets.contracts.envelope import BadRecord, CutLine
from etl_assets.contracts.reasons import DeadLetterReason


class Row(NamedTuple):
    """A row, and the number of lines that it takes. A named tuple, because one is created for every line."""

    content: bytes | CutLine | BadRecord
    lines: int = 1


class _Quotes(Enum):
    """Quotes of a row up to the end of a line.

    CLOSED: the row ends here.
    OPEN: the row goes on with the next line.
    WRONG: the row is not CSV.
    """

    CLOSED = auto()
    OPEN = auto()
    WRONG = auto()


def rows_of(lines: Iterable[bytes | CutLine], held_bytes: int, delimiter: bytes) -> Iterator[Row]:
    """Yield the rows of a file.

    A row whose quotes are wrong, or open at the end of the file or after `held_bytes`, is its first line
    only: the lines after it are rows again. In these, a quote within a value that is not quoted is an error
    too: such a line may be a part of the wrong row. So no line is looked at more than three times, and a
    wrong row becomes no other record.
    """
    again: deque[bytes | CutLine] = deque()
    source = iter(lines)
    while (line := again[0] if again else next(source, None)) is not None:
        is_again = bool(again)
        if is_again:
            again.popleft()
        if isinstance(line, CutLine) or b'"' not in line:
            yield Row(line if isinstance(line, CutLine) else line.removesuffix(b"\r"))
            continue
        parts, size = [line], len(line)
        quotes = _quotes(line, delimiter, is_open=False, is_strict=is_again)
        while quotes is _Quotes.OPEN and size <= held_bytes:
            more = again.popleft() if again else next(source, None)
            if not isinstance(more, bytes):
                if more is not None:
                    again.appendleft(more)
                break
            parts.append(more)
            size += len(more) + 1
            quotes = _quotes(more, delimiter, is_open=True, is_strict=is_again)
        if quotes is _Quotes.CLOSED:
            whole = b"\n".join(parts).removesuffix(b"\r")
            held = whole if len(whole) <= held_bytes else CutLine(start=whole[:held_bytes], size=len(whole))
            yield Row(held, len(parts))
        else:
            again.extendleft(reversed(parts[1:]))
            yield Row(_refused(line, quotes, held_bytes))


def _quotes(line: bytes, delimiter: bytes, *, is_open: bool, is_strict: bool) -> _Quotes:
    """Return the state after a line.

    Args:
        line: The line.
        delimiter: What separates values.
        is_open: Whether it begins inside of a quoted value.
        is_strict: Whether a quote within a value that is not quoted is wrong, or a character like any other.
    """
    opening = delimiter + b'"'
    position = 0
    if not is_open and line.startswith(b'"'):
        is_open, position = True, 1
    while True:
        if is_open:
            end = line.find(b'"', position)
            if end < 0:
                return _Quotes.OPEN
            position = end + 1
            if line.startswith(b'"', position):  # two quotes stand for one
                position += 1
                continue
            if position == len(line) or line[position:] == b"\r":
                return _Quotes.CLOSED
            if not line.startswith(delimiter, position):
                return _Quotes.WRONG
        start = line.find(opening, position)
        if is_strict and b'"' in line[position : len(line) if start < 0 else start]:
            return _Quotes.WRONG
        if start < 0:
            return _Quotes.CLOSED
        is_open, position = True, start + len(opening)


def _refused(line: bytes, quotes: _Quotes, held_bytes: int) -> BadRecord:
    if quotes is _Quotes.OPEN:
        error = f"a quote is not closed within the file, and within {held_bytes:,} bytes"
    else:
        error = "a quoted value ends before its field does, or a quote stands in a value that is not quoted"
    return BadRecord(start=line.removesuffix(b"\r"), reason=DeadLetterReason.MALFORMED_CSV, error=error)

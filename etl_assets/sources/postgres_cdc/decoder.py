"""From the bytes of `pgoutput` to messages.

Belongs here: the layout of messages in the protocol versions 1 and 2. Does not belong here: which relation a
change belongs to (`relations.py`), and transactions as a whole.

Every length is checked against what is left, so bytes of any kind give a message or `MessageMalformed` with
the offset at which they stop making sense.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from etl_assets.errors import MessageMalformed
from etl_assets.sources.postgres_cdc.messages import (
    UNCHANGED,
    BeginMessage,
    CommitMessage,
    DeleteMessage,
    InsertMessage,
    LogicalMessage,
    Message,
    OriginMessage,
    RelationColumn,
    RelationMessage,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    TruncateMessage,
    TypeMessage,
    UpdateMessage,
    Value,
    Values,
)

_UINT16, _INT32, _UINT32, _UINT64, _INT64 = (struct.Struct(f">{each}") for each in ("H", "i", "I", "Q", "q"))
_uint16_at, _uint32_at = _UINT16.unpack_from, _UINT32.unpack_from
_TEXT, _NULL, _UNCHANGED = b"tnu"
_NEW, _KEY, _OLD = b"NKO"
_STREAM_START_OR_STOP = b"SE"
_IDENTITIES = "dnfi"
_CASCADE, _RESTART_IDENTITY = 1, 2
_IS_KEY = 1


class Decoder:
    """Decodes the messages of one replication stream, one after the other.

    The only state is whether a streamed part of a transaction is open: messages have one more field then. A
    new connection needs a new decoder.
    """

    def __init__(self) -> None:
        self._streamed = False

    def decode(self, data: bytes) -> Message:
        """Return the message that the bytes are.

        Raises:
            MessageMalformed: they are no message of protocol version 1 or 2. Carries `offset`.
        """
        if not data:
            raise malformed(data, 0, "it is empty")
        kind = data[0]
        read = _READERS.get(kind)
        if read is None:
            raise malformed(data, 0, "its kind is not known")
        message = read(data, self._streamed)
        if kind in _STREAM_START_OR_STOP:
            starts = isinstance(message, StreamStart)
            if starts is self._streamed:
                state = "open" if starts else "not open"
                raise malformed(data, 0, f"a streamed part of a transaction is {state}")
            self._streamed = starts
        return message


def malformed(data: bytes, offset: int, reason: str) -> MessageMalformed:
    """Return the error for bytes that make no sense from an offset on. It has no values of rows."""
    kind = chr(data[0]) if data and 0x20 < data[0] < 0x7F else data[:1].hex()
    return MessageMalformed(
        f"a message of PostgreSQL's log (kind {kind!r}, {len(data)} bytes) is not one of pgoutput, protocol"
        f" 1 or 2: at byte {offset}, {reason}",
        fix="nothing was read of it; check that the server is PostgreSQL 14 or later and that no proxy"
        " changes the stream, then run again",
        kind=kind,
        offset=offset,
    )


class _Reader:
    """Reads fields one after the other. For messages that are rare, it is fast enough."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 1

    def number(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise malformed(self.data, self.at, f"{layout.size} bytes of a number are missing") from None
        self.at += layout.size
        return value

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise malformed(self.data, self.at, "a byte is missing")
        self.at += 1
        return self.data[self.at - 1]

    def flags(self, known: int) -> int:
        value = self.byte()
        if value & ~known:
            raise malformed(self.data, self.at - 1, "it has flags that are not known")
        return value

    def text(self) -> str:
        end = self.data.find(0, self.at)
        if end < 0:
            raise malformed(self.data, self.at, "a text has no end")
        try:
            value = self.data[self.at : end].decode()
        except UnicodeDecodeError as error:
            raise malformed(self.data, self.at + error.start, "a text is not UTF-8") from None
        self.at = end + 1
        return value

    def bytes_of(self, length: int) -> bytes:
        value = self.data[self.at : self.at + length]
        if len(value) < length:
            raise malformed(self.data, self.at, f"{length} bytes were to follow, there are {len(value)}")
        self.at += length
        return value

    def xid(self, streamed: bool) -> int | None:
        return self.number(_UINT32) if streamed else None

    def end(self) -> None:
        if self.at != len(self.data):
            raise malformed(self.data, self.at, "more follows than belongs to it")


def _begin(data: bytes, _: bool) -> BeginMessage:
    reader = _Reader(data)
    message = BeginMessage(reader.number(_UINT64), reader.number(_INT64), reader.number(_UINT32))
    reader.end()
    return message


def _commit(data: bytes, _: bool) -> CommitMessage:
    reader = _Reader(data)
    reader.flags(0)
    message = CommitMessage(reader.number(_UINT64), reader.number(_UINT64), reader.number(_INT64))
    reader.end()
    return message


def _origin(data: bytes, _: bool) -> OriginMessage:
    reader = _Reader(data)
    message = OriginMessage(reader.number(_UINT64), reader.text())
    reader.end()
    return message


def _relation(data: bytes, streamed: bool) -> RelationMessage:
    reader = _Reader(data)
    xid, oid = reader.xid(streamed), reader.number(_UINT32)
    schema, name = reader.text(), reader.text()
    identity = chr(reader.byte())
    if identity not in _IDENTITIES:
        raise malformed(data, reader.at - 1, "its replica identity is not known")
    columns = tuple(_column(reader) for _ in range(reader.number(_UINT16)))
    reader.end()
    # An empty name of a schema means pg_catalog.
    return RelationMessage(xid, oid, schema or "pg_catalog", name, identity, columns)


def _column(reader: _Reader) -> RelationColumn:
    is_key = bool(reader.flags(_IS_KEY))
    return RelationColumn(reader.text(), reader.number(_UINT32), reader.number(_INT32), is_key)


def _type(data: bytes, streamed: bool) -> TypeMessage:
    reader = _Reader(data)
    xid, oid = reader.xid(streamed), reader.number(_UINT32)
    message = TypeMessage(xid, oid, reader.text() or "pg_catalog", reader.text())
    reader.end()
    return message


def _truncate(data: bytes, streamed: bool) -> TruncateMessage:
    reader = _Reader(data)
    xid, number = reader.xid(streamed), reader.number(_UINT32)
    flags = reader.flags(_CASCADE | _RESTART_IDENTITY)
    if len(data) - reader.at != number * _UINT32.size:
        raise malformed(data, reader.at, f"{number} relations were to follow")
    relations = tuple(reader.number(_UINT32) for _ in range(number))
    return TruncateMessage(xid, relations, bool(flags & _CASCADE), bool(flags & _RESTART_IDENTITY))


def _message(data: bytes, streamed: bool) -> LogicalMessage:
    reader = _Reader(data)
    xid, flags, lsn = reader.xid(streamed), reader.flags(1), reader.number(_UINT64)
    prefix, length = reader.text(), reader.number(_UINT32)
    message = LogicalMessage(xid, bool(flags), lsn, prefix, reader.bytes_of(length))
    reader.end()
    return message


def _stream_start(data: bytes, _: bool) -> StreamStart:
    reader = _Reader(data)
    message = StreamStart(reader.number(_UINT32), bool(reader.flags(1)))
    reader.end()
    return message


def _stream_stop(data: bytes, _: bool) -> StreamStop:
    _Reader(data).end()
    return StreamStop()


def _stream_commit(data: bytes, _: bool) -> StreamCommit:
    reader = _Reader(data)
    xid = reader.number(_UINT32)
    reader.flags(0)
    message = StreamCommit(xid, reader.number(_UINT64), reader.number(_UINT64), reader.number(_INT64))
    reader.end()
    return message


def _stream_abort(data: bytes, _: bool) -> StreamAbort:
    reader = _Reader(data)
    message = StreamAbort(reader.number(_UINT32), reader.number(_UINT32))
    reader.end()
    return message


def _insert(data: bytes, streamed: bool) -> InsertMessage:
    xid, relation, at = _head(data, streamed)
    if data[at] != _NEW:
        raise malformed(data, at, "a new row was to follow")
    new, at = _row(data, at + 1)
    if at != len(data):
        raise malformed(data, at, "more follows than belongs to it")
    return InsertMessage(xid, relation, new)


def _update(data: bytes, streamed: bool) -> UpdateMessage:
    xid, relation, at = _head(data, streamed)
    kind = data[at]
    old: Values | None = None
    if kind in (_KEY, _OLD):
        old, at = _row(data, at + 1)
        if data[at : at + 1] != b"N":
            raise malformed(data, at, "a new row was to follow")
    elif kind != _NEW:
        raise malformed(data, at, "a row was to follow")
    new, at = _row(data, at + 1)
    if at != len(data):
        raise malformed(data, at, "more follows than belongs to it")
    return UpdateMessage(xid, relation, new, old, kind == _KEY)


def _delete(data: bytes, streamed: bool) -> DeleteMessage:
    xid, relation, at = _head(data, streamed)
    kind = data[at]
    if kind not in (_KEY, _OLD):
        raise malformed(data, at, "an old row was to follow")
    old, at = _row(data, at + 1)
    if at != len(data):
        raise malformed(data, at, "more follows than belongs to it")
    return DeleteMessage(xid, relation, old, kind == _KEY)


def _head(data: bytes, streamed: bool) -> tuple[int | None, int, int]:
    """Return transaction, relation, and the offset of a change's first row."""
    length = 9 if streamed else 5
    if len(data) <= length:
        raise malformed(data, len(data), "it ends before its row")
    if streamed:
        return _uint32_at(data, 1)[0], _uint32_at(data, 5)[0], length
    return None, _uint32_at(data, 1)[0], length


def _row(data: bytes, at: int) -> tuple[Values, int]:
    """Return the values of a row, and the offset after it. Most of the time is spent here."""
    values: list[Value] = []
    try:
        (number,) = _uint16_at(data, at)
        at += 2
        for _ in range(number):
            kind = data[at]
            if kind == _TEXT:
                start = at + 5
                end = start + _uint32_at(data, at + 1)[0]
                values.append(data[start:end])
                at = end
            elif kind == _NULL:
                values.append(None)
                at += 1
            elif kind == _UNCHANGED:
                values.append(UNCHANGED)
                at += 1
            else:
                raise malformed(data, at, "a value is neither a text, null nor unchanged")
    except (IndexError, struct.error):
        raise malformed(data, min(at, len(data)), "a row ends too early") from None
    if at > len(data):  # the last slice was short
        raise malformed(data, len(data), f"a value ends {at - len(data)} bytes too early")
    return tuple(values), at


_READERS: Mapping[int, Callable[[bytes, bool], Message]] = {
    ord("B"): _begin,
    ord("C"): _commit,
    ord("O"): _origin,
    ord("R"): _relation,
    ord("Y"): _type,
    ord("I"): _insert,
    ord("U"): _update,
    ord("D"): _delete,
    ord("T"): _truncate,
    ord("M"): _message,
    ord("S"): _stream_start,
    ord("E"): _stream_stop,
    ord("c"): _stream_commit,
    ord("A"): _stream_abort,
}

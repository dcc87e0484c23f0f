"""Bytes of PostgreSQL's log become messages, or one named error with the offset where they make none."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from etl_assets.errors import MessageMalformed
from etl_assets.sources.postgres_cdc import messages as m
from etl_assets.sources.postgres_cdc.decoder import Decoder
from etl_assets.sources.postgres_cdc.lsn import lsn_text, parse_lsn
from etl_assets.sources.postgres_cdc.relations import RelationCache

U16, U32, U64 = st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)
I32, I64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=12)
VALUES = st.lists(st.one_of(st.none(), st.just(m.UNCHANGED), st.binary(max_size=20)), max_size=6).map(tuple)
COLUMNS = st.lists(st.builds(m.RelationColumn, NAMES, U32, I32, st.booleans()), max_size=4).map(tuple)


def of_change(xid: st.SearchStrategy) -> st.SearchStrategy[m.Message]:
    """Messages that have one more field within a streamed part of a transaction."""
    updates = st.builds(m.UpdateMessage, xid, U32, VALUES, VALUES, st.booleans())
    return st.one_of(
        st.builds(m.RelationMessage, xid, U32, NAMES, NAMES, st.sampled_from("dnfi"), COLUMNS),
        st.builds(m.TypeMessage, xid, U32, NAMES, NAMES),
        st.builds(m.InsertMessage, xid, U32, VALUES),
        st.builds(m.UpdateMessage, xid, U32, VALUES, st.none(), st.just(False)),
        updates,
        st.builds(m.DeleteMessage, xid, U32, VALUES, st.booleans()),
        st.builds(m.TruncateMessage, xid, st.lists(U32, max_size=4).map(tuple), st.booleans(), st.booleans()),
        st.builds(m.LogicalMessage, xid, st.booleans(), U64, NAMES, st.binary(max_size=20)),
    )


PLAIN = st.one_of(
    st.builds(m.BeginMessage, U64, I64, U32),
    st.builds(m.CommitMessage, U64, U64, I64),
    st.builds(m.OriginMessage, U64, NAMES),
    st.builds(m.StreamStart, U32, st.booleans()),
    st.builds(m.StreamCommit, U32, U64, U64, I64),
    st.builds(m.StreamAbort, U32, U32),
    of_change(st.none()),
)


def _xid(xid: int | None) -> bytes:
    return b"" if xid is None else struct.pack(">I", xid)


def _text(text: str) -> bytes:
    return text.encode() + b"\0"


def _row(values: m.Values) -> bytes:
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if isinstance(value, bytes):
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
        else:
            parts.append(b"n" if value is None else b"u")
    return b"".join(parts)


def encoded(message: m.Message) -> bytes:
    """The bytes of a message, written from the chapter of the manual and from nothing in the decoder."""
    match message:
        case m.BeginMessage(lsn, at, xid):
            return b"B" + struct.pack(">QqI", lsn, at, xid)
        case m.CommitMessage(lsn, end, at):
            return b"C" + struct.pack(">BQQq", 0, lsn, end, at)
        case m.OriginMessage(lsn, name):
            return b"O" + struct.pack(">Q", lsn) + _text(name)
        case m.StreamStart(xid, is_first):
            return b"S" + struct.pack(">IB", xid, is_first)
        case m.StreamStop():
            return b"E"
        case m.StreamCommit(xid, lsn, end, at):
            return b"c" + struct.pack(">IBQQq", xid, 0, lsn, end, at)
        case m.StreamAbort(xid, sub):
            return b"A" + struct.pack(">II", xid, sub)
        case _:
            return _of_change(message)


def _of_change(message: m.Message) -> bytes:
    match message:
        case m.RelationMessage(xid, oid, schema, name, identity, columns):
            head = b"R" + _xid(xid) + struct.pack(">I", oid) + _text(schema) + _text(name) + identity.encode()
            return (
                head
                + struct.pack(">H", len(columns))
                + b"".join(
                    bytes([each.is_key])
                    + _text(each.name)
                    + struct.pack(">Ii", each.type_oid, each.type_modifier)
                    for each in columns
                )
            )
        case m.TypeMessage(xid, oid, schema, name):
            return b"Y" + _xid(xid) + struct.pack(">I", oid) + _text(schema) + _text(name)
        case m.LogicalMessage(xid, transactional, lsn, prefix, content):
            head = b"M" + _xid(xid) + struct.pack(">BQ", transactional, lsn) + _text(prefix)
            return head + struct.pack(">I", len(content)) + content
        case _:
            return _of_rows(message)


def _of_rows(message: m.Message) -> bytes:
    match message:
        case m.InsertMessage(xid, relation, new):
            return b"I" + _xid(xid) + struct.pack(">I", relation) + b"N" + _row(new)
        case m.UpdateMessage(xid, relation, new, old, is_key):
            before = b"" if old is None else (b"K" if is_key else b"O") + _row(old)
            return b"U" + _xid(xid) + struct.pack(">I", relation) + before + b"N" + _row(new)
        case m.DeleteMessage(xid, relation, old, is_key):
            return b"D" + _xid(xid) + struct.pack(">I", relation) + (b"K" if is_key else b"O") + _row(old)
        case m.TruncateMessage(xid, relations, cascades, restarts):
            flags = cascades + 2 * restarts
            head = b"T" + _xid(xid) + struct.pack(">IB", len(relations), flags)
            return head + b"".join(struct.pack(">I", each) for each in relations)
        case _:
            raise AssertionError(message)


def streaming() -> Decoder:
    decoder = Decoder()
    decoder.decode(encoded(m.StreamStart(7, True)))
    return decoder


def decoded(decoder: Decoder, data: bytes) -> m.Message | int:
    """Return the message, or the offset of the error. Any other error is one of the test."""
    try:
        return decoder.decode(data)
    except MessageMalformed as error:
        return int(str(error.offset))


@given(PLAIN)
def test_every_message_is_decoded_as_it_was_sent(message):
    assert Decoder().decode(encoded(message)) == message


@given(of_change(U32))
def test_a_message_of_a_streamed_part_has_its_transaction(message):
    assert streaming().decode(encoded(message)) == message


def test_a_streamed_part_ends_once_and_begins_once():
    decoder = streaming()
    with pytest.raises(MessageMalformed, match="is open"):
        decoder.decode(encoded(m.StreamStart(8, True)))
    assert decoder.decode(b"E") == m.StreamStop()
    with pytest.raises(MessageMalformed, match="not open"):
        decoder.decode(b"E")
    gone = m.DeleteMessage(None, 1, (b"1",), True)
    assert decoder.decode(encoded(gone)) == gone


SENT = st.one_of(st.tuples(st.just(Decoder), PLAIN), st.tuples(st.just(streaming), of_change(U32)))


@given(SENT, st.data())
def test_bytes_cut_anywhere_are_one_named_error_with_an_offset(sent, data):
    decoder, message = sent
    whole = encoded(message)
    cut = data.draw(st.integers(0, len(whole) - 1))
    found = decoded(decoder(), whole[:cut])
    assert isinstance(found, int)
    assert 0 <= found <= cut


@given(PLAIN, st.binary(min_size=1, max_size=4))
def test_more_bytes_than_belong_to_a_message_are_an_error(message, more):
    with pytest.raises(MessageMalformed):
        Decoder().decode(encoded(message) + more)


KINDS = st.sampled_from(list(b"BCORYIUDTMSEcA"))


MADE_UP = st.builds(lambda kind, rest: bytes([kind]) + rest, KINDS, st.binary(max_size=80))


@given(st.one_of(st.binary(max_size=80), MADE_UP))
@example(b"I" + struct.pack(">I", 1) + b"N" + struct.pack(">H", 1) + b"t" + b"\xff\xff\xff\xff")
@example(b"R" + struct.pack(">I", 1) + b"\0a\0d\xff\xff")
@example(b"T\xff\xff\xff\xff\0")
def test_any_bytes_are_a_message_or_the_named_error(data):
    for decoder in (Decoder(), streaming()):
        found = decoded(decoder, data)
        assert isinstance(found, m.Message) or 0 <= found <= len(data)


@given(PLAIN, st.data())
def test_a_changed_byte_is_a_message_or_the_named_error(message, data):
    whole = bytearray(encoded(message))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = decoded(Decoder(), bytes(whole))
    assert isinstance(found, m.Message) or 0 <= found <= len(whole)


def test_the_error_has_no_values_of_the_row():
    data = encoded(m.InsertMessage(None, 1, (b"secret",)))[:-1]
    with pytest.raises(MessageMalformed) as caught:
        Decoder().decode(data)
    assert "secret" not in str(caught.value)
    assert caught.value.fields == {"kind": "I", "offset": len(data)}


@given(U64)
def test_a_place_in_the_log_is_read_as_it_is_written(lsn):
    assert parse_lsn(lsn_text(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "0", "0/", "/1", "0/123456789", "0x1/1", "0/16B3748 "])
def test_what_is_no_place_in_the_log_is_refused(text):
    with pytest.raises(ValueError, match="not a place"):
        parse_lsn(text)


def relation(*columns: str, oid: int = 1, xid: int | None = None) -> m.RelationMessage:
    found = tuple(m.RelationColumn(each, 25, -1, each == "id") for each in columns)
    return m.RelationMessage(xid, oid, "public", "film", "d", found)


def test_a_change_has_the_columns_that_its_table_had_at_its_place():
    cache = RelationCache()
    assert cache.remember(relation("id"), 10)
    assert not cache.remember(relation("id", xid=7), 20)
    assert cache.remember(relation("id", "title"), 30)
    assert [cache.at(1, lsn) for lsn in (9, 10, 29)] == [None, relation("id"), relation("id")]
    assert cache.at(1, 30) == cache.current(1) == relation("id", "title")
    assert cache.current(2) is None


def test_a_stream_that_starts_again_replaces_what_was_heard_after_its_place():
    cache = RelationCache()
    cache.remember(relation("id"), 10)
    cache.remember(relation("id", "title"), 30)
    assert cache.remember(relation("id"), 20) is False
    assert cache.current(1) == relation("id")
    assert [each.since_lsn for each in cache.versions(1)] == [10]

"""Rows of a COPY: every text as the server has it, errors by their SQLSTATE, and the session afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace
from etl_assets.sources.postgres_cdc.messages import RelationColumn, RelationMessage
from etl_assets.sources.postgres_cdc.rows_by_copy import WrittenRows, write_rows

PLACE = ChangePlace(lsn=7, sequence=100, committed_at=1)


class Written:
    """Stands for the writer of staged files, and keeps what it is given."""

    def __init__(self, width: int, then: Callable[[], object] = lambda: None):
        columns = tuple(RelationColumn(f"c{number}", 25, -1, False) for number in range(width))
        self.relation = RelationMessage(None, 1, "public", "t", "d", columns)
        self.parts: list[list[pa.BinaryArray]] = []
        self.firsts: list[int] = []
        self.then = then

    def rows(self, columns: list[pa.BinaryArray], place: ChangePlace) -> None:
        self.parts.append(columns)
        self.firsts.append(place.sequence)
        assert (place.lsn, place.committed_at) == (PLACE.lsn, PLACE.committed_at)
        self.then()

    @property
    def found(self) -> list[tuple[bytes | None, ...]]:
        return [row for part in self.parts for row in zip(*(each.to_pylist() for each in part), strict=True)]


@pytest.fixture
def session(postgres_server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_server.url, autocommit=True) as opened:
        yield opened


def write(session: psycopg.Connection, query: str, writer: Any, values: Any = None) -> WrittenRows:
    return write_rows(session, query.encode(), writer, PLACE, values)


def test_every_text_and_null_is_what_the_server_has(session):
    texts = ["", None, '"', '""', ",", "a\nb", "\r\n", "\\N", "NULL", " x ", "ä€\U0001f600", "x" * 70_000]
    session.execute("CREATE TEMP TABLE t (i serial, a text, b text)")
    with session.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO t (a, b) VALUES (%s, %s)", [(text, other) for text in texts for other in texts]
        )
    writer = Written(2)
    done = write(session, "SELECT a, b FROM t ORDER BY i", writer)
    wanted = [
        tuple(None if each is None else each.encode() for each in (text, other))
        for text in texts
        for other in texts
    ]
    assert writer.found == wanted
    assert (done.number, done.last) == (len(wanted), wanted[-1])


def test_rows_of_one_column_that_are_empty_and_values_of_a_query(session):
    writer = Written(1)
    query = "SELECT CASE i %% 3 WHEN 0 THEN '' WHEN 1 THEN NULL ELSE 'x' END FROM generate_series(1, %s) i"
    assert write(session, query, writer, [7]).number == 7
    assert [row[0] for row in writer.found] == [None, b"x", b"", None, b"x", b"", None]
    assert write(session, "SELECT 1 WHERE false", Written(1)) == WrittenRows(0, ())


def test_many_rows_come_in_parts_whose_places_go_on(session):
    writer = Written(2)
    done = write(session, "SELECT i, repeat('x', 1000) FROM generate_series(1, 30000) i", writer)
    assert done.number == 30_000
    assert done.last[0] == b"30000"
    assert [int(row[0] or 0) for row in writer.found] == list(range(1, 30_001))
    sizes = [len(part[0]) for part in writer.parts]
    assert len(sizes) > 2
    assert writer.firsts == [100 + sum(sizes[:number]) for number in range(len(sizes))]


def test_an_error_of_the_server_among_the_rows_has_its_state_and_leaves_the_session_usable(session):
    with pytest.raises(psycopg.errors.DivisionByZero) as caught:
        write(session, "SELECT 1 / (200000 - i) FROM generate_series(1, 300000) i", Written(1))
    assert caught.value.sqlstate == "22012"
    assert caught.value.diag.message_primary == "division by zero"
    with pytest.raises(psycopg.errors.UndefinedTable):
        write(session, "SELECT * FROM is_not_there", Written(1))
    assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_statement_that_takes_too_long_is_canceled_by_the_server(session):
    session.execute("SET statement_timeout = 300")
    with pytest.raises(psycopg.errors.QueryCanceled):
        write(session, "SELECT i, pg_sleep(0.001) FROM generate_series(1, 100000) i", Written(2))
    assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_transaction_is_still_open_after_its_rows(session):
    with session.transaction():
        assert write(session, "SELECT 1", Written(1)).number == 1
        assert session.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS


def test_an_error_of_the_writer_ends_the_statement_and_leaves_the_session_usable(session):
    def fails() -> None:
        raise OSError("the disk is full")

    query = "SELECT i, repeat('x', 1000) FROM generate_series(1, 1000000) i"
    with pytest.raises(OSError, match="the disk is full"):
        write(session, query, Written(2, fails))
    assert session.execute("SELECT 1").fetchone() == (1,)


def test_a_session_that_is_ended_meanwhile_is_an_error_of_the_connection(session, postgres_server):
    pid = session.info.backend_pid

    def end() -> None:
        with psycopg.connect(postgres_server.url, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", [pid])

    query = "SELECT i, repeat('x', 1000) FROM generate_series(1, 1000000) i"
    with pytest.raises(psycopg.OperationalError):
        write(session, query, Written(2, end))
    assert session.broken or session.closed

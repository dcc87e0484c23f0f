"""Queries over PostgreSQL and SQLite as sources: every row once, whatever the keys are."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.pipelines.query_text import single_query
from etl_assets.sources.sql.bounds import KeyBounds
from etl_assets.sources.sql.postgres import PostgresQuery
from etl_assets.sources.sql.source import SqlQuery
from etl_assets.sources.sql.validation import query_problems
from etl_assets_tests.reference.peak_memory import growth

psycopg = pytest.importorskip("psycopg")
_DAY = dt.date(2026, 1, 2)


@pytest.fixture
def database(postgres_server, request) -> Iterator[str]:
    """A database of its own: its address."""
    admin = postgres_server.database_url("postgres")
    name = f"t{abs(hash(request.node.nodeid)):x}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres_server.database_url(name)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


_OPEN: list[SqlQuery] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    """Every source of a test is closed."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def execute(address: str, *statements: str) -> None:
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def opened(address: str, query: str, *, key="changed", id="id", overlap=None) -> SqlQuery:
    asked = PostgresQuery(name="films", address=address, query=single_query(query), key=key, id=id)
    _OPEN.append(SqlQuery(name="films", database=asked, key=key, id=id, overlap=overlap, today=lambda: _DAY))
    return _OPEN[-1]


def read_all(source: SqlQuery, folder: Path, positions=None, *, page=3) -> tuple[list[dict], dict]:
    """Read ranges until there are none, with positions that went through JSON."""
    positions, rows = positions or {}, []
    for number in range(1_000):
        planned = source.plan(positions, max_bytes=1 << 30, max_records=page)
        # What starts runs agrees with what they find, and names the day that they read under.
        lag = source.lag(positions)
        assert (lag.records == 0) == (planned is None)
        assert lag.first_day == _DAY
        if planned is None:
            return rows, positions
        here = folder / f"{len(list(folder.iterdir()))}-{number}"
        here.mkdir()
        source.read(planned, here)
        for file in sorted(here.rglob("*.jsonl")):
            assert file.parent.name == _DAY.isoformat()
            rows += [json.loads(line) for line in file.read_text("utf-8").splitlines()]
        positions = json.loads(json.dumps(dict(planned.end)))
    raise AssertionError("it never ends")


KEYS = {
    "timestamptz": "'2026-01-01 00:00:00.000001+02'::timestamptz + n * interval '1 microsecond'",
    "timestamp": "'2026-01-01 00:00:00.000001'::timestamp + n * interval '1 microsecond'",
    "date": "'2026-01-01'::date + n",
    "int4": "n",
    "int8": "9007199254740992 + n",
    "numeric": "12345678901234567890.000000000000000001 + n",
    "uuid": "md5(n::text)::uuid",
    "text": "(ARRAY['a','B','é','Z','ß','it''s','\\x','%s :x','日'])[n % 9 + 1] || n",
}


@pytest.mark.parametrize("type_", KEYS)
def test_keys_of_any_type_are_read_page_by_page_without_loss_or_repeat(type_, database, tmp_path):
    execute(
        database,
        f"CREATE TABLE t AS SELECT n AS id, ({KEYS[type_]})::{type_} AS changed FROM generate_series(1, 9) n",
    )
    source = opened(database, "SELECT * FROM t")
    rows, positions = read_all(source, tmp_path, page=2)
    assert sorted(row["id"] for row in rows) == list(range(1, 10))
    assert source.lag(positions).records == 0
    assert source.lag({}).records == 9


def test_memory_does_not_grow_with_the_rows(database, tmp_path, tell):
    execute(
        database,
        "CREATE TABLE t AS SELECT n AS id, '2026-01-01'::timestamptz + n * interval '1 second' AS changed,"
        " repeat('x', 200) AS text FROM generate_series(1, 300000) n",
    )
    grown = []
    for rows in (20_000, 300_000):
        source = opened(database, f"SELECT * FROM t WHERE id <= {rows}")
        with growth() as found:
            planned = source.plan({}, max_bytes=1 << 40, max_records=1 << 30)
            assert planned is not None
            source.read(planned, tmp_path / f"{rows}")
        (file,) = (tmp_path / f"{rows}").rglob("*.jsonl")
        with file.open("rb") as lines:
            assert sum(1 for _ in lines) == rows
        grown.append(found.mib)
    tell(f"SQL source, 20,000 rows: {grown[0]} MiB more; 300,000 rows: {grown[1]} MiB more")
    assert grown[1] < 50


def test_equal_keys_over_many_pages_zero_rows_one_row_and_exactly_a_page(database, tmp_path):
    execute(database, "CREATE TABLE t (id int, changed timestamptz)")
    source = opened(database, "SELECT * FROM t -- the end;")
    assert source.plan({}, max_bytes=1000, max_records=3) is None
    execute(database, "INSERT INTO t VALUES (1, '2026-01-01')")
    rows, positions = read_all(source, tmp_path)
    assert [row["id"] for row in rows] == [1]
    execute(database, "INSERT INTO t SELECT n, '2026-01-02' FROM generate_series(1, 12) n")
    rows, positions = read_all(source, tmp_path, positions)
    assert [row["id"] for row in rows] == list(range(1, 13))
    assert source.plan(positions, max_bytes=1000, max_records=3) is None


def test_late_rows_of_the_overlap_are_read_and_those_before_it_are_not(database, tmp_path):
    execute(database, "CREATE TABLE t (id int, changed timestamptz)")
    execute(
        database,
        "INSERT INTO t SELECT n, '2026-01-01'::timestamptz + n * interval '1 minute' FROM"
        " generate_series(1, 10) n",
    )
    source = opened(database, "SELECT * FROM t", overlap=Decimal(180))
    _, positions = read_all(source, tmp_path)
    execute(database, "INSERT INTO t VALUES (100, '2026-01-01 00:08:30+00'), (101, '2026-01-01 00:03:00+00')")
    rows, positions = read_all(source, tmp_path, positions)
    assert 100 in [row["id"] for row in rows]
    assert 101 not in [row["id"] for row in rows]
    assert source.plan(positions, max_bytes=1000, max_records=3) is None


def test_rows_without_a_key_are_read_once_and_never_hold_the_others_up(database, tmp_path):
    execute(
        database,
        "CREATE TABLE t (id int, changed int)",
        "INSERT INTO t VALUES (1, 1), (2, NULL), (NULL, 3), (4, 4)",
    )
    source = opened(database, "SELECT * FROM t")
    rows, positions = read_all(source, tmp_path)
    assert sorted((row["id"] or 0, row["changed"] or 0) for row in rows) == [(0, 3), (1, 1), (2, 0), (4, 4)]
    execute(database, "INSERT INTO t VALUES (5, NULL)")
    rows, positions = read_all(source, tmp_path, positions)
    assert 5 in [row["id"] for row in rows]
    execute(database, "DELETE FROM t WHERE id IS NULL OR changed IS NULL")
    rows, positions = read_all(source, tmp_path, positions)
    assert rows == []


def test_values_are_exact(database, tmp_path):
    source = opened(
        database,
        """SELECT 1 AS id, 1 AS changed, 1.10::numeric(30, 20) AS n, 'NaN'::numeric AS nan,
        9223372036854775807 AS big, '2026-01-01 01:02:03.000004+02'::timestamptz AS t,
        '{"a": [1, 1.5],\n "b": "x\\ny"}'::json AS j, '{"c": 1}'::jsonb AS jb, ARRAY['a', NULL] AS l,
        decode(repeat('ff00', 60), 'hex') AS b, NULL::text AS nothing, interval '1 day 2 hours' AS i,
        ':x %s %(a)s {} \\ "' AS literal, E'line\\nbreak' AS lines, '{1,2}'::json[] IS NULL AS f""".replace(
            "'{1,2}'::json[] IS NULL", "false"
        ),
    )
    [row], _ = read_all(source, tmp_path)
    assert row["n"] == "1.10000000000000000000"
    assert row["nan"] == "NaN"
    assert row["big"] == 9223372036854775807
    assert row["t"] == "2025-12-31T23:02:03.000004+00:00"
    assert row["j"] == {"a": [1, 1.5], "b": "x\ny"}
    assert row["jb"] == {"c": 1}
    assert row["l"] == ["a", None]
    assert row["b"] == __import__("base64").b64encode(b"\xff\x00" * 60).decode()
    assert row["nothing"] is None
    assert row["i"] == "P1DT2H"
    assert row["literal"] == ':x %s %(a)s {} \\ "'
    assert row["lines"] == "line\nbreak"


def test_a_query_cannot_write(database, tmp_path):
    execute(
        database,
        "CREATE TABLE t (id int, changed int)",
        "INSERT INTO t VALUES (1, 1)",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'INSERT INTO t VALUES (9, 9) RETURNING id'",
        "CREATE FUNCTION g() RETURNS text LANGUAGE sql AS"
        " $$ SELECT set_config('default_transaction_read_only', 'off', false) $$",
    )
    source = opened(database, "SELECT f() AS id, changed, g() AS g FROM t")
    for _ in range(2):
        with pytest.raises(SourceRefused, match="read-only"):
            source.plan({}, max_bytes=1000, max_records=3)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (1,)


def test_a_slow_query_is_ended_by_the_server(database):
    asked = PostgresQuery(
        name="films", address=database, query="SELECT 1 AS id, 1 AS changed, pg_sleep(60) AS s",
        key="changed", id="id", statement_timeout_seconds=0.2,
    )  # fmt: skip
    with pytest.raises(SourceUnavailable, match="57014"):
        asked.row_bytes()
    asked.close()


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [("1 / (id - 9000)", SourceRefused, "22012"), ("pg_sleep(0.001)", SourceUnavailable, "57014")],
)
def test_what_fails_behind_the_first_rows_is_named_and_no_error_of_a_file(
    value, error, says, database, tmp_path
):
    asked = PostgresQuery(
        name="films", address=database, key="changed", id="id", statement_timeout_seconds=1,
        query=f"SELECT id, id AS changed, repeat('x', 1000) AS more, ({value})::text AS v"
        " FROM generate_series(1, 10000) id",
    )  # fmt: skip
    with pytest.raises(error, match=says):
        asked.write(KeyBounds(), tmp_path / "rows")
    asked.close()


def test_changed_types_and_dropped_columns_are_named(database, tmp_path):
    execute(database, "CREATE TABLE t (id int, changed timestamptz)", "INSERT INTO t VALUES (1, now())")
    source = opened(database, "SELECT * FROM t")
    _, positions = read_all(source, tmp_path)
    execute(database, "ALTER TABLE t ALTER id TYPE bigint")
    assert source.plan(positions, max_bytes=1000, max_records=3) is None
    execute(database, "ALTER TABLE t ALTER changed TYPE text")
    with pytest.raises(SourceRefused, match=r"changed is text.*timestamptz"):
        source.plan(positions, max_bytes=1000, max_records=3)
    execute(database, "ALTER TABLE t DROP changed")
    with pytest.raises(SourceRefused, match="no column changed"):
        source.plan(positions, max_bytes=1000, max_records=3)


@pytest.mark.parametrize(
    ("query", "overlap", "field", "message"),
    [
        ("SELECT 1 AS id, 2 AS other", None, "incremental_key", "no column `changed`"),
        ("SELECT 1 AS id, '{}'::json AS changed", None, "incremental_key", "has no order"),
        ("SELECT 1 AS id, 'a' AS changed", 5, "overlap", "no overlap"),
        ("SELECT 1 AS id, 2 AS changed, 3 AS a, 4 AS a", None, "query", "two columns named `a`"),
        ("SELECT 1 AS id, NULL::int AS changed", None, "incremental_key", "rows without a `changed`"),
        ("SELECT 1 AS id, 2 AS changed UNION ALL SELECT 1, 2", None, "incremental_id_key", "several rows"),
        ("SELECT 1 AS id, 2 AS changed, 3", None, "query", "cannot be read: it has no name"),
        ("SELECT 1 AS id, 2 AS changed, 3::money AS m", None, "query", "locale"),
    ],
)
def test_validation_names_field_and_fix(query, overlap, field, message, database):
    asked = opened(database, query).database
    [problem] = query_problems(asked, key="changed", id="id", overlap=overlap)
    assert problem.field == field
    assert message in problem.message
    assert problem.fix


def test_a_row_that_appears_between_plan_and_read_is_not_lost(database, tmp_path):
    execute(database, "CREATE TABLE t (id int, changed int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    source = opened(database, "SELECT * FROM t", overlap=Decimal(5))
    planned = source.plan({}, max_bytes=1000, max_records=9)
    assert planned is not None
    execute(database, "INSERT INTO t VALUES (0, 1)", "INSERT INTO t VALUES (3, 3)")
    source.read(planned, tmp_path)
    rest = tmp_path / "rest"
    rest.mkdir()
    rows, _ = read_all(source, rest, dict(planned.end))
    assert {0, 3} <= {row["id"] for row in rows}


def test_the_password_stands_in_no_message():
    source = opened("postgresql://u:geheim@127.0.0.1:1/x", "SELECT 1 AS id, 2 AS changed")
    with pytest.raises(SourceUnavailable) as raised:
        source.plan({}, max_bytes=1, max_records=1)
    assert "geheim" not in str(raised.value) + repr(source)


def test_sqlite_is_read_by_sqlalchemy(tmp_path):
    sa = pytest.importorskip("sqlalchemy")
    import sqlite3

    from etl_assets.sources.sql.alchemy import AlchemyQuery

    with sqlite3.connect(tmp_path / "films.db") as connection:
        connection.execute("CREATE TABLE t (id INTEGER, changed TEXT, note BLOB)")
        connection.executemany(
            "INSERT INTO t VALUES (?, ?, ?)", [(n, f"k{n // 4}", b"\xff") for n in range(9)]
        )
    asked = AlchemyQuery(
        name="films",
        url=sa.URL.create("sqlite", database=str(tmp_path / "films.db")),
        query=single_query("SELECT id, changed, note, ':x %s {}' AS literal FROM t; -- end"),
        key="changed",
        id="id",
    )
    source = SqlQuery(name="films", database=asked, key="changed", id="id", today=lambda: _DAY)
    (tmp_path / "out").mkdir()
    rows, positions = read_all(source, tmp_path / "out", page=2)
    assert [row["id"] for row in rows] == list(range(9))
    assert rows[0] == {"id": 0, "changed": "k0", "note": "/w==", "literal": ":x %s {}"}
    assert source.lag(positions).records == 0
    assert query_problems(asked, key="changed", id="id", overlap=None) == []
    source.close()

"""The PostgreSQL sink on a real server."""

from __future__ import annotations

import datetime as dt
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from etl_assets.contracts.arrow_types import arrow_schema
from etl_assets.contracts.columns import Column, TableContract
from etl_assets.errors import SinkFenced, SinkRefused, SinkUnavailable
from etl_assets.pipelines.sink_specs import PostgresSinkSpec
from etl_assets.settings.connections import PostgresConnection
from etl_assets.settings.secret import Secret
from etl_assets.sinks.postgres import sink as module
from etl_assets.sinks.postgres.open import open_postgres
from etl_assets.sinks.postgres.sink import PostgresSink
from etl_assets.sinks.sink import Delivery, Rejection
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.reference.peak_memory import growth
from etl_assets_tests.sinks.contract import CONTRACT, SinkContract, Stored, at, delivery, in_the_middle, many

PASSWORD = "SINK_TEST_PASSWORD"


@pytest.fixture
def schema() -> str:
    return f"s{uuid.uuid4().hex[:10]}"


@pytest.fixture
def connection(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresConnection:
    monkeypatch.setenv(PASSWORD, postgres_server.password)
    return PostgresConnection(
        type="postgres",
        host="127.0.0.1",
        port=postgres_server.port,
        database="postgres",
        user=postgres_server.user,
        password=Secret("${" + PASSWORD + "}"),
        write=("*",),
        statement_timeout_seconds=30,
        lock_timeout_seconds=2,
    )


@pytest.fixture
def opened(connection: PostgresConnection, schema: str) -> Callable[[], PostgresSink]:
    spec = PostgresSinkSpec(type="postgres", connection="c", table=f"{schema}.films")
    return lambda: open_postgres(spec, connection, None, "films")  # ty: ignore[invalid-argument-type]


@pytest.fixture
def query(postgres_server: PostgresServer, schema: str) -> Callable[[str], list[tuple[Any, ...]]]:
    def run(text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(postgres_server.database_url("postgres"), autocommit=True) as session:
            found = session.execute(text.replace("SCHEMA", schema).encode())
            return found.fetchall() if found.description else []

    return run


@pytest.fixture
def stored(query) -> Stored:
    return lambda: set(query("SELECT id, name FROM SCHEMA.films"))


class TestPostgresSink(SinkContract):
    """It keeps the contract of sinks."""


@pytest.mark.parametrize("whole", [False, True], ids=["new", "whole"])
def test_memory_does_not_grow_with_the_rows(opened, query, tell, whole):
    sink = opened()
    sink.prepare(CONTRACT)
    sink.deliver(many(None, at(1), 20_000, whole=True))
    with growth() as grown:
        sink.deliver(many(at(1), at(2), 200_000, whole=whole))
    sink.close()
    tell(f"PostgreSQL sink, 200,000 rows, {'whole' if whole else 'new'}: {grown.mib} MiB more")
    assert query("SELECT count(*) FROM SCHEMA.films") == [(200_000,)]
    assert grown.mib < 15


EVERY_TYPE = TableContract(
    name="every",
    description="Every type.",
    columns=(
        Column("id", "BIGINT", "Key."),
        *(
            Column(name, kind, "Of a type.", nullable=True)
            for name, kind in {
                "t": "STRING",
                "i": "INT",
                "ts": "TIMESTAMP",
                "d": "DATE",
                "b": "BOOLEAN",
                "f": "DOUBLE",
                "n": "DECIMAL(38,10)",
                "l": "ARRAY<BIGINT>",
                "m": "MAP<STRING, INT>",
                "s": "STRUCT<a: STRING, at: TIMESTAMP>",
            }.items()
        ),
    ),
    merge_key=("id",),
)


def test_values_of_every_type_arrive_as_they_are(opened, query):
    time = dt.datetime(1583, 5, 6, 7, 8, 9, 123456, tzinfo=dt.UTC)
    row = {
        "id": 1,
        "t": 'a "b",\nä\\N',
        "i": -(2**31),
        "ts": time,
        "d": dt.date(9999, 12, 31),
        "b": True,
        "f": float("-inf"),
        "n": Decimal("1234567890123456789012345678.0000000001"),
        "l": [1, None, 2**63 - 1],
        "m": [("a", 1), ("b", None)],
        "s": {"a": "", "at": time},
    }
    rows = pa.Table.from_pylist(
        [row, {"id": 2, "t": ""}, {"id": 3}, {"id": 4, "f": 0.1 + 0.2, "n": Decimal("-1E-10")}],
        schema=arrow_schema(EVERY_TYPE),
    )
    sink = opened()
    sink.prepare(EVERY_TYPE)
    given = Delivery(
        before=None,
        after=at(1),
        whole=True,
        rows=lambda: iter(rows.to_batches()),
        deleted=lambda: iter(()),
        reject=lambda rejections: pytest.fail(str(rejections)),
    )
    assert sink.deliver(given).written == 4
    first, second, third, fourth = query("SELECT * FROM SCHEMA.films ORDER BY id")
    expected = {**row, "m": {"a": 1, "b": None}, "s": {"a": "", "at": time.isoformat()}}
    assert first == tuple(expected.values())
    assert second[1] == ""
    assert third[1:] == (None,) * 10
    assert (fourth[6], fourth[7]) == (0.1 + 0.2, Decimal("-1E-10"))
    again = Delivery(
        before=at(1), after=at(2), whole=True, rows=given.rows, deleted=given.deleted, reject=given.reject
    )
    done = sink.deliver(again)
    assert (done.written, done.unchanged, done.deleted) == (0, 4, 0)
    sink.close()


def test_a_row_that_the_server_or_a_users_constraint_refuses_is_rejected_and_the_rest_arrives(
    opened, query, stored
):
    sink = opened()
    sink.prepare(CONTRACT)
    query("ALTER TABLE SCHEMA.films ADD CHECK (name <> 'forbidden')")
    query("ALTER TABLE SCHEMA.films ADD score numeric(3, 1) GENERATED ALWAYS AS (id * 10) STORED")
    rejected: list[Rejection] = []
    rows = [(1, "a"), (2, "forbidden"), (3, "nul\0"), (4, "d"), (5, "e"), (60, "overflow")]
    done = sink.deliver(delivery(None, at(1), rows, whole=True, rejected=rejected))
    assert {row[:2] for row in stored()} == {(1, "a"), (4, "d"), (5, "e")}
    assert (done.written, done.rejected) == (3, 3)
    assert {each.keys for each in rejected} == {'{"id": 2}', '{"id": 3}', '{"id": 60}'}
    assert all(each.error for each in rejected)
    sink.close()


def test_a_whole_delivery_to_an_empty_table_is_copied_and_takes_keys_that_appear_meanwhile(
    opened, query, stored, monkeypatch
):
    sink = opened()
    sink.prepare(CONTRACT)
    with monkeypatch.context() as patched:
        patched.setattr(module._Load, "_upsert", lambda *_: pytest.fail("rows were not copied"))
        sink.deliver(delivery(None, at(1), [(1, "a"), (2, "b")], whole=True))
    assert stored() == {(1, "a"), (2, "b")}
    query("DELETE FROM SCHEMA.films")
    rows = [(number, "ours") for number in range(12)]
    theirs = "INSERT INTO SCHEMA.films (id, name) VALUES (11, 'theirs')"
    done = sink.deliver(in_the_middle(delivery(at(1), at(2), rows, whole=True), lambda: query(theirs)))
    assert (done.written, done.rejected) == (12, 0)
    assert stored() == set(rows)
    # The next whole delivery compares rows again.
    done = sink.deliver(delivery(at(2), at(3), rows[1:], whole=True))
    assert (done.written, done.unchanged, done.deleted) == (0, 11, 1)
    sink.close()


def test_rows_of_a_table_with_row_security_are_not_copied(connection, schema, query, monkeypatch):
    query("CREATE ROLE SCHEMA LOGIN PASSWORD 'SCHEMA'")
    query("GRANT CREATE ON DATABASE postgres TO SCHEMA")
    monkeypatch.setenv(PASSWORD, schema)
    spec = PostgresSinkSpec(type="postgres", connection="c", table=f"{schema}.films")
    sink = open_postgres(spec, connection.model_copy(update={"user": schema}), None, "films")  # ty: ignore[invalid-argument-type]
    sink.prepare(CONTRACT)
    query("ALTER TABLE SCHEMA.films ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY")
    query("CREATE POLICY everything ON SCHEMA.films USING (true)")
    assert sink.deliver(delivery(None, at(1), [(1, "a")], whole=True)).written == 1
    sink.close()
    assert query("SELECT id, name FROM SCHEMA.films") == [(1, "a")]


def test_columns_are_added_and_widened_and_what_cannot_be_is_refused_by_name(opened, query):
    def of(*columns: Column) -> TableContract:
        return TableContract(
            name="films", description="F.", columns=(Column("id", "INT", "K."), *columns), merge_key=("id",)
        )

    sink = opened()
    sink.prepare(of(Column("n", "INT", "N.", nullable=True)))
    sink.prepare(of(Column("n", "BIGINT", "N.", nullable=True), Column("t", "STRING", "T.", nullable=True)))
    types = dict(
        query(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_schema = 'SCHEMA' AND table_name = 'films'"
        )
    )
    assert types == {"id": "integer", "n": "bigint", "t": "text"}
    with pytest.raises(SinkRefused, match="column t is text"):
        sink.prepare(of(Column("n", "BIGINT", "N.", nullable=True), Column("t", "DATE", "T.", nullable=True)))
    sink.close()


def test_a_users_table_with_rows_or_without_the_key_is_left_alone(opened, query):
    query("CREATE schema SCHEMA")
    query("CREATE TABLE SCHEMA.films AS SELECT 1::bigint AS id, 'mine'::text AS name")
    sink = opened()
    with pytest.raises(SinkRefused, match="did not deliver"):
        sink.prepare(CONTRACT)
    query("DELETE FROM SCHEMA.films")
    with pytest.raises(SinkRefused, match="no primary key"):
        sink.prepare(CONTRACT)
    sink.close()


def test_a_second_pipeline_does_not_take_a_target(opened, connection, schema):
    sink = opened()
    sink.prepare(CONTRACT)
    sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    spec = PostgresSinkSpec(type="postgres", connection="c", table=f"{schema}.films")
    other = open_postgres(spec, connection, None, "others")  # ty: ignore[invalid-argument-type]
    with pytest.raises(SinkRefused, match="of the pipeline films"):
        other.prepare(CONTRACT)
    other.close()
    sink.close()


WRITER = """
import sys, time
from etl_assets.pipelines.sink_specs import PostgresSinkSpec
from etl_assets.settings.connections import PostgresConnection
from etl_assets.sinks.postgres import sink as module
from etl_assets.sinks.postgres.open import open_postgres
from etl_assets_tests.sinks.contract import CONTRACT, at, delivery
from dataclasses import replace
connection = PostgresConnection.model_validate_json(sys.argv[1])
spec = PostgresSinkSpec(type="postgres", connection="c", table=sys.argv[2])
sink = open_postgres(spec, connection, None, "films")
sink.prepare(CONTRACT)
given = delivery(at(1), at(2), [(1, "paused"), (2, "paused")])
def rows():
    for batch in given.rows():
        yield batch
        print("begun", flush=True)
        sys.stdin.readline()

sink.deliver(replace(given, rows=rows))
"""


def test_a_writer_that_is_stopped_in_its_transaction_and_wakes_up_changes_nothing(
    opened, stored, connection, schema
):
    sink = opened()
    sink.prepare(CONTRACT)
    sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    short = connection.model_copy(update={"statement_timeout_seconds": 2})
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, short.model_dump_json(), f"{schema}.films"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "begun\n"
        writer.send_signal(signal.SIGSTOP)
        # It holds the position until the server ends its session: until then nobody passes it.
        deadline = time.monotonic() + 60
        while True:
            try:
                sink.deliver(delivery(at(1), at(2), [(1, "b"), (3, "c")]))
            except SinkUnavailable:
                assert time.monotonic() < deadline
                time.sleep(0.2)
                continue
            break
        writer.send_signal(signal.SIGCONT)
        _, errors = writer.communicate("\n\n", timeout=30)
        assert writer.returncode != 0
        assert "SinkUnavailable" in errors
    finally:
        writer.kill()
        writer.wait()
    assert stored() == {(1, "b"), (3, "c")}
    sink.close()


def test_the_writer_that_comes_second_is_fenced(opened, stored):
    sink = opened()
    sink.prepare(CONTRACT)
    sink.deliver(delivery(None, at(1), [(1, "a")], whole=True))
    with pytest.raises(SinkFenced):
        sink.deliver(delivery(at(0), at(2), [(1, "b")]))
    assert stored() == {(1, "a")}
    sink.close()


def test_a_server_that_is_down_or_lets_nobody_in_is_unavailable_and_no_password_is_shown(connection):
    spec = PostgresSinkSpec(type="postgres", connection="c", table="s.films")
    down = connection.model_copy(update={"port": 1})
    with pytest.raises(SinkUnavailable):
        open_postgres(spec, down, None, "films")  # ty: ignore[invalid-argument-type]
    nobody = connection.model_copy(update={"user": "nobody_here"})
    with pytest.raises(SinkUnavailable) as caught:
        open_postgres(spec, nobody, None, "films")  # ty: ignore[invalid-argument-type]
    assert os.environ[PASSWORD] not in str(caught.value)

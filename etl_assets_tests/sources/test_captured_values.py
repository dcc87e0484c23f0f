"""What PostgreSQL sends for captured tables: values of all kinds, partitions, keys, and what empties them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from etl_assets.sources.captures.phases import TablePhase
from etl_assets_tests.sources.captured import CAPTURE, Captured

DIGITS = "1" * 39 + ".25"
WHOLE = {
    "amount": DIGITS,
    "any_number": "123456789012345678901234567890123456789012345678901234567890.5",
    "tags": ["a,b", None, ""],
    "numbers": [1, None, -3],
    "doc": '{"a": [1, {"b": null}]}',
    "mood": "so, so",
    "moods": ["sad", None],
    "price": 12.5,
    "span": "[2024-01-01,2024-02-01)",
    "spans": "{[1,3),[7,9)}",
    "doubled": 8,
    "size": 4,
    "far": "5874897-12-31",
}
"""Columns of the table below, and their values in a record. `far` is beyond the years of ISO 8601."""
TYPES = f"""
CREATE TYPE mood AS ENUM ('sad', 'so, so');
CREATE DOMAIN amount AS numeric(9, 2) CHECK (VALUE > 0);
CREATE DOMAIN price AS amount;
CREATE TABLE film (
    id bigint PRIMARY KEY, size int, amount numeric(60, 2), any_number numeric, tags text[], numbers int[],
    doc jsonb, mood mood, moods mood[], price price, span daterange, spans int4multirange,
    doubled int GENERATED ALWAYS AS (size * 2) STORED, since date, at timestamptz
);
CREATE FUNCTION fill(bigint, date) RETURNS void LANGUAGE sql AS $$
    INSERT INTO film
        (id, size, amount, any_number, tags, numbers, doc, mood, moods, price, span, spans, since)
    VALUES ($1, 4, {DIGITS}, {WHOLE["any_number"]}, '{{"a,b",NULL,""}}', '{{1,NULL,-3}}',
        '{{"a": [1, {{"b": null}}]}}', 'so, so', '{{sad,NULL}}', 12.5, '[2024-01-01,2024-02-01)',
        '{{[1,3),[7,9)}}', $2)
$$
"""


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


def follow(shop: Captured, *tables: str) -> None:
    """Read all there is, and expect that the tables have the rows of their sources."""
    for table in tables:
        shop.ingest(table)
        assert shop.held(table) == shop.source(table)


def test_values_of_all_kinds_are_the_same_by_the_copy_and_by_the_log(shop):
    shop.execute(TYPES, "SELECT fill(1, '2024-05-01')", "SELECT fill(2, 'infinity')")
    if shop.session.info.server_version >= 180_000:
        shop.execute("ALTER TABLE film ADD tripled int GENERATED ALWAYS AS (size * 3) VIRTUAL")
    shop.discover()
    shop.settle("film")
    shop.execute(
        "SELECT fill(3, '2024-05-01')",
        "SELECT fill(4, '-infinity')",
        "INSERT INTO film (id) VALUES (5)",
        "UPDATE film SET at = 'infinity' WHERE id = 5",
        "INSERT INTO film (id, size) VALUES (6, 6)",
        "UPDATE film SET size = 7 WHERE id = 6",
    )
    shop.ingest("film")
    records = {each["id"]: each for each in shop.records("film")}
    assert set(records) == {1, 3, 5, 6}
    for number in (1, 3):
        assert {name: records[number][name] for name in WHOLE if name in records[number]} == {
            name: value for name, value in WHOLE.items() if name not in ("doubled", "far")
        }
        assert records[number]["since"] == "2024-05-01"
    # Neither the log nor the copy has generated columns.
    assert not {"doubled", "tripled"} & set(records[1])
    assert "doubled" not in shop.states()["film"].columns
    rejected = shop.home.rows(f"{CAPTURE}_film_source_rejects")
    assert (
        sorted((row["reason"], "infinity" in row["error"]) for row in rejected)
        == [("MalformedValue", True)] * 3
    )
    assert shop.phases() == {"film": "ready"}
    types = shop.states()["film"].declaration["columns"]
    assert (types["amount"]["type"], types["price"]["type"]) == ("string", "decimal(9,2)")


ODD_VALUES = {
    "since date": ("'infinity'", "it is infinity"),
    "seen timestamptz": ("'294276-12-31'", "it is after the year 294246"),
    "price numeric(5, 2)": ("'NaN'", "it is not a finite number"),
    "score float8": ("'Infinity'", "Infinity is not JSON"),
    "part float4": ("'NaN'", "NaN is not JSON"),
    "far float8": ("1e300", "a number has more than 38 digits"),
    "days date[]": ("'{2024-01-01,NULL,-infinity}'", "an element: it is -infinity"),
    "scores float8[]": ("'{1,NULL,NaN}'", "NaN is not JSON"),
    "grid int[][]": ("'{{1,2},{3,NULL}}'", "it has several dimensions"),
}
"""Columns, a value of each that its type in the table cannot hold, and what its dead letter says."""


def test_a_value_that_cannot_be_held_is_a_dead_letter_with_its_column_and_its_row(shop):
    shop.execute(
        f"CREATE TABLE film (id bigint PRIMARY KEY, title varchar(9) NOT NULL, {', '.join(ODD_VALUES)})"
    )

    def write(first: int) -> None:
        for number, (column, (value, _)) in enumerate(ODD_VALUES.items(), first):
            name = column.split()[0]
            shop.execute(f"INSERT INTO film (id, title, {name}) VALUES ({number}, 'odd', {value})")

    write(1)
    shop.execute("INSERT INTO film VALUES (50, 'plain')")
    shop.discover()
    shop.settle("film")
    write(101)
    # A captured column may be null: the column of the source decides, and it may change its mind.
    shop.execute("ALTER TABLE film ALTER title DROP NOT NULL", "INSERT INTO film (id) VALUES (51)")
    shop.ingest("film")
    assert {each["id"]: each["title"] for each in shop.records("film")} == {50: "plain", 51: None}
    errors = {
        json.loads(row["record"].replace("NaN", "0").replace("Infinity", "0"))["id"]: row["error"]
        for row in shop.home.rows(f"{CAPTURE}_film_source_rejects")
    }
    for first in (1, 101):
        for number, (column, (_, words)) in enumerate(ODD_VALUES.items(), first):
            assert errors.pop(number).startswith(f"{column.split()[0]}: {words}")
    assert errors == {}
    assert shop.phases() == {"film": "ready"}


def test_a_truncate_with_cascade_empties_all_its_tables_and_no_other(shop):
    shop.make_tables("film", "staff")
    shop.execute(
        "CREATE TABLE actor (id bigint PRIMARY KEY, title varchar(40), n int REFERENCES film)",
        "ALTER TABLE film ALTER n TYPE bigint",
        "ALTER TABLE actor ALTER n TYPE bigint",
        "INSERT INTO actor SELECT id, 'of', id FROM film",
    )
    shop.discover()
    shop.settle("film", "actor", "staff")
    shop.execute(
        "BEGIN; INSERT INTO film VALUES (7, 'gone', 7); TRUNCATE film CASCADE;"
        " INSERT INTO film VALUES (8, 'there', 8); INSERT INTO actor VALUES (1, 'new', 8); COMMIT"
    )
    follow(shop, "film", "actor", "staff")
    assert (set(shop.held("film")), set(shop.held("actor"))) == ({8}, {1})
    shop.execute("TRUNCATE film, actor, staff")
    follow(shop, "film", "actor", "staff")
    assert shop.held("staff") == {}


def test_replica_identities_of_all_kinds_and_keys_that_change(shop):
    shop.make_tables("by_key", "by_index", "whole")
    shop.execute(
        "ALTER TABLE by_index ADD code bigint GENERATED ALWAYS AS IDENTITY UNIQUE",
        "ALTER TABLE by_index DROP CONSTRAINT by_index_pkey, ALTER id SET NOT NULL, ADD UNIQUE (id)",
        "ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_id_key",
        "ALTER TABLE by_index DROP code",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE nothing (id bigint PRIMARY KEY, title varchar(40), n int)",
        "ALTER TABLE nothing REPLICA IDENTITY NOTHING",
    )
    assert shop.discover().errored == ("public.nothing",)
    tables = ("by_key", "by_index", "whole")
    shop.settle(*tables)
    for table in tables:
        shop.execute(
            # Two rows change places by a third key, and one moves there and back.
            f"BEGIN; UPDATE {table} SET id = 9 WHERE id = 1; UPDATE {table} SET id = 1 WHERE id = 2;"
            f" UPDATE {table} SET id = 2 WHERE id = 9; UPDATE {table} SET id = 8, n = 8 WHERE id = 3;"
            f" UPDATE {table} SET id = 3 WHERE id = 8; COMMIT",
            f"UPDATE {table} SET id = id + 10",
            f"DELETE FROM {table} WHERE id = 12",
        )
    follow(shop, *tables)
    # Another identity while it is followed: the log has the keys of its time.
    for table, identity in zip(tables, ("FULL", "FULL", "DEFAULT"), strict=True):
        shop.execute(
            f"ALTER TABLE {table} REPLICA IDENTITY {identity}",
            f"UPDATE {table} SET id = 20 WHERE id = 11",
            f"DELETE FROM {table} WHERE id = 13",
        )
    follow(shop, *tables)
    assert set(shop.phases().values()) == {"ready", "errored"}


def test_a_sequence_of_alter_tables_between_two_readings_leaves_the_rows_of_the_source(shop):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute(
        "ALTER TABLE film ADD note text DEFAULT 'old'",
        "INSERT INTO film VALUES (10, 'ten', 10, 'ten')",
        "ALTER TABLE film ALTER n TYPE bigint",
        "UPDATE film SET n = 5000000000 WHERE id = 1",
        "BEGIN; UPDATE film SET title = 'in' WHERE id = 2; ALTER TABLE film RENAME note TO remark;"
        " INSERT INTO film VALUES (11, 'eleven', 11, 'eleven'); ALTER TABLE film ADD extra int;"
        " UPDATE film SET extra = 1 WHERE id = 11; COMMIT",
        "BEGIN; ALTER TABLE film ADD never int; INSERT INTO film VALUES (99); ROLLBACK",
        "ALTER TABLE film DROP extra",
        "DELETE FROM film WHERE id = 3",
    )
    shop.ingest("film")
    assert shop.discover().changed == ("public.film",)
    shop.settle("film")
    shop.load("film")
    rows = {row["id"]: (row["title"], row["n"], row["remark"]) for row in shop.home.rows("shop_film")}
    assert rows == shop.source("film")
    assert rows[1] == ("film 1", 5_000_000_000, "old")


def test_messages_of_others_in_the_log_are_read_past(shop):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    for is_transactional in ("true", "false"):
        shop.execute(
            f"BEGIN; SELECT pg_logical_emit_message({is_transactional}, 'outbox', '\\\\xff not ours')",
            f"UPDATE film SET n = n + 1; SELECT pg_logical_emit_message({is_transactional}, 'x', '')",
            "COMMIT",
            f"SELECT pg_logical_emit_message({is_transactional}, 'etl-assets', 'not ours either')",
        )
    follow(shop, "film")
    before = shop.confirmed()
    for _ in range(3):
        shop.look()
    assert shop.confirmed() != before


def make_partitions(shop: Captured) -> None:
    shop.execute(
        "CREATE TABLE film (id bigint PRIMARY KEY, title varchar(40), n int) PARTITION BY RANGE (id)",
        "CREATE TABLE film_low PARTITION OF film FOR VALUES FROM (0) TO (500)",
        "CREATE TABLE film_high PARTITION OF film FOR VALUES FROM (500) TO (1000)",
        "INSERT INTO film SELECT i, 'film ' || i, i FROM generate_series(1, 991, 99) i",
    )


def test_a_partitioned_table_is_one_table_where_the_publication_has_its_root(shop):
    make_partitions(shop)
    assert shop.discover().added == ("public.film",)
    shop.settle("film")
    shop.execute(
        "UPDATE film SET id = id + 500 WHERE id < 500",  # to another partition
        "CREATE TABLE film_top PARTITION OF film FOR VALUES FROM (1000) TO (2000)",
        "INSERT INTO film VALUES (1500, 'top', 1)",
        "DELETE FROM film_high WHERE id = 991",
    )
    follow(shop, "film")
    assert shop.discover().changed == ()
    assert shop.states()["film"].copies == 0
    shop.execute("TRUNCATE film", "INSERT INTO film VALUES (7, 'seven', 7)")
    follow(shop, "film")


def test_a_publication_without_the_root_of_a_partitioned_table_is_not_followed_until_it_has_it(shop):
    make_partitions(shop)
    shop.make_tables("actor")
    shop.execute("CREATE PUBLICATION shop FOR TABLE film, actor")
    assert shop.discover().added == ("public.actor",)
    shop.execute("ALTER PUBLICATION shop SET (publish_via_partition_root = true)")
    assert shop.discover().added == ("public.film",)
    shop.settle("film", "actor")
    shop.execute("UPDATE film SET n = 0 WHERE id < 500")
    follow(shop, "film", "actor")
    shop.execute("ALTER PUBLICATION shop SET (publish_via_partition_root = false)")
    shop.execute("UPDATE film SET n = 1", "UPDATE actor SET n = 1")
    assert shop.discover().left == ("public.film",)
    follow(shop, "actor")
    shop.execute("ALTER PUBLICATION shop SET (publish_via_partition_root = true)")
    assert shop.discover().added == ("public.film",)
    shop.settle("film")
    assert shop.held("film") == shop.source("film")


ATTACHED = """
CREATE TABLE film_top (id bigint PRIMARY KEY, title varchar(40), n int);
INSERT INTO film_top VALUES (1500, 'top', 1);
ALTER TABLE film ATTACH PARTITION film_top FOR VALUES FROM (1000) TO (2000)
"""


@pytest.mark.parametrize(
    "statements",
    [
        ("ALTER TABLE film DETACH PARTITION film_low",),
        ("DROP TABLE film_low",),
        ("TRUNCATE film_low",),
        (f"{ATTACHED};",),
        (f"BEGIN; {ATTACHED}; COMMIT",),
        (
            "ALTER TABLE film DETACH PARTITION film_low; DELETE FROM film_low WHERE id = 1",
            "ALTER TABLE film ATTACH PARTITION film_low FOR VALUES FROM (0) TO (500)",
        ),
    ],
    ids=["detached", "dropped", "truncated", "attached", "attached at once", "attached again"],
)
def test_rows_that_come_or_go_with_a_partition_are_not_in_the_log_so_the_table_is_copied_again(
    shop, statements: tuple[str, ...]
):
    make_partitions(shop)
    shop.discover()
    shop.settle("film")
    shop.execute(*statements)
    shop.discover()
    shop.settle("film")
    assert shop.held("film") == shop.source("film")


def test_rows_that_go_with_a_partition_while_the_table_is_in_error_count_once_it_is_corrected(shop):
    make_partitions(shop)
    shop.discover()
    shop.settle("film")
    shop.execute("ALTER TABLE film DROP CONSTRAINT film_pkey")
    assert shop.discover().errored == ("public.film",)
    shop.execute("ALTER TABLE film DETACH PARTITION film_low", "ALTER TABLE film ADD PRIMARY KEY (id)")
    shop.discover()
    shop.settle("film")
    assert shop.held("film") == shop.source("film")


def record_of(shop: Captured, table: str, id_: int) -> dict[str, Any]:
    return next(each for each in reversed(shop.records(table)) if each["id"] == id_)


def test_a_table_that_was_made_again_under_its_name_is_another_table(shop):
    shop.make_tables("film")
    shop.discover()
    shop.settle("film")
    shop.execute("DROP TABLE film", "CREATE TABLE film (id bigint PRIMARY KEY, n int)")
    shop.execute("INSERT INTO film VALUES (5, 50)")
    found = shop.discover()
    assert found.added == ("public.film",), (found, shop.states()["film"].error)
    shop.settle("film")
    assert record_of(shop, "film", 5)["n"] == 50
    assert set(shop.held("film", ("n",))) == {5}
    assert shop.states()["film"].phase is TablePhase.READY


@pytest.fixture
def moved(shop) -> Captured:
    """A table whose copy is complete. Its row 1 became row 10 before, without its title in the log."""
    shop.declare(max_batch_records=3)
    shop.execute(
        "CREATE TABLE film (id bigint PRIMARY KEY, title text, n int)",
        "ALTER TABLE film ALTER title SET STORAGE EXTERNAL",
        "INSERT INTO film VALUES (1, repeat('one', 2000), 1), (2, repeat('two', 2000), 2)",
    )
    shop.discover()
    shop.look()  # makes the slot
    shop.execute("UPDATE film SET n = n + 1; UPDATE film SET n = n + 1")  # as much as one look reads
    shop.execute("UPDATE film SET id = 10 WHERE id = 1")
    shop.ingest("film", max_batches=1)
    shop.look()
    shop.execute("UPDATE film SET n = 0 WHERE id = 2; UPDATE film SET n = 1 WHERE id = 2")
    shop.look()
    return shop


def test_a_table_with_rows_that_were_read_again_is_ready_once_its_position_has_reached_them(moved):
    moved.execute("UPDATE film SET n = 70 WHERE id = 10")
    moved.ingest("film", max_batches=1)  # reads row 10 again, as it is after the last update
    moved.look()
    assert moved.phases()["film"] == "catchup"
    moved.settle("film")
    titles = {row["id"]: row["title"] for row in moved.records("film") if row["title"]}
    assert titles[10] == "one" * 2000
    assert moved.held("film", ("n",)) == {2: (1,), 10: (70,)}


def test_a_row_that_has_another_key_when_it_is_read_again_is_read_by_that_one(moved):
    moved.execute("UPDATE film SET id = 11 WHERE id = 10", "INSERT INTO film VALUES (10, 'another', 0)")
    moved.ingest("film", max_batches=1)
    assert moved.states()["film"].catchup_lsn > moved.states()["film"].released_lsn
    moved.settle("film")
    moved.ingest("film")
    titles = {row["id"]: row["title"] for row in moved.records("film") if row["title"]}
    assert (titles[10], titles[11]) == ("another", "one" * 2000)
    moved.execute("UPDATE film SET n = 5")
    moved.ingest("film")
    assert moved.held("film", ("n",)) == {2: (5,), 10: (5,), 11: (5,)}
    assert "again" not in moved.positions("film")["log"]

"""Full loads: after each the accepted records are exactly the rows of the query, whatever dies in between."""

from __future__ import annotations

import datetime as dt
import json
import random
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import SourceRefused, SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.sql import comparison, postgres
from etl_assets.sources.sql.full_load import SqlFullLoad
from etl_assets.sources.sql.postgres import PostgresQuery
from etl_assets_tests.sources.shop import QUERY, Shop
from etl_assets_tests.sources.topics import REJECTS, SOURCE

ALL = {"max_bytes": 1 << 20, "max_records": 3}
NOW = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Shop]:
    found = Shop.create(postgres_server, tmp_path)
    found.declare_full()
    yield found
    found.session.close()


def source_of(shop: Shop, query: str = QUERY, sessions: int = 1, **more: Any) -> SqlFullLoad:
    address = shop.session.info.dsn + f" password={shop.session.info.password}"
    database = PostgresQuery(
        name="shop", address=address, query=query, key="film_id", id="film_id", sessions=sessions
    )
    more = {"now": lambda: NOW, **more}
    return SqlFullLoad(name="films", database=database, id=("film_id",), **more)


def rows_of(source: SqlFullLoad, planned, folder) -> list[int]:
    folder.mkdir(parents=True)
    found = source.read(planned, folder)
    return [
        json.loads(line)["film_id"]
        for each in found.files
        for line in (folder / each.day.isoformat() / each.name).read_text("utf-8").splitlines()
    ]


def test_a_load_has_every_row_and_the_next_one_what_changed_and_what_is_gone(shop):
    shop.add(1, 8)
    shop.ingest()
    assert shop.held() == shop.films()
    assert shop.ingest().commits == 0
    shop.execute(
        "UPDATE film SET title = 'Brazil' WHERE film_id = 2",
        "DELETE FROM film WHERE film_id IN (3, 8)",
        "INSERT INTO film VALUES (11, 'Alien')",
    )
    shop.ingest()
    changes = [(2, "Brazil", False), (3, "film 3", True), (8, "film 8", True), (11, "Alien", False)]
    assert sorted(shop.records(8)) == changes
    # A row that is as it was before, and one that comes back, are records too.
    shop.execute(
        "UPDATE film SET title = 'film 2' WHERE film_id = 2", "INSERT INTO film VALUES (3, 'film 3')"
    )
    shop.ingest()
    assert sorted(shop.records(12)) == [(2, "film 2", False), (3, "film 3", False)]
    assert shop.held() == shop.films()
    shop.execute("TRUNCATE film")
    shop.ingest()
    assert shop.held() == {}
    assert shop.ingest().commits == 0
    assert shop.rejected() == []


def test_one_session_reads_one_snapshot_and_another_goes_on_with_the_rows_of_then(shop, tmp_path):
    shop.add(1, 8)
    source = source_of(shop)
    first = source.plan({}, **ALL)
    assert first is not None
    shop.execute("INSERT INTO film VALUES (5, 'late')", "DELETE FROM film WHERE film_id = 6")
    assert rows_of(source, first, tmp_path / "1") == [1, 2, 3]
    second = source.plan(dict(first.end), **ALL)
    assert second is not None
    assert rows_of(source, second, tmp_path / "2") == [4, 5, 6]
    source.close()
    other = source_of(shop)
    third = other.plan(json.loads(json.dumps(dict(first.end))), **ALL)
    assert third is not None
    assert rows_of(other, third, tmp_path / "3") == [4, 5, 5]
    assert third.notes
    # The load that several sessions read is followed by another one, which sees what they did not.
    positions = dict(third.end)
    while (wanted := other.plan(positions, **ALL)) is not None:
        assert wanted.more or wanted.end["query"]["done"]
        rows_of(other, wanted, tmp_path / f"{wanted.end['query']['load']}-{time.monotonic_ns()}")
        positions = dict(wanted.end)
    assert other.lag(positions).records == 0
    other.close()


@pytest.mark.parametrize("sessions", [2, 3, 16])
@pytest.mark.parametrize("query", [QUERY, "SELECT title AS film_id, film_id AS number FROM film"])
def test_several_sessions_read_what_one_reads(shop, tmp_path, monkeypatch, sessions, query):
    monkeypatch.setattr(postgres, "PARALLEL_ROWS", 1)
    shop.add(1, 50)
    shop.execute("UPDATE film SET title = repeat(chr(256 + film_id::int), film_id::int % 9) || film_id::text")
    limits = {"max_bytes": 1 << 20, "max_records": 20}
    found = {}
    for number in (1, sessions):
        source = source_of(shop, query, number)
        positions: Mapping[str, Any] = {}
        files: list[bytes] = []
        while (planned := source.plan(positions, **limits)) is not None:
            folder = tmp_path / f"{number}-{len(files)}"
            folder.mkdir()
            (file,) = source.read(planned, folder).files
            files.append((folder / file.day.isoformat() / file.name).read_bytes())
            assert [path.name for path in (folder / file.day.isoformat()).iterdir()] == [file.name]
            positions = planned.end
        source.close()
        found[number] = files
    assert [len(each.splitlines()) for each in found[1]] == [20, 20, 10]
    assert found[sessions] == found[1]


def test_all_sessions_read_one_snapshot(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "PARALLEL_ROWS", 1)
    shop.add(1, 12)
    source = source_of(shop, sessions=4)
    planned = source.plan({}, max_bytes=1 << 20, max_records=12)
    shop.execute("UPDATE film SET film_id = 100 - film_id", "DELETE FROM film WHERE film_id > 95")
    with sessions_counted(monkeypatch) as sessions:
        assert rows_of(source, planned, tmp_path / "first") == list(range(1, 13))
    assert len(sessions) == 4 + 2, "four for the rows, and two for rows without an id and for all ids"
    source.close()


@contextmanager
def sessions_counted(monkeypatch) -> Generator[list[str]]:
    """The statements that were read, each by a session of its own."""
    read, write = [], PostgresQuery._write

    def counted(self: PostgresQuery, lines: str, path: Path) -> None:
        read.append(lines)
        write(self, lines, path)

    with monkeypatch.context() as patched:
        patched.setattr(PostgresQuery, "_write", counted)
        yield read


def test_a_session_that_fails_among_several_is_the_error_of_the_range(shop, tmp_path, monkeypatch):
    monkeypatch.setattr(postgres, "PARALLEL_ROWS", 1)
    shop.add(1, 12)
    query = "SELECT film_id, 12 / (film_id - 12) AS number FROM film"
    source = source_of(shop, query, 4)
    monkeypatch.setattr(PostgresQuery, "digest", lambda *_: "0:0")
    monkeypatch.setattr(PostgresQuery, "row_bytes", lambda _: 1)
    planned = source.plan({}, max_bytes=1 << 20, max_records=12)
    assert planned is not None
    with pytest.raises(SourceRefused, match="22012"):
        source.read(planned, tmp_path)
    source.close()


def test_a_change_behind_a_load_of_two_sessions_is_read_by_the_load_after_it(shop):
    shop.add(1, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("etl_assets.ingest.range_step.give_way", _raise)
        with pytest.raises(_Interrupted):
            shop.ingest()
    assert sorted(shop.held()) == [1, 2, 3]
    shop.execute("UPDATE film SET title = 'behind' WHERE film_id = 1", "DELETE FROM film WHERE film_id = 2")
    shop.ingest()
    assert shop.held() == shop.films()
    assert shop.ingest().commits == 0


class _Interrupted(Exception):
    pass


def _raise() -> None:
    raise _Interrupted


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.STAGE_AFTER_WRITE}@{SOURCE}",
        f"{Failpoint.TABLE_DURING_COMMIT}@{REJECTS}",
        f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}",
        f"{Failpoint.TABLE_BEFORE_COMMIT}@{SOURCE}",
        f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}",
    ],
)
def test_after_a_kill_and_changes_the_load_goes_on_and_ends_with_the_rows_of_the_query(failpoint, shop):
    shop.add(1, 8)
    shop.ingest()
    shop.execute("UPDATE film SET title = 'changed'", "INSERT INTO film VALUES (NULL, 'nobody')")
    shop.execute("DELETE FROM film WHERE film_id IN (4, 7)")
    process = shop.start_ingest(failpoint)
    process.join(100)
    assert process.exitcode == -9
    shop.execute("DELETE FROM film WHERE film_id = 2", "INSERT INTO film VALUES (9, 'new')")
    shop.ingest()
    there = {film_id: title for film_id, title in shop.films().items() if film_id is not None}
    assert shop.held() == there
    assert {reason for _, reason in shop.rejected()} == {"MissingField"}
    assert shop.ingest().commits == 0


def _killed_at_random(shop: Shop, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    shop.add(1, 40)
    killed = 0
    for turn in range(kills):
        process = shop.start_ingest()
        process.join(chance.uniform(0.05, 1.2))
        killed += process.is_alive()
        process.kill()
        process.join(30)
        some = chance.sample(range(1, 60), 4)
        shop.execute(
            f"UPDATE film SET title = 'turn {turn}' WHERE film_id IN ({some[0]}, {some[1]})",
            f"DELETE FROM film WHERE film_id = {some[2]}",
            f"INSERT INTO film SELECT {some[3]}, 'back {turn}' WHERE NOT EXISTS"
            f" (SELECT FROM film WHERE film_id = {some[3]})",
        )
    assert killed
    last = shop.start_ingest()
    last.join(100)
    assert shop.held() == shop.films()
    assert shop.rejected() == []
    assert shop.ingest().commits == 0


@pytest.mark.kill
def test_loads_killed_at_random_moments_end_with_the_rows_of_the_query(shop):
    _killed_at_random(shop, 5, seed=1)


@pytest.mark.kill
@pytest.mark.full
def test_loads_killed_at_many_random_moments_end_with_the_rows_of_the_query(shop):
    _killed_at_random(shop, 40, seed=2)


def test_rows_without_an_id_and_rows_of_one_id_are_dead_letters_and_hold_nothing_up(shop):
    shop.add(1, 4)
    shop.execute("INSERT INTO film VALUES (NULL, 'nobody'), (2, 'twice'), (4, 'film 4')")
    shop.ingest()
    assert sorted(shop.held()) == [1, 2, 3, 4]
    outcomes = {row["outcome"] for row in shop.pipeline.rejected()}
    assert outcomes == {"rejected", "conflict", "duplicate"}
    assert shop.rejected() == [("rejected", "MissingField")]
    assert shop.ingest().commits == 0
    # One that is left of two is what counts.
    shop.execute("DELETE FROM film WHERE title IN ('film 2', 'nobody')")
    shop.ingest()
    assert shop.held() == shop.films()


def test_changed_types_and_dropped_columns_are_named_and_nothing_is_deleted(shop, tmp_path):
    shop.add(1, 5)
    source = source_of(shop, "SELECT * FROM film")
    first = source.plan({}, **ALL)
    assert first is not None
    source.close()
    shop.execute("ALTER TABLE film ALTER film_id TYPE text")
    with pytest.raises(SourceRefused, match=r"film_id is text.*int8"):
        source.plan(dict(first.end), **ALL)
    shop.execute("ALTER TABLE film DROP film_id")
    with pytest.raises(SourceRefused, match="no column film_id"):
        source.plan(dict(first.end), **ALL)
    source.close()


def test_a_dropped_column_that_is_no_key_changes_rows_and_deletes_none(shop):
    shop.declare_full(query="SELECT * FROM film")
    shop.add(1, 4)
    shop.ingest()
    shop.execute("ALTER TABLE film DROP deleted_at")
    shop.ingest()
    assert shop.held() == shop.films()
    assert [is_deleted for *_, is_deleted in shop.records(4)] == [False] * 4


def test_a_load_begins_when_its_interval_has_passed_and_the_database_is_not_asked_before(shop, tmp_path):
    times = [NOW]
    source = source_of(shop, interval_seconds=60, now=lambda: times[0])
    shop.add(1, 2)
    planned = source.plan({}, **ALL)
    assert planned is not None
    source.close()
    away = PostgresQuery(
        name="shop", address="host=127.0.0.1 port=1", query=QUERY, key="film_id", id="film_id"
    )
    unreachable = SqlFullLoad(
        name="films", database=away, id=("film_id",), interval_seconds=60, now=lambda: times[0]
    )
    assert unreachable.plan(planned.end, **ALL) is None
    assert unreachable.lag(planned.end).records == 0
    times[0] = NOW + dt.timedelta(seconds=60)
    assert unreachable.lag(planned.end).records is None
    with pytest.raises(SourceUnavailable):
        unreachable.plan(planned.end, **ALL)
    assert source.plan(planned.end, **ALL) is not None
    source.close()


def test_a_session_that_the_server_ends_is_gone_on_with(shop, tmp_path):
    shop.add(1, 8)
    source = source_of(shop)
    first = source.plan({}, **ALL)
    assert first is not None
    rows_of(source, first, tmp_path / "1")
    shop.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    second = source.plan(dict(first.end), **ALL)
    assert second is not None
    assert second.notes
    shop.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    folder = tmp_path / "2"
    folder.mkdir()
    with pytest.raises(SourceUnavailable):
        source.read(second, folder)
    source.close()


def test_two_columns_identify_a_row(shop):
    shop.execute(
        "CREATE TABLE cast_ AS SELECT n % 3 AS film_id, 'actor ' || n AS title FROM generate_series(1, 9) n"
    )
    shop.declare(
        load="full",
        id=["film_id", "title"],
        query="SELECT * FROM cast_",
        max_batch_records=2,
        table={"keys": ["film_id", "title"]},
    )
    shop.ingest()
    shop.execute("DELETE FROM cast_ WHERE title = 'actor 4'")
    shop.ingest()
    assert shop.records(9) == [(1, "actor 4", True)]
    assert shop.ingest().commits == 0


def test_ids_are_compared_in_parts_when_there_are_many(shop, monkeypatch):
    monkeypatch.setattr(comparison, "IDS_AT_ONCE", 4)
    shop.declare_full(max_batch_records=100)
    shop.add(1, 50)
    shop.ingest()
    shop.execute("DELETE FROM film WHERE film_id % 3 = 0")
    shop.ingest()
    assert shop.held() == shop.films()
    assert len(shop.records(50)) == 16


def test_a_pipeline_that_was_incremental_goes_on_as_a_whole(shop):
    shop.declare(
        query="SELECT film_id, title, updated_at FROM film",
        incremental_key="updated_at",
        incremental_id_key="film_id",
        table={"write_mode": "apply_changes"},
    )
    shop.add(1, 4)
    shop.ingest()
    shop.declare_full(query="SELECT film_id, title, updated_at FROM film")
    shop.execute("DELETE FROM film WHERE film_id = 1")
    shop.ingest()
    assert shop.records(4) == [(1, "film 1", True)]
    assert shop.held() == shop.films()


def test_other_databases_are_loaded_by_sqlalchemy(tmp_path):
    sa = pytest.importorskip("sqlalchemy")
    import sqlite3

    from etl_assets.sources.sql.alchemy import AlchemyQuery

    path = tmp_path / "films.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE film (film_id INTEGER, title TEXT)")
        connection.executemany("INSERT INTO film VALUES (?, 'x')", [(number,) for number in range(7)])
    asked = AlchemyQuery(
        name="films",
        url=sa.URL.create("sqlite", database=str(path)),
        query="SELECT film_id, title FROM film",
        key="film_id",
        id="film_id",
    )
    source = SqlFullLoad(name="films", database=asked, id=("film_id",), now=lambda: NOW)
    positions, rows = {}, []
    while (wanted := source.plan(positions, **ALL)) is not None:
        rows += rows_of(source, wanted, tmp_path / str(len(rows)))
        positions = dict(wanted.end)
    assert rows == list(range(7))
    assert (tmp_path / "6" / "ids.jsonl").read_text().count("\n") == 7
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM film WHERE film_id = 3")
    assert source.lag(positions).records is None
    source.close()

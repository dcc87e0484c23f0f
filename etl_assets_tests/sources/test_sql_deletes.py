"""Deletes of an incremental query: by a column that marks them, and by comparing ids."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator

import psycopg
import pytest

from etl_assets.failpoints import Failpoint
from etl_assets.sources.sql.postgres import PostgresQuery
from etl_assets.sources.sql.source import SqlQuery
from etl_assets_tests.sources.shop import Shop
from etl_assets_tests.sources.topics import SOURCE

QUERY = "SELECT film_id, title, updated_at, deleted_at FROM film"
INCREMENTAL = {"query": QUERY, "incremental_key": "updated_at", "incremental_id_key": "film_id"}
DETECTING = {**INCREMENTAL, "detect_deletes_interval_seconds": 1}
COLUMNS = {"film_id": "bigint", "title": "string", "updated_at": "timestamp", "deleted_at": "date"}


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Shop]:
    found = Shop.create(postgres_server, tmp_path)
    found.declare(columns=COLUMNS, table={"sequence_by": "updated_at"}, **DETECTING)
    yield found
    found.session.close()


def later() -> None:
    time.sleep(1.1)


def test_ids_that_are_gone_become_deletes_once(shop):
    shop.add(1, 6)
    shop.ingest()
    shop.execute("DELETE FROM film WHERE film_id IN (2, 5)")
    later()
    shop.ingest()
    assert shop.records(6) == [(2, "film 2", True), (5, "film 5", True)]
    later()
    shop.ingest()
    assert len(shop.records()) == 8
    # A row that comes back with a newer key is read, and may be deleted once more.
    shop.execute("INSERT INTO film VALUES (2, 'back', '2026-02-01')")
    shop.ingest()
    assert shop.held() == shop.films()
    shop.execute("DELETE FROM film WHERE film_id = 2")
    later()
    shop.ingest()
    assert shop.held() == shop.films()


def test_a_delete_has_the_place_of_the_newest_version_and_not_of_the_last_to_arrive(shop):
    shop.declare(columns=COLUMNS, table={"sequence_by": "updated_at"}, overlap=3600, **DETECTING)
    shop.execute(
        "INSERT INTO film VALUES (1, 'new', '2026-01-01 12:00:00.5+00'), (2, 'x', '2026-01-01 12:01')"
    )
    shop.ingest()
    shop.execute("UPDATE film SET title = 'old', updated_at = '2026-01-01 12:00:00+00' WHERE film_id = 1")
    shop.ingest()
    assert [title for film_id, title, _ in shop.records() if film_id == 1] == ["new", "old"]
    shop.execute("DELETE FROM film WHERE film_id = 1")
    later()
    shop.ingest()
    assert (1, "new", True) in shop.records(3)


def test_a_row_whose_key_became_null_is_not_gone(shop):
    shop.add(1, 3)
    shop.ingest()
    shop.execute("UPDATE film SET updated_at = NULL WHERE film_id = 2")
    later()
    shop.ingest()
    assert len(shop.records()) == 3
    assert shop.rejected() == [("rejected", "MissingField")]


@pytest.mark.kill
@pytest.mark.parametrize("failpoint", [Failpoint.STAGE_AFTER_WRITE, Failpoint.TABLE_AFTER_COMMIT])
def test_a_comparison_that_is_killed_deletes_each_row_once(failpoint, shop):
    shop.add(1, 4)
    shop.ingest()
    shop.execute("DELETE FROM film WHERE film_id = 3")
    later()
    process = shop.start_ingest(f"{failpoint}@{SOURCE}")
    process.join(100)
    assert process.exitcode == -9
    later()
    shop.ingest()
    assert shop.records(4) == [(3, "film 3", True)]


def test_lag_and_plan_agree_on_when_ids_are_compared(shop):
    shop.add(1, 2)
    times = [dt.datetime(2026, 1, 2, tzinfo=dt.UTC)]
    address = shop.session.info.dsn + f" password={shop.session.info.password}"
    database = PostgresQuery(name="shop", address=address, query=QUERY, key="updated_at", id="film_id")
    source = SqlQuery(
        name="films",
        database=database,
        key="updated_at",
        id="film_id",
        detect_deletes_seconds=60,
        now=lambda: times[0],
    )
    sizes = {"max_bytes": 1 << 20, "max_records": 9}
    first = source.plan({}, **sizes)
    assert first is not None
    assert "ids" not in first.details
    assert source.plan(first.end, **sizes) is None
    assert source.lag(first.end).records == 0
    # A declaration that gets the interval later compares at once.
    former = {name: value for name, value in first.end["query"].items() if name != "compared"}
    assert source.plan({"query": former}, **sizes) is not None
    times[0] += dt.timedelta(seconds=60)
    assert source.lag(first.end).records is None
    second = source.plan(first.end, **sizes)
    assert second is not None
    assert second.details["ids"]
    assert source.plan(second.end, **sizes) is None
    source.close()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.kill
def test_marked_and_deleted_rows_leave_the_table_and_the_target(shop, postgres_server):
    shop.declare(
        columns=COLUMNS,
        table={
            "sequence_by": "updated_at",
            "write_mode": "apply_changes",
            "apply_as_deletes": "deleted_at is not null",
        },
        sinks=[{"type": "postgres", "connection": "shop", "table": "marts.films"}],
        **DETECTING,
    )
    home = shop.pipeline.home

    def run(failpoint: str = "") -> int:
        return home.call("run", failpoint=failpoint, seconds=200).code

    def stored() -> tuple[list[int], list[int]]:
        with psycopg.connect(postgres_server.database_url(shop.database)) as session:
            rows = session.execute("SELECT film_id FROM marts.films ORDER BY 1").fetchall()
        return sorted(row["film_id"] for row in home.rows("people")), [film_id for (film_id,) in rows]

    shop.add(1, 5)
    done = home.call("run", seconds=200)
    assert done.code == 0, done
    assert stored() == ([1, 2, 3, 4, 5],) * 2
    # 2 is marked, and 4 is gone; the step to the table dies on the way.
    shop.execute(
        "UPDATE film SET deleted_at = '2026-02-01', updated_at = '2026-02-01' WHERE film_id = 2",
        "DELETE FROM film WHERE film_id = 4",
    )
    later()
    assert run("table.before_commit@people") == -9
    assert run() == 0
    assert stored() == ([1, 3, 5],) * 2
    # One comes back, one that was marked is gone for good: nothing is left to do for it.
    shop.execute("INSERT INTO film VALUES (4, 'back', '2026-03-01')", "DELETE FROM film WHERE film_id = 2")
    later()
    assert run() == 0
    assert stored() == ([1, 3, 4, 5],) * 2
    assert "deleted_in_source" not in home.rows("people")[0]

"""Rows and changes of PostgreSQL's log straight into a table: what dies in between, and what is not plain."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from etl_assets.errors import ContractError
from etl_assets.failpoints import Failpoint
from etl_assets.settings import load_settings
from etl_assets.sources.positions import read_positions
from etl_assets.sources.replays import record_again, submit_replays
from etl_assets.steps.step import StepReport, platform_table
from etl_assets_tests.sources.captured import Captured
from etl_assets_tests.sources.followed import COLUMNS, Followed

TABLE, TOMBSTONES, REJECTS = "people", "people_tombstones", "people_rejects"
DIRECT: dict[str, Any] = {"keep_records": False}


@pytest.fixture
def films(postgres_server, tmp_path) -> Iterator[Followed]:
    found = Followed.create(postgres_server, tmp_path)
    found.declare(**DIRECT)
    yield found
    found.close()


def add(films: Followed, first: int, last: int) -> None:
    films.execute(f"INSERT INTO film SELECT n, 'film ' || n, 'PG' FROM generate_series({first}, {last}) n")


def follow(films: Followed, spark: Any = None) -> StepReport:
    """Run the step, after which the table equals the source."""
    report = films.pipeline.load(spark)
    assert held(films) == films.films()
    return report


def held(films: Followed) -> dict[Any, Any]:
    found = films.pipeline.home.rows(TABLE, root=films.root)
    rows = {row["film_id"]: (row["title"], row["rating"]) for row in found}
    assert len(rows) == len(found)
    return rows


def rejected(films: Followed) -> list[tuple[str, Any]]:
    found = [row for row in films.pipeline.home.rows(REJECTS) if row["outcome"] == "rejected"]
    return sorted((row["reason"], json.loads(row["record"])["film_id"]) for row in found)


def long(films: Followed, *ids: int) -> None:
    for each in ids:
        films.execute(f"INSERT INTO film VALUES ({each}, repeat('{each}', 5000), 'R')")


def position(films: Followed) -> dict[str, Any]:
    domain = load_settings({"ETL_ASSETS_HOME": str(films.pipeline.home.path)}).placement().reader()
    return read_positions(platform_table(TABLE, domain))["log"]


def test_a_table_is_copied_and_followed_without_records_and_without_spark(films):
    films.declare(**DIRECT, max_batch_records=3)
    add(films, 1, 5)
    copied = follow(films)
    assert copied.total()["inserted"] == 5
    assert films.pipeline.home.folder("people_source") is None
    assert follow(films).commits == 0
    films.execute(
        "INSERT INTO film VALUES (6, 'six', NULL)",
        "UPDATE film SET title = 'two' WHERE film_id = 2",
        "DELETE FROM film WHERE film_id = 3",
        "UPDATE film SET film_id = 40 WHERE film_id = 4",
        "BEGIN; DELETE FROM film WHERE film_id = 5; INSERT INTO film VALUES (5, 'again', 'R'); COMMIT",
        "BEGIN; INSERT INTO film VALUES (99, 'never', 'R'); ROLLBACK",
    )
    report = follow(films).total()
    assert {name: report[name] for name in ("inserted", "updated", "deleted")} == {
        "inserted": 2,
        "updated": 2,
        "deleted": 2,
    }
    films.execute("TRUNCATE film")
    add(films, 7, 8)
    report = follow(films).total()
    assert (report["read"], report["inserted"], report["deleted"]) == (3, 2, 5)
    assert position(films)["lsn"] == films.confirmed()
    assert films.pipeline.home.folder(REJECTS) is None


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(f"{Failpoint.STAGE_AFTER_WRITE}@{TABLE}", marks=pytest.mark.full),
        f"{Failpoint.TABLE_AFTER_COMMIT}@{TOMBSTONES}",
        pytest.param(f"{Failpoint.TABLE_BEFORE_COMMIT}@{TABLE}", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_DURING_COMMIT}@{TABLE}", marks=pytest.mark.full),
        f"{Failpoint.TABLE_AFTER_COMMIT}@{TABLE}",
        pytest.param(f"{Failpoint.TABLE_AFTER_SYNC}@{TABLE}", marks=pytest.mark.full),
        pytest.param(Failpoint.SOURCE_BEFORE_CONFIRM.value, marks=pytest.mark.full),
        pytest.param(Failpoint.SOURCE_AFTER_CONFIRM.value, marks=pytest.mark.full),
    ],
)
def test_a_process_killed_in_the_copy_and_in_the_log_loses_and_doubles_nothing(failpoint, films):
    films.declare(**DIRECT, max_batch_records=2)
    add(films, 1, 5)
    if TOMBSTONES not in failpoint:  # a copy has none
        films.load_and_die(failpoint)
    films.execute(
        "UPDATE film SET title = 'one' WHERE film_id = 1",
        "DELETE FROM film WHERE film_id = 2",
        "UPDATE film SET film_id = 0 WHERE film_id = 4",
        "UPDATE film SET film_id = 9 WHERE film_id = 1",
        "INSERT INTO film VALUES (6, 'six', 'R')",
    )
    follow(films)
    films.execute(
        "UPDATE film SET title = 'nine' WHERE film_id = 9",
        "DELETE FROM film WHERE film_id = 0",
        "TRUNCATE film",
        "INSERT INTO film VALUES (2, 'two', 'R'), (3, 'three', 'R')",
        "DELETE FROM film WHERE film_id = 3",
    )
    films.load_and_die(failpoint)
    add(films, 20, 22)
    follow(films)
    assert follow(films).commits == 0
    assert films.pipeline.home.folder(REJECTS) is None


def test_an_update_keeps_long_values_that_it_does_not_change_also_with_another_key(films):
    films.execute(
        "ALTER TABLE film REPLICA IDENTITY DEFAULT", "ALTER TABLE film ALTER title SET STORAGE EXTERNAL"
    )
    long(films, 1, 2, 3)
    follow(films)
    films.execute(
        "UPDATE film SET rating = 'PG' WHERE film_id < 3",
        "UPDATE film SET film_id = 10 WHERE film_id = 1",
        "UPDATE film SET title = repeat('new', 3000) WHERE film_id = 2",
        "UPDATE film SET rating = 'G'",
    )
    long(films, 4)
    films.execute("UPDATE film SET rating = NULL WHERE film_id = 4")
    follow(films)


@pytest.mark.spark
def test_changes_that_are_not_plain_are_judged_as_records_are_and_replays_do_not_go_back(films, spark):
    columns = {**COLUMNS, "rating": {"type": "string", "one_of": ["PG", "R"]}, "price": "decimal(6,2)"}
    films.execute("ALTER TABLE film ADD price numeric")
    films.declare(columns=columns, **DIRECT)
    add(films, 1, 3)
    films.execute("UPDATE film SET rating = 'X' WHERE film_id = 1")
    films.pipeline.load(spark)
    assert sorted(held(films)) == [2, 3]
    films.execute(
        "UPDATE film SET price = 1234567 WHERE film_id = 2",
        "UPDATE film SET price = 'NaN' WHERE film_id = 3",
        "UPDATE film SET price = 12.5, rating = 'R' WHERE film_id = 3",
        "DELETE FROM film WHERE film_id = 1",
    )
    report = films.pipeline.load(spark)
    assert rejected(films) == [("ContractViolation", 1), ("WrongType", 2), ("WrongType", 3)]
    assert report.total()["rejected"] == 2
    assert held(films) == {2: ("film 2", "PG"), 3: ("film 3", "R")}
    # Corrected records are older than what the table has of 1 and 3.
    domain = load_settings({"ETL_ASSETS_HOME": str(films.pipeline.home.path)}).placement().reader()
    for letter in films.pipeline.home.rows(REJECTS):
        record = {**json.loads(letter["record"]), "rating": "PG", "price": 1, "title": "again"}
        again = record_again(
            letter["partition_date"], letter["exception_id"], 2, json.dumps(record).encode(), stage=TABLE
        )
        submit_replays(domain, [again])
    films.pipeline.load(spark)
    assert held(films) == {2: ("again", "PG"), 3: ("film 3", "R")}
    outcomes = [row["outcome"] for row in films.pipeline.home.rows(REJECTS)]
    assert sorted(outcomes) == ["rejected"] * 3 + ["replayed"] * 3
    assert films.pipeline.load(spark).commits == 0


@pytest.mark.spark
def test_a_table_is_not_loaded_in_both_ways(films, spark):
    add(films, 1, 2)
    follow(films)
    films.declare()
    films.ingest()
    with pytest.raises(ContractError, match="was loaded with keep_records: false"):
        films.pipeline.load(spark)


def test_mirrored_tables_have_the_rows_and_positions_of_one_commit_everywhere(films):
    domains = [{"name": name, "root": name} for name in ("a", "b", "c")]
    home = films.pipeline.home
    platform = yaml.safe_load((home.path / "platform.yaml").read_text("utf-8"))
    (home.path / "platform.yaml").write_text(json.dumps({**platform, "domains": domains}), "utf-8")
    films.root = "a"
    add(films, 1, 4)
    films.pipeline.load(None)
    films.execute("UPDATE film SET title = 'two' WHERE film_id = 2", "DELETE FROM film WHERE film_id = 3")
    films.load_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{TABLE}")
    films.execute("INSERT INTO film VALUES (3, 'again', 'R')")
    films.pipeline.load(None)
    found = []
    for each in domains:
        films.root = each["root"]
        found.append(held(films) == films.films())
    assert sum(found) >= 2
    assert position(films)["lsn"] == films.confirmed()
    assert films.pipeline.load(None).commits == 0


@pytest.mark.spark
def test_a_captured_table_without_records_gets_the_values_of_a_column_that_is_added(
    postgres_server, tmp_path, spark
):
    shop = Captured.create(postgres_server, tmp_path, keep_records=False)
    try:
        shop.make_tables("film", rows=3)
        shop.execute("CREATE TABLE tagged (id bigint PRIMARY KEY, tags text[])")
        shop.discover()
        assert "tags is ARRAY<STRING>" in str(shop.states()["tagged"].error)
        for _ in range(3):
            shop.load("film", spark)
            shop.look()
        shop.execute(
            "ALTER TABLE film ADD stars int DEFAULT 5",
            "UPDATE film SET stars = 4, title = NULL WHERE id = 2",
            "DELETE FROM film WHERE id = 1",
        )
        shop.discover()
        for _ in range(3):
            shop.load("film", spark)
            shop.look()
        rows = shop.home.rows("shop_film")
        found = {row["id"]: (row["title"], row["n"], row["stars"]) for row in rows}
        assert found == shop.source("film") == {2: (None, 2, 4), 3: ("film 3", 3, 5)}
        assert shop.phases()["film"] == "ready"
    finally:
        shop.close()

"""Captured tables whose columns change while no process follows them: the next process reads all of it from
the log, each change with the columns that the table had then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from etl_assets_tests.commands.home import Running
from etl_assets_tests.sources.captured import Captured

pytestmark = [pytest.mark.spark, pytest.mark.slow]
BEFORE = (
    "CREATE TABLE film (id bigint PRIMARY KEY, title varchar(40), n int, code text)",
    "INSERT INTO film SELECT i, 'film ' || i, i, 'c' || i FROM generate_series(1, 9) i",
)
MEANWHILE = (
    "UPDATE film SET n = 10, code = 'first' WHERE id = 1",
    "INSERT INTO film VALUES (20, 'as it was', 20, 'c20')",
    "ALTER TABLE film ADD note text DEFAULT 'none'",
    "UPDATE film SET note = 'two' WHERE id = 2",
    "INSERT INTO film VALUES (21, 'with a note', 21, 'c21', 'twenty-one')",
    "ALTER TABLE film ALTER n TYPE bigint",
    "UPDATE film SET n = 5000000000 WHERE id = 3",
    "INSERT INTO film VALUES (22, 'with a large number', 6000000000, 'c22', 'twenty-two')",
    "ALTER TABLE film RENAME note TO remark",
    "UPDATE film SET remark = 'four' WHERE id = 4",
    "BEGIN; UPDATE film SET title = 'five' WHERE id = 5; ALTER TABLE film DROP code;"
    " INSERT INTO film VALUES (23, 'without a code', 7000000000, 'twenty-three'); COMMIT",
    "UPDATE film SET title = 'six' WHERE id = 6",
    "UPDATE film SET id = 70 WHERE id = 7",
    "DELETE FROM film WHERE id = 8",
)
COLUMNS = {
    1: {"code"},
    20: {"code"},
    2: {"code", "note"},
    21: {"code", "note"},
    3: {"code", "note"},
    22: {"code", "note"},
    4: {"code", "remark"},
    5: {"code", "remark"},
    23: {"remark"},
    6: {"remark"},
    70: {"remark"},
}
"""The columns beside `id`, `title` and `n` that each row had when it was changed."""


@pytest.fixture
def shop(postgres_server, tmp_path, request) -> Iterator[Captured]:
    """A capture whose table was followed by a worker, which has ended."""
    found = Captured.create(
        postgres_server, tmp_path, look_interval_seconds=0.2, discovery_interval_seconds=1, **request.param
    )
    found.execute(*BEFORE)
    with working(found):
        until(lambda: found.phases().get("film") == "ready", "the table is copied")
        until(lambda: len(found.home.rows("shop_film")) == 9, "its rows are there")
    yield found
    found.close()


@contextmanager
def working(shop: Captured) -> Generator[Running]:
    """Let a worker work during a block, and end it as an operator does."""
    worker = shop.home.start("worker")
    try:
        yield worker
        worker.process.terminate()
        done = worker.ended(60)
        assert done.code == 0, done
    finally:
        worker.sweep()
        worker.process.wait()


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 150
    while not reached():
        assert time.monotonic() < deadline, f"waited without success until {what}"
        time.sleep(1)


def rows(shop: Captured, spark: Any, *columns: str) -> dict[Any, Any]:
    """Return the rows of the table by Spark: delta-rs does not read a table whose columns became wider."""
    found = spark.read.format("delta").load(str(shop.home.folder("shop_film"))).collect()
    held = {row["id"]: tuple(row.asDict().get(name) for name in columns) for row in found}
    assert len(held) == len(found)
    return held


@pytest.mark.full
@pytest.mark.parametrize(
    "shop",
    [
        pytest.param({"keep_records": False}, id="direct"),
        pytest.param({"keep_records": True}, id="records"),
    ],
    indirect=True,
)
def test_a_table_that_got_columns_while_nothing_ran_equals_its_source_after_the_next_start(shop, spark):
    shop.execute(*MEANWHILE)
    kept = ("title", "n", "remark")
    with working(shop):
        until(
            lambda: (shop.states()["film"].copies, shop.phases()["film"]) == (1, "ready"),
            "it is copied again",
        )
        until(lambda: rows(shop, spark, *kept) == shop.source("film"), "the table equals its source")
    assert shop.states()["film"].copies == 1


@pytest.mark.parametrize(
    "shop",
    [
        pytest.param({"keep_records": True, "added_columns": "follow"}, id="records"),
        pytest.param({"keep_records": False, "added_columns": "follow"}, id="direct", marks=pytest.mark.full),
    ],
    indirect=True,
)
def test_a_table_that_is_not_copied_again_has_each_change_with_the_columns_of_its_time(shop, spark):
    shop.execute(*MEANWHILE)
    found = shop.home.call("cdc", "discover")
    assert "shop: public.film: changed" in found.out, found
    with working(shop):
        source = shop.source("film")
        wanted = {key: row[:2] for key, row in source.items()}
        until(lambda: rows(shop, spark, "title", "n") == wanted, "the table equals its source")
    renamed = {key for key, names in COLUMNS.items() if "remark" in names}
    remarks = {key: row[2] if key in renamed else None for key, row in source.items()}
    assert rows(shop, spark, "title", "n", "remark") == {
        key: (*row, remarks[key]) for key, row in wanted.items()
    }
    # The column that was removed stays, with null in rows that are written after that was found.
    assert rows(shop, spark, "code") == {key: ("c9" if key == 9 else None,) for key in source}
    assert shop.states()["film"].copies == 0
    assert shop.home.rows("shop_film_rejects") == []
    if shop.keeps_records:
        assert columns_of_changes(shop) == COLUMNS


@pytest.mark.parametrize(
    "shop",
    [
        pytest.param({"keep_records": False}, id="direct"),
        pytest.param({"keep_records": True}, id="records", marks=pytest.mark.full),
    ],
    indirect=True,
)
def test_values_that_only_a_wider_type_takes_are_no_dead_letters_of_the_worker_that_starts(shop, spark):
    shop.execute(
        "UPDATE film SET n = 10 WHERE id = 1",
        "ALTER TABLE film ALTER n TYPE bigint",
        "UPDATE film SET n = 5000000000 WHERE id = 2",
        "INSERT INTO film VALUES (20, 'new', 6000000000, 'c20')",
    )
    with working(shop):
        until(lambda: len(rows(shop, spark)) + len(shop.home.rows("shop_film_rejects")) >= 10, "all is read")
    assert shop.home.rows("shop_film_rejects") == []
    assert rows(shop, spark, "title", "n", "code") == shop.source("film")
    assert shop.states()["film"].copies == 0


def columns_of_changes(shop: Captured) -> dict[int, set[str]]:
    """Return the columns beside `id`, `title` and `n` that the records of changed rows have."""
    copied, changed = 9, {}
    for each in shop.records("film")[copied:]:
        if each["postgres.change"] == "upsert":
            names = {name for name in each if not name.startswith("postgres.")}
            changed[each["id"]] = names - {"id", "title", "n"}
    return changed

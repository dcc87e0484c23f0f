"""A captured table without records, followed by the commands that a user types: processes that are killed on
the way from the log to the table and to the place that the server is told, and the next process.

A change lives in two places that do not commit together: the table has it with its position, and the server
may forget it once that position is confirmed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from deltalake import DeltaTable

from etl_assets.failpoints import Failpoint
from etl_assets.sources.captures.connect import close_readers
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets_tests.sources.captured import Captured

pytestmark = [pytest.mark.kill, pytest.mark.spark]
TABLE, TABLES = "shop_film", ("film", "actor")
UNCONFIRMED = (
    "INSERT INTO film SELECT i, 'new', i FROM generate_series(101, 103) i",
    "UPDATE film SET title = 'one' WHERE id = 1",
    "DELETE FROM film WHERE id = 2",
    "UPDATE film SET n = 10 WHERE id = 20",
)
"""Changes that the table has when a process is killed, and of which the server was not told yet."""
KILLED = (
    "INSERT INTO film SELECT i, 'new', i FROM generate_series(201, 203) i",
    "BEGIN; UPDATE film SET title = 'four' WHERE id = 4; DELETE FROM film WHERE id = 5; COMMIT",
    "UPDATE film SET id = 60 WHERE id = 6",
    "UPDATE film SET n = 20 WHERE id = 20",
)
"""Changes that the process that is killed finds."""
LATER = (
    "INSERT INTO film VALUES (301, 'new', 301)",
    "UPDATE film SET title = 'seven' WHERE id = 7",
    "DELETE FROM film WHERE id = 8",
    "UPDATE film SET n = 30 WHERE id = 20",
)
"""Changes that are made before the next process."""
CHANGED_ONCE = {101, 102, 103, 1, 2, 201, 202, 203, 4, 5, 6, 60, 301, 7, 8}
"""Rows with one change. Row 20 has one each time: an older change must not come after a newer one."""


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path, keep_records=False)
    yield found
    found.close()


def position(shop: Captured) -> int:
    """Return the place in the log that is committed with the rows of the table."""
    found = LogPosition.of(shop.positions("film"))
    assert found is not None  # it was copied
    return found.lsn


def rows(shop: Captured, table: str = "film") -> dict[Any, Any]:
    found = shop.home.rows(f"shop_{table}")
    held = {row["id"]: (row["title"], row["n"]) for row in found}
    assert len(held) == len(found)
    return held


def changes(shop: Captured, since: int) -> Counter[int]:
    """Return how often each row has changed between two versions, with what the platform notes of it.

    A change that is applied once more gets another number of arrival, also if the row's values stay.
    """
    folder = str(shop.home.folder(TABLE))
    before: dict[Any, dict[str, Any]] | None = None
    found: Counter[int] = Counter()
    for version in range(since, DeltaTable(folder).version() + 1):
        stored = DeltaTable(folder, version=version).to_pyarrow_dataset().to_table().to_pylist()
        held = {row["id"]: row for row in stored}
        if before is not None:
            found.update(key for key in before.keys() | held.keys() if before.get(key) != held.get(key))
        before = held
    return found


def run_to_the_end(shop: Captured) -> None:
    done = shop.home.call("run")
    assert done.code == 0, done


def work_to_the_end(shop: Captured) -> None:
    worker = shop.home.start("worker")
    try:
        until(
            lambda: all(rows(shop, each) == shop.source(each) for each in TABLES),
            "tables equal their sources",
        )
        until(lambda: shop.confirmed() >= position(shop), "the server is told so")
        worker.process.terminate()
        assert (done := worker.ended(60)).code == 0, done
    finally:
        worker.sweep()
        worker.process.wait()


def until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < deadline, f"waited without success until {what}"
        time.sleep(0.2)


@pytest.mark.parametrize("command", ["run", pytest.param("worker", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("failpoint", "is_ahead"),
    [
        pytest.param(Failpoint.SOURCE_BEFORE_CONFIRM.value, True),
        pytest.param(Failpoint.SOURCE_AFTER_CONFIRM.value, False, marks=pytest.mark.full),
        pytest.param(Failpoint.SPOOL_BEFORE_STATE.value, False, marks=pytest.mark.full),
        pytest.param(Failpoint.SPOOL_AFTER_STATE.value, False, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.STAGE_AFTER_WRITE}@{TABLE}", False, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_AFTER_COMMIT}@{TABLE}_tombstones", False, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_BEFORE_COMMIT}@{TABLE}", False, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_DURING_COMMIT}@{TABLE}", False, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_AFTER_COMMIT}@{TABLE}", True, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.TABLE_AFTER_SYNC}@{TABLE}", True, marks=pytest.mark.full),
        pytest.param(f"{Failpoint.CAPTURE_BEFORE_RELEASE}@public.film", True),
    ],
)
def test_a_killed_process_and_the_next_one_apply_each_change_once(shop, command, failpoint, is_ahead):
    """`is_ahead`: the process dies when the table has changes of which the server was not told."""
    shop.make_tables(*TABLES, rows=30)
    shop.discover()
    shop.settle(*TABLES)
    since = DeltaTable(str(shop.home.folder(TABLE))).version()
    # 1. The table has changes that are not confirmed.
    shop.execute(*UNCONFIRMED)
    shop.ingest("film", max_batches=1)
    assert rows(shop) == shop.source("film")
    assert position(shop) > shop.confirmed()
    close_readers(shop.home.path)
    # 2. A process is killed.
    shop.execute(*KILLED)
    died = shop.home.call(command, failpoint=failpoint)
    assert died.code == -9, died
    assert (position(shop) > shop.confirmed()) is is_ahead
    # 3. The next one goes on.
    shop.execute(*LATER, "UPDATE actor SET n = 0 WHERE id = 1")
    {"run": run_to_the_end, "worker": work_to_the_end}[command](shop)
    committed = position(shop)
    for table in TABLES:
        assert rows(shop, table) == shop.source(table)
    found = changes(shop, since)
    assert found == Counter({**dict.fromkeys(CHANGED_ONCE, 1), 20: found[20]})
    assert found[20] in (2, 3)  # changes of two processes may become one version
    # 4. The server may forget what is committed, and nothing is left to do.
    assert "nothing to do" in shop.home.call("run").err
    assert shop.confirmed() >= committed
    assert changes(shop, since) == found
    assert shop.home.rows(f"{TABLE}_rejects") == []

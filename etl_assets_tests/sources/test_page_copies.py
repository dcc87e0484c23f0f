"""Copies of captured tables by pages: several sessions, batches after a kill, files that are replaced."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from etl_assets.errors import SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.captures import copied_rows
from etl_assets.sources.captures.copied_rows import CopiedRows
from etl_assets.sources.positions import read_positions
from etl_assets.sources.postgres_cdc import page_copy
from etl_assets.sources.postgres_cdc.table_copy import TableCopy
from etl_assets.steps.placing import place
from etl_assets.steps.step import platform_table
from etl_assets_tests.sources.captured import Captured


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


def _make_wide(shop: Captured, rows: int) -> None:
    """Make a table with some rows a page."""
    shop.execute(
        "CREATE TABLE film (id bigint PRIMARY KEY, title varchar(40), n int) WITH (fillfactor = 10)",
        f"INSERT INTO film SELECT i, 'film ' || i, i FROM generate_series(1, {rows}) i",
    )


def _copy_position(shop: Captured) -> dict:
    name = "shop_film_source"
    table = platform_table(name, place(shop.settings.placement(), name))
    return read_positions(table)["log"]["copy"]


def _times_copied(shop: Captured) -> Counter[int]:
    return Counter(each["id"] for each in shop.records("film") if each["postgres.change"] == "upsert")


def test_several_sessions_read_one_table_and_no_two_records_have_one_number(shop, monkeypatch):
    monkeypatch.setattr(page_copy, "_FEWEST_PAGES", 8)
    parts = []
    monkeypatch.setattr(page_copy, "divided", lambda *given: parts.append(found := _divided(*given)) or found)
    _make_wide(shop, 2_000)
    shop.declare(read_sessions=3)
    shop.discover()
    shop.settle("film")
    assert [len(each) for each in parts] == [3]
    assert shop.held("film") == shop.source("film")
    places = Counter((each["postgres.lsn"], each["postgres.sequence"]) for each in shop.records("film"))
    assert (len(places), max(places.values())) == (2_000, 1)
    assert shop.states()["film"].rows_copied == 2_000


_divided = page_copy.divided


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        pytest.param(f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film_source"),
        pytest.param(f"{Failpoint.STAGE_AFTER_WRITE}@shop_film_source", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.CAPTURE_BEFORE_RELEASE}@public.film", marks=pytest.mark.full),
    ],
)
def test_after_a_kill_the_copy_goes_on_after_the_pages_that_are_committed(shop, failpoint):
    _make_wide(shop, 900)
    shop.declare(max_batch_records=200)
    shop.discover()
    shop.ingest("film", max_batches=1)
    before = _times_copied(shop)
    assert 0 < len(before) < 900
    shop.ingest_and_die("film", failpoint)
    # Rows that were not copied yet move onto pages that were, and the table grows.
    shop.execute(
        "UPDATE film SET title = 'late' WHERE id > 880",
        "DELETE FROM film WHERE id IN (1, 890)",
        "INSERT INTO film SELECT i, 'new', i FROM generate_series(1001, 1100) i",
    )
    shop.settle("film")
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")
    times = _times_copied(shop)
    assert all(times[id_] == 1 for id_ in before)


def test_a_table_whose_files_are_replaced_between_batches_is_copied_from_the_beginning(shop):
    _make_wide(shop, 600)
    shop.declare(max_batch_records=200)
    shop.discover()
    shop.ingest("film", max_batches=1)
    first = _copy_position(shop)["pages"]
    shop.execute("DELETE FROM film WHERE id < 100", "VACUUM FULL film")
    shop.ingest("film", max_batches=1)
    assert _copy_position(shop)["pages"][0] != first[0]
    shop.settle("film")
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")


def test_files_that_are_replaced_before_the_first_row_is_read_stop_the_batch(shop, monkeypatch):
    _make_wide(shop, 300)
    shop.discover()
    seen = copied_rows.read_heap_files
    rewritten = []

    def rewrites(session, oid):
        found = seen(session, oid)
        if not rewritten:
            shop.execute("ALTER TABLE film ALTER n TYPE bigint")
            rewritten.append(found)
        return found

    monkeypatch.setattr(copied_rows, "read_heap_files", rewrites)
    with pytest.raises(SourceUnavailable, match="were replaced while a batch"):
        shop.ingest("film")
    assert shop.phases() == {"film": "data_sync"}
    shop.settle("film")
    assert len(shop.held("film")) == 300


@pytest.mark.parametrize("statement", ["ALTER TABLE film ALTER n TYPE bigint", "VACUUM FULL film"])
def test_files_that_are_replaced_stop_a_batch_by_keys_too(shop, monkeypatch, statement):
    shop.execute(
        "CREATE TABLE film (id bigint PRIMARY KEY, title text, n int)",  # the log may lack long titles
        "INSERT INTO film SELECT i, 'film ' || i, i FROM generate_series(1, 50) i",
    )
    shop.discover()
    snapshot, done = TableCopy.place, []

    def rewritten_after(copy, *given):
        found = snapshot(copy, *given)
        if not done:
            shop.execute(statement)
            done.append(found)
        return found

    monkeypatch.setattr(TableCopy, "place", rewritten_after)
    with pytest.raises(SourceUnavailable, match="were replaced while a batch"):
        shop.ingest("film")
    assert shop.records("film") == []
    shop.settle("film")
    assert shop.held("film") == shop.source("film")


def test_parallel_copies_use_no_more_than_the_slots_of_their_connection(shop, monkeypatch):
    names = [f"t{number}" for number in range(4)]
    shop.make_tables(*names, rows=20)
    shop.connect(max_concurrency=2)
    shop.declare(max_copies=4, read_sessions=2)
    shop.discover()
    at_work, most, lock, write = [0], [0], threading.Lock(), CopiedRows.write

    def counted(rows, *given):
        with lock:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
        time.sleep(0.2)  # so that copies meet
        try:
            return write(rows, *given)
        finally:
            with lock:
                at_work[0] -= 1

    monkeypatch.setattr(CopiedRows, "write", counted)
    with ThreadPoolExecutor(4) as threads:
        assert all(each.commits for each in threads.map(shop.ingest, names))
    assert most == [2]
    monkeypatch.undo()
    shop.settle(*names)
    for name in names:
        assert shop.held(name) == shop.source(name)


def test_a_partitioned_table_is_copied_by_its_partitions(shop):
    shop.execute(
        "CREATE TABLE film (id bigint PRIMARY KEY, title varchar(40), n int) PARTITION BY RANGE (id)",
        "CREATE TABLE film_low PARTITION OF film FOR VALUES FROM (0) TO (500)",
        "CREATE TABLE film_high (n int, title varchar(40), id bigint PRIMARY KEY)",
        "ALTER TABLE film ATTACH PARTITION film_high FOR VALUES FROM (500) TO (2000)",
        *(f"ALTER TABLE {name} REPLICA IDENTITY FULL" for name in ("film", "film_low", "film_high")),
        "INSERT INTO film SELECT i, 'film ' || i, i FROM generate_series(1, 1000) i",
    )
    shop.declare(max_batch_records=300)
    shop.discover()
    shop.ingest("film", max_batches=2)
    shop.execute(
        "UPDATE film SET id = id + 1500 WHERE id BETWEEN 400 AND 410", "DELETE FROM film WHERE id = 7"
    )
    shop.settle("film")
    shop.ingest("film")
    assert shop.held("film") == shop.source("film")
    times = _times_copied(shop)
    assert all(times[id_] == 1 for id_ in range(1, 1_001) if id_ != 7 and not 400 <= id_ <= 410)

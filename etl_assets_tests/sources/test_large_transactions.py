"""A transaction that is larger than `max_transaction_records` becomes visible in parts: each change once,
whatever dies in between, and each version says which part it has.

Memory: `test_large_transactions_memory.py`.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from deltalake import DeltaTable

import etl_assets
from etl_assets.captures import roll_back
from etl_assets.delta.log.log_places import LogPlace, place_of, whole_version
from etl_assets.failpoints import Failpoint
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets.sources.postgres_cdc.lsn import parse_lsn
from etl_assets.sources.postgres_cdc.transaction_parts import TransactionPart
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.captured import CAPTURE, Captured
from etl_assets_tests.sources.followed import Followed
from etl_assets_tests.sources.topics import SOURCE

pytestmark = pytest.mark.kill
BATCH, PART = 500, 2_500
LONG = "repeat(md5(i::text), 100)"
"""3,200 characters that are stored out of line: updates that leave them unchanged do not log them."""
LARGE = (
    "BEGIN",
    "INSERT INTO {table} SELECT i, 'gone', i FROM generate_series(10, 3009) i",
    "TRUNCATE {table}",
    f"INSERT INTO {{table}} SELECT i, {LONG}, i FROM generate_series(1, 2000) i",
    "UPDATE {table} SET n = n + 1",
    "UPDATE {table} SET id = id + 100000 WHERE id <= 400",
    "DELETE FROM {table} WHERE id BETWEEN 500 AND 599",
    "UPDATE {table} SET n = n + 1 WHERE id > 1000",
    "COMMIT",
)
"""8,902 changes or so, in 4 parts: a truncate, changed keys and values that are not sent lie in them."""
CHANGES = 3_000 + 1 + 2_000 + 2_000 + 400 + 100 + 1_400
PARTS = -(-CHANGES // PART)


def make_table(execute: Callable[..., None], name: str) -> None:
    execute(
        f"CREATE TABLE {name} (id bigint PRIMARY KEY, title text, n int)",
        f"ALTER TABLE {name} ALTER title SET STORAGE EXTERNAL",
        f"INSERT INTO {name} SELECT i, 'row ' || i, i FROM generate_series(1, 9) i",
    )


def commit_large(execute: Callable[..., None], table: str) -> None:
    execute(*(each.format(table=table) for each in LARGE))


def end_of_log(session: psycopg.Connection) -> int:
    row = session.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    return parse_lsn(row[0])


def part_of(shop: Captured) -> TransactionPart | None:
    """How far the accepted records are within a transaction."""
    position = LogPosition.of(shop.positions("item"))
    assert position is not None
    return position.part


def ends_within(folder: Path) -> bool:
    """Whether the newest version of a table has half a transaction."""
    place = place_of(folder, newest(folder))
    assert place is not None
    return place.is_within


def newest(folder: Path) -> int:
    return DeltaTable(str(folder)).version()


def rows_at(folder: Path, version: int) -> dict[int, tuple[Any, ...]]:
    found = DeltaTable(str(folder), version=version).to_pyarrow_dataset().to_table(["id", "title", "n"])
    return {row["id"]: (row["title"], row["n"]) for row in found.to_pylist()}


def places(folder: Path, since: int) -> dict[int, LogPlace]:
    """What each version after one says of its place in the log."""
    versions = range(since + 1, newest(folder) + 1)
    found = {each: place_of(folder, each, after=each - 1) for each in versions}
    return {version: place for version, place in found.items() if place is not None}


def expect_parts(folder: Path, since: int, parts: int) -> None:
    """Expect that the versions after one have the parts of one transaction, in their order, and say so."""
    found = {version: each for version, each in places(folder, since).items() if each.transaction}
    assert [(each.part, each.is_last) for each in found.values()] == [
        (number, number == parts) for number in range(1, parts + 1)
    ]
    assert len({each.transaction for each in found.values()}) == 1
    for version, place in found.items():
        assert whole_version(folder, version) == (version if place.is_last else since)
        assert place.is_last == (parse_lsn(place.lsn) > parse_lsn(str(place.transaction)))


def folder_of(home: Home, table: str) -> Path:
    found = home.folder(table)
    assert found is not None
    return found


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path, max_batch_records=BATCH, max_transaction_records=PART)
    make_table(found.execute, "item")
    found.discover()
    found.settle("item")
    found.load("item")
    yield found
    found.close()


@pytest.mark.parametrize(
    "points",
    [
        (Failpoint.SPOOL_BEFORE_STATE, Failpoint.TABLE_AFTER_COMMIT, Failpoint.CAPTURE_BEFORE_RELEASE),
        pytest.param(
            (
                *(Failpoint.SPOOL_AFTER_STATE, Failpoint.STAGE_AFTER_WRITE, Failpoint.TABLE_BEFORE_COMMIT),
                *(Failpoint.TABLE_DURING_COMMIT, Failpoint.TABLE_AFTER_COMMIT, Failpoint.TABLE_AFTER_SYNC),
                Failpoint.CAPTURE_BEFORE_RELEASE,
            ),
            marks=pytest.mark.full,
        ),
    ],
    ids=["some", "all"],
)
def test_a_captured_table_takes_up_a_large_transaction_in_parts_whatever_is_killed(shop: Captured, points):
    records, table = folder_of(shop.home, "shop_item_source"), folder_of(shop.home, "shop_item")
    since = [newest(records), newest(table)]
    before = rows_at(table, since[1])
    assert before == shop.source("item")
    begin = end_of_log(shop.session)
    commit_large(shop.execute, "item")
    shop.execute("INSERT INTO item VALUES (7, 'after', 7)")
    kill_while_reading(shop)
    for point in points:
        shop.ingest_and_die("item", point.value)
        shop.load("item")
        if part_of(shop) is not None:
            # The table has a part of it, says so, and readers can leave it out.
            opened = etl_assets.open_table("shop_item", shop.home.path, whole_transactions=True)
            assert (opened.version, rows_at(table, opened.version)) == (since[1], before)
            assert ends_within(table)
            assert shop.confirmed() <= begin
    while (number := part_of(shop)) is None or number.number < PARTS - 1:
        assert shop.ingest("item", max_batches=1).commits
    # What a killed process has committed and not noted is noted after the next batch.
    assert shop.states()["item"].part in (number, None)
    shop.look()
    assert shop.confirmed() <= begin
    shop.ingest("item", max_batches=1)
    shop.load("item")
    rest = [each for each in places(records, since[0]).values() if each.transaction]
    assert rest[-1].is_last
    expect_parts(records, since[0], PARTS)
    shop.ingest("item")
    shop.load("item")
    assert rows_at(table, newest(table)) == shop.source("item")
    assert shop.states()["item"].part is None
    for version, place in places(table, since[1]).items():
        assert whole_version(table, version) == (since[1] if place.is_within else version)
    expect_each_change_once(shop.records("item"))
    shop.look()
    shop.look()
    assert shop.confirmed() > begin


def test_parts_that_are_read_ahead_count_once_they_are_committed(shop: Captured):
    commit_large(shop.execute, "item")
    shop.execute("INSERT INTO item VALUES (7, 'after', 7)")
    shop.ingest("item", max_batches=PARTS - 2)
    # What follows on the last part is planned while that is stored.
    shop.ingest_and_die("item", f"{Failpoint.TABLE_AFTER_COMMIT.value}@{CAPTURE}_item_source")
    shop.ingest_and_die("item", f"{Failpoint.TABLE_BEFORE_COMMIT.value}@{CAPTURE}_item_source")
    assert shop.states()["item"].released_lsn <= shop.confirmed()
    shop.ingest("item")
    shop.load("item")
    assert shop.phases() == {"item": "ready"}
    table = folder_of(shop.home, "shop_item")
    assert rows_at(table, newest(table)) == shop.source("item")
    expect_each_change_once(shop.records("item"))


def test_a_table_without_records_takes_up_a_large_transaction_in_parts(postgres_server, tmp_path):
    limits = {"max_batch_records": BATCH, "max_transaction_records": PART}
    shop = Captured.create(postgres_server, tmp_path, keep_records=False, **limits)
    make_table(shop.execute, "item")
    shop.discover()
    shop.settle("item")
    table = folder_of(shop.home, "shop_item")
    since, before = newest(table), rows_at(table, newest(table))
    assert before == shop.source("item")
    commit_large(shop.execute, "item")
    shop.execute("INSERT INTO item VALUES (7, 'after', 7)")
    shop.ingest("item", max_batches=2)
    for point in (Failpoint.STAGE_AFTER_WRITE, Failpoint.TABLE_AFTER_COMMIT):
        assert ends_within(table)
        opened = etl_assets.open_table("shop_item", shop.home.path, whole_transactions=True)
        assert (opened.version, rows_at(table, opened.version)) == (since, before)
        shop.ingest_and_die("item", point.value)
    shop.ingest("item")
    assert rows_at(table, newest(table)) == shop.source("item")
    assert not ends_within(table)
    assert shop.phases() == {"item": "ready"}
    shop.close()


def test_a_spool_that_is_lost_within_a_transaction_is_read_again_and_nothing_counts_twice(shop: Captured):
    records, table = folder_of(shop.home, "shop_item_source"), folder_of(shop.home, "shop_item")
    since = newest(records)
    shop.execute("UPDATE item SET n = n + 1 WHERE id = 3")
    commit_large(shop.execute, "item")
    shop.ingest("item", max_batches=2)
    shutil.rmtree(shop.home.path / "captured" / CAPTURE)
    shop.ingest("item")
    shop.load("item")
    assert rows_at(table, newest(table)) == shop.source("item")
    assert shop.phases() == {"item": "ready"}
    assert [each.part for each in places(records, since).values() if each.transaction] == [1, 2, 3, 4]
    expect_each_change_once(shop.records("item"))


def test_a_pipeline_takes_up_a_large_transaction_in_parts_whatever_is_killed(postgres_server, tmp_path):
    followed = Followed.create(postgres_server, tmp_path)
    followed.execute("DROP TABLE film")
    make_table(followed.execute, "film")
    followed.declare(
        columns={"id": "bigint", "title": "string", "n": "int"},
        table={"keys": ["id"]},
        max_batch_records=BATCH,
        max_transaction_records=PART,
    )
    followed.ingest()
    followed.pipeline.load(None)
    records, table = (folder_of(followed.pipeline.home, each) for each in (SOURCE, "people"))
    since = newest(records)
    begin = end_of_log(followed.session)
    commit_large(followed.execute, "film")
    followed.execute("INSERT INTO film VALUES (7, 'after', 7)")
    for point in (Failpoint.TABLE_AFTER_COMMIT, Failpoint.SOURCE_BEFORE_CONFIRM):
        followed.ingest_and_die(f"{point.value}@people_source" if "table" in point else point.value)
        assert parse_lsn(str(followed.confirmed())) <= begin
    followed.pipeline.load(None)
    assert ends_within(table)
    # The parts that are left are read by one session, and the position after them is that of no part.
    followed.ingest()
    followed.pipeline.load(None)
    expect_parts(records, since, PARTS)
    source = followed.session.execute("SELECT id, title, n FROM film").fetchall()
    assert rows_at(table, newest(table)) == {row[0]: row[1:] for row in source}
    expect_each_change_once(followed.records())
    assert parse_lsn(str(followed.confirmed())) > begin
    followed.close()


def test_versions_of_a_mirrored_table_say_their_parts_in_every_domain(postgres_server, tmp_path):
    domains = [{"name": each, "root": each} for each in ("a", "b", "c")]
    followed = Followed.create(postgres_server, tmp_path, domains=domains)
    followed.execute("DROP TABLE film")
    make_table(followed.execute, "film")
    followed.declare(
        columns={"id": "bigint", "title": "string", "n": "int"},
        table={"keys": ["id"]},
        max_batch_records=BATCH,
        max_transaction_records=PART,
    )
    followed.ingest()
    followed.pipeline.load(None)
    home = followed.pipeline.home
    before = etl_assets.open_table("people", home.path)
    rows = rows_at(Path(before.uri), before.version)
    commit_large(followed.execute, "film")
    # One domain of three has the first part of the records, then of the table: the next process completes it.
    followed.ingest_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}")
    followed.ingest_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}")
    followed.load_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@people")
    followed.ingest_and_die(f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}")
    followed.pipeline.load(None)
    for lost in ("a", "b"):
        (home.path / lost).rename(home.path / "away")
        opened = etl_assets.open_table("people", home.path, whole_transactions=True)
        assert (opened.domain != lost, opened.version) == (True, before.version)
        assert rows_at(Path(opened.uri), opened.version) == rows
        assert etl_assets.open_table("people", home.path).version > opened.version
        (home.path / "away").rename(home.path / lost)
    followed.ingest()
    followed.pipeline.load(None)
    opened = etl_assets.open_table("people", home.path, whole_transactions=True)
    assert opened.version == etl_assets.open_table("people", home.path).version
    source = followed.session.execute("SELECT id, title, n FROM film").fetchall()
    assert rows_at(Path(opened.uri), opened.version) == {row[0]: row[1:] for row in source}
    followed.close()


@pytest.mark.parametrize(
    "event",
    [
        "rollback",
        pytest.param("column, copied", marks=pytest.mark.full),
        pytest.param("column, followed", marks=pytest.mark.full),
    ],
)
def test_another_copy_or_a_column_within_a_transaction(request, postgres_server, tmp_path, event):
    """A copy ends the parts. The history has every change of theirs that came before it."""
    spark, extra = (request.getfixturevalue("spark"), ", i") if "column" in event else (None, "")
    shop = Captured.create(
        postgres_server,
        tmp_path,
        **{"max_batch_records": BATCH, "max_transaction_records": PART, "history": True},
        added_columns="follow" if event == "column, followed" else "copy",
    )
    make_table(shop.execute, "item")
    shop.discover()
    shop.settle("item")
    shop.load("item")
    shop.load("item_history")
    table, history = folder_of(shop.home, "shop_item"), folder_of(shop.home, "shop_item_history")
    since = {folder: newest(folder) for folder in (table, history)}
    shop.execute(
        "BEGIN",
        "INSERT INTO item SELECT i, 'old', i FROM generate_series(10, 4009) i",
        *(["ALTER TABLE item ADD extra int"] if "column" in event else []),
        f"INSERT INTO item SELECT i, 'new', i{extra} FROM generate_series(5010, 7009) i",
        "UPDATE item SET n = n + 1 WHERE id BETWEEN 10 AND 2009",
        "COMMIT",
    )
    shop.ingest("item", max_batches=1)
    shop.load("item")
    shop.load("item_history")
    for folder, version in since.items():
        assert ends_within(folder)
        assert whole_version(folder, newest(folder)) == version
    if event == "rollback":
        roll_back(shop.settings, CAPTURE, "public.item", copies=True)
    shop.discover()
    shop.settle("item")
    shop.ingest("item")
    while shop.load("item", spark).commits or shop.load("item_history", spark).commits:
        pass
    assert shop.states()["item"].copies == (0 if event == "column, followed" else 1)
    assert shop.states()["item"].part is None
    found = DeltaTable(str(table)).to_pyarrow_dataset().to_table()
    columns = [name for name in ("id", "title", "n", "extra") if name in found.column_names]
    assert {
        row[0]: row[1:] for row in zip(*(found.column(each).to_pylist() for each in columns), strict=True)
    } == shop.source("item")
    for folder in since:
        assert whole_version(folder, newest(folder)) == newest(folder)
    changes = shop.home.rows("shop_item_history", ["lsn_in_source", "sequence_in_source"])
    places = Counter(tuple(row.values()) for row in changes)
    assert max(places.values()) == 1
    if event == "column, followed":
        large = Counter(lsn for lsn, _ in places).most_common(1)[0]
        assert large[1] == 8_000
    shop.close()


def test_a_transaction_of_as_many_changes_as_a_part_has_is_not_divided(shop: Captured):
    records = folder_of(shop.home, "shop_item_source")
    since = newest(records)
    shop.execute(f"INSERT INTO item SELECT i, 'new', i FROM generate_series(100, {99 + PART}) i")
    shop.ingest("item")
    assert [each.transaction for each in places(records, since).values()] == [None]


def kill_while_reading(shop: Captured) -> None:
    """Kill a process that reads the log, once it has written some of a transaction."""
    process = shop.begin("item", "")
    folder = shop.home.path / "captured" / CAPTURE / "reading"
    deadline = time.monotonic() + 60
    while not any(folder.rglob("*.arrows")):
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.001)
    process.kill()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def expect_each_change_once(records: list[dict[str, Any]]) -> None:
    """Expect that no change is there twice, and that those of the large transaction are all there."""
    ids = [(each["postgres.lsn"], each["postgres.sequence"], each["postgres.change"]) for each in records]
    assert len(set(ids)) == len(ids)
    found = Counter(lsn for lsn, _, _ in ids)
    large = max(found, key=lambda lsn: found[lsn])
    assert sorted({sequence for lsn, sequence, _ in ids if lsn == large}) == list(range(CHANGES))

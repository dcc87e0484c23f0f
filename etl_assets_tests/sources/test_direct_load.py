"""Rows of PostgreSQL straight into a pipeline's table: each row counts once, whatever dies in between."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from etl_assets.delta.write import commit
from etl_assets.errors import CommitConflict, ContractError, Fenced, SourceRefused
from etl_assets.failpoints import Failpoint
from etl_assets.settings import load_settings
from etl_assets.sources.positions import read_positions
from etl_assets.sources.replays import record_again, submit_replays
from etl_assets.steps import new_keys
from etl_assets.steps.step import ReadMode, StepArguments, StepContext, StepReport, platform_table
from etl_assets_tests.commands.home import Home
from etl_assets_tests.sources.topics import SURVIVED, Topic, no_session

pytest.importorskip("psycopg")
from etl_assets_tests.sources.shop import Shop

TABLE, REJECTS = "people", "people_rejects"
CONFLICTED = 3
"""Exit code of a load that found another one's commit; its repetition goes on after that."""
QUERY = "SELECT film_id, title, rating, price, is_kept, released, updated_at, ':x' AS literal FROM film"
COLUMNS: dict[str, Any] = {
    "film_id": "bigint",
    "title": {"type": "string", "max_length": 20},
    "rating": {"type": "int", "at_least": 0},
    "price": "decimal(6,2)",
    "is_kept": "boolean",
    "released": "date",
    "updated_at": "timestamp",
}
SOURCE: dict[str, Any] = {
    "query": QUERY,
    "keep_records": False,
    "incremental_key": "updated_at",
    "incremental_id_key": "film_id",
    "max_batch_records": 3,
}


@pytest.fixture
def shop(postgres_server, tmp_path):
    shop = Shop.create(postgres_server, tmp_path)
    shop.execute(
        "ALTER TABLE film ADD rating bigint, ADD price numeric, ADD is_kept boolean, ADD released date"
    )
    shop.declare(columns=COLUMNS, table={"sequence_by": "updated_at"}, **SOURCE)
    yield shop
    shop.session.close()


def load(shop: Shop, session: Any = None) -> StepReport:
    return shop.pipeline.load(session)


def rows(shop: Shop) -> dict[int, tuple[Any, ...]]:
    found = shop.pipeline.home.rows(TABLE)
    assert len({row["film_id"] for row in found}) == len(found)
    assert len({row["_offset"] for row in found}) == len(found)
    return {row["film_id"]: (row["title"], row["rating"]) for row in found}


def rejected(shop: Shop) -> list[tuple[str, int]]:
    found = [row for row in shop.pipeline.home.rows(REJECTS) if row["outcome"] == "rejected"]
    return sorted((row["reason"], json.loads(row["record"])["film_id"]) for row in found)


def test_plain_rows_need_no_spark_and_are_one_commit_a_range(shop):
    shop.add(1, 8)
    shop.execute(
        "UPDATE film SET rating = 5, price = 12.5, is_kept = true, released = '2026-01-02' WHERE film_id = 1"
    )
    report = load(shop)
    assert report.commits == 3
    assert report.total()["inserted"] == 8
    assert shop.pipeline.home.folder("people_source") is None
    found = {row["film_id"]: row for row in shop.pipeline.home.rows(TABLE)}
    assert sorted(found) == list(range(1, 9))
    first = found[1]
    assert (first["title"], first["rating"], first["price"]) == ("film 1", 5, Decimal("12.50"))
    assert (first["is_kept"], first["released"]) == (True, dt.date(2026, 1, 2))
    assert first["updated_at"] == dt.datetime(2026, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    assert sorted(row["_offset"] for row in found.values()) == list(range(8))
    assert load(shop).commits == 0


def test_newer_rows_replace_older_ones_and_positions_are_in_the_commit_of_the_rows(shop):
    shop.add(1, 5)
    load(shop)
    shop.execute(
        "UPDATE film SET title = 'new', updated_at = '2026-02-01' WHERE film_id = 2",
        "INSERT INTO film (film_id, title, updated_at) VALUES (6, 'six', '2026-02-02')",
    )
    report = load(shop)
    assert report.commits == 1
    assert {name: report.total()[name] for name in ("inserted", "updated")} == {"inserted": 1, "updated": 1}
    assert rows(shop)[2] == ("new", None)
    assert sorted(rows(shop)) == list(range(1, 7))
    settings = load_settings({"ETL_ASSETS_HOME": str(shop.pipeline.home.path)})
    table = platform_table(TABLE, settings.placement().reader())
    (position,) = read_positions(table).values()
    assert position["pair"]["id"]["value"] == "6"
    before = read_positions(table, report.version - 1)
    assert before["query"]["pair"]["id"]["value"] == "5"


@pytest.mark.spark
def test_rows_that_are_not_plain_are_judged_as_records_are(shop, spark):
    shop.add(1, 8)
    shop.execute(
        "UPDATE film SET title = repeat('x', 21) WHERE film_id = 2",
        "UPDATE film SET rating = -1 WHERE film_id = 3",
        "UPDATE film SET rating = 3000000000 WHERE film_id = 4",
        "UPDATE film SET price = 'NaN' WHERE film_id = 5",
        "UPDATE film SET price = 1234567.5 WHERE film_id = 6",
        "UPDATE film SET released = 'infinity' WHERE film_id = 7",
        "INSERT INTO film (film_id, title) VALUES (9, 'no time')",
    )
    report = load(shop, spark)
    assert sorted(rows(shop)) == [1, 8]
    assert rejected(shop) == [
        ("ContractViolation", 2),
        ("ContractViolation", 3),
        ("MissingField", 9),
        ("WrongType", 4),
        ("WrongType", 5),
        ("WrongType", 6),
        ("WrongType", 7),
    ]
    assert report.total()["read"] == 9
    assert report.total()["rejected"] == 7
    of_two = next(
        row for row in shop.pipeline.home.rows(REJECTS) if json.loads(row["record"])["film_id"] == 2
    )
    assert json.loads(of_two["record"])["literal"] == ":x", "the record has what the query returned"
    assert load(shop, spark).commits == 0


@pytest.mark.spark
def test_a_range_of_rows_that_are_not_plain_is_read_as_records(shop, spark, monkeypatch):
    from etl_assets.sources.sql import postgres

    monkeypatch.setattr(postgres, "MAX_OTHERS", 1)
    shop.add(1, 3)
    shop.execute("UPDATE film SET price = 'NaN' WHERE film_id < 3")
    report = load(shop, spark)
    assert sorted(rows(shop)) == [3]
    assert rejected(shop) == [("WrongType", 1), ("WrongType", 2)]
    assert report.total()["read"] == 3


@pytest.mark.kill
@pytest.mark.parametrize(
    "failpoint",
    [
        f"{Failpoint.STAGE_AFTER_WRITE}@{TABLE}",
        f"{Failpoint.TABLE_BEFORE_COMMIT}@{TABLE}",
        f"{Failpoint.TABLE_DURING_COMMIT}@{TABLE}",
        f"{Failpoint.TABLE_AFTER_COMMIT}@{TABLE}",
        f"{Failpoint.TABLE_AFTER_SYNC}@{TABLE}",
    ],
)
def test_after_a_kill_and_a_change_every_row_counts_once(failpoint, shop):
    shop.add(1, 4)
    process = multiprocessing.get_context("spawn").Process(
        target=_load_and_die, args=(shop.pipeline.home.path, os.environ["SHOP_PASSWORD"], failpoint)
    )
    process.start()
    process.join(100)
    assert process.exitcode == -9
    shop.execute(
        "UPDATE film SET title = 'new', updated_at = '2026-02-01' WHERE film_id = 2",
        "DELETE FROM film WHERE film_id = 1",
    )
    load(shop)
    found = rows(shop)
    # A row that is gone stays if it was committed: an incremental load does not look for those.
    was_committed = Failpoint.TABLE_AFTER_COMMIT in failpoint or Failpoint.TABLE_AFTER_SYNC in failpoint
    assert sorted(found) == ([1, 2, 3, 4] if was_committed else [2, 3, 4])
    assert found[2] == ("new", None)
    assert load(shop).commits == 0


def _load_and_die(home: Any, password: str, failpoint: str) -> None:
    os.environ["SHOP_PASSWORD"] = password
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    Topic("", "", Home(path=home)).load(None)
    os._exit(SURVIVED)


def test_of_two_loads_at_once_each_row_counts_once(shop):
    shop.add(1, 30)
    begin = multiprocessing.get_context("spawn").Event()
    processes = [
        multiprocessing.get_context("spawn").Process(
            target=_load_when_told, args=(shop.pipeline.home.path, os.environ["SHOP_PASSWORD"], begin)
        )
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    begin.set()
    for process in processes:
        process.join(100)
        assert process.exitcode in (0, CONFLICTED)
    load(shop)
    assert sorted(rows(shop)) == list(range(1, 31))
    assert load(shop).commits == 0


def _load_when_told(home: Any, password: str, begin: Any) -> None:
    os.environ["SHOP_PASSWORD"] = password
    begin.wait(60)
    try:
        Topic("", "", Home(path=home)).load(None)
    except CommitConflict:
        os._exit(CONFLICTED)


@pytest.mark.spark
def test_a_replayed_dead_letter_is_a_row_and_marked(shop, spark):
    shop.add(1, 3)
    shop.execute("UPDATE film SET rating = -1 WHERE film_id = 3")
    load(shop, spark)
    (letter,) = [row for row in shop.pipeline.home.rows(REJECTS) if row["outcome"] == "rejected"]
    domain = load_settings({"ETL_ASSETS_HOME": str(shop.pipeline.home.path)}).placement().reader()
    for attempt, rating in ((2, -2), (3, 1)):
        record = json.dumps({**json.loads(letter["record"]), "rating": rating}).encode()
        again = record_again(letter["partition_date"], letter["exception_id"], attempt, record, stage=TABLE)
        submit_replays(domain, [again])
        load(shop, spark)
    assert rows(shop)[3] == ("film 3", 1)
    found = [(row["source"], row["outcome"]) for row in shop.pipeline.home.rows(REJECTS)]
    assert sorted(found) == [
        ("dead_letters", "rejected"),
        ("dead_letters", "replayed"),
        ("sql", "rejected"),
    ]
    assert load(shop, spark).commits == 0


@pytest.mark.spark
@pytest.mark.kill
@pytest.mark.full
def test_commands_complete_a_killed_load_replay_a_dead_letter_and_end(shop):
    home = shop.pipeline.home
    shop.add(1, 4)
    shop.execute("UPDATE film SET rating = -1 WHERE film_id = 3")
    died = home.call("run", failpoint=f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{TABLE}", seconds=150)
    assert died.code == -9, died
    assert home.rows(TABLE) == []
    done = home.call("run", seconds=150)
    assert done.code == 0, done
    assert sorted(rows(shop)) == [1, 2, 4]
    assert rejected(shop) == [("ContractViolation", 3)]
    assert "nothing to do" in home.call("run", seconds=60).err
    # A dead letter is corrected, and is a row.
    (letter,) = [row for row in home.rows("dead_letters") if row["state"] == "open"]
    corrected = home.path / "corrected.json"
    corrected.write_text(json.dumps({**json.loads(letter["record"]), "rating": 1}), "utf-8")
    replayed = home.call(
        "dead-letters", "replay", letter["dead_letter_id"], "--record", str(corrected), seconds=150
    )
    assert replayed.code == 0, replayed
    assert rows(shop)[3] == ("film 3", 1)
    (letter,) = home.rows("dead_letters")
    assert letter["state"] == "replayed"
    assert "nothing to do" in home.call("run", seconds=60).err
    refused = home.call("reprocess", "--tables", TABLE, "--yes", seconds=60)
    assert refused.code != 0
    assert "keep_records" in refused.err, refused
    untraced = home.call("trace", "3", "--pipeline", "people", seconds=60)
    assert "its source says keep_records: false" in untraced.err, untraced


def test_a_type_that_a_column_does_not_take_is_named(shop):
    shop.add(1, 1)
    shop.execute("ALTER TABLE film ALTER title TYPE jsonb USING to_jsonb(title)")
    with pytest.raises(SourceRefused, match="title is jsonb, and with keep_records: false") as refused:
        load(shop)
    assert "cast title in the query" in refused.value.fix


@pytest.mark.spark
def test_a_table_is_not_loaded_in_both_ways(shop, spark):
    shop.add(1, 2)
    load(shop)
    shop.declare(columns=COLUMNS, table={"sequence_by": "updated_at"}, **{**SOURCE, "keep_records": True})
    shop.ingest()
    with pytest.raises(ContractError, match="was loaded with keep_records: false"):
        load(shop, spark)


def mirror(shop: Shop, *names: str) -> list[dict[str, str]]:
    """Give the installation several failure domains."""
    domains = [{"name": name, "root": name} for name in names]
    path = shop.pipeline.home.path / "platform.yaml"
    platform = yaml.safe_load(path.read_text("utf-8"))
    path.write_text(json.dumps({**platform, "domains": domains}), "utf-8")
    return domains


def held_by(shop: Shop, root: str) -> dict[int, str]:
    found = shop.pipeline.home.rows(TABLE, root=root)
    assert len({row["film_id"] for row in found}) == len(found)
    return {row["film_id"]: row["title"] for row in found}


def test_mirrored_tables_have_the_rows_and_positions_of_one_commit_everywhere(shop):
    home, domains = shop.pipeline.home, mirror(shop, "a", "b", "c")
    shop.add(1, 4)
    load(shop)
    shop.execute("UPDATE film SET title = 'new', updated_at = '2026-02-01' WHERE film_id = 2")
    load(shop)
    placement = load_settings({"ETL_ASSETS_HOME": str(home.path)}).placement()
    table = platform_table(TABLE, placement.reader())
    assert read_positions(table)["query"]["pair"]["id"]["value"] == "2"
    held = [held_by(shop, each["root"]) for each in domains]
    assert held.count({1: "film 1", 2: "new", 3: "film 3", 4: "film 4"}) >= 2
    assert load(shop).commits == 0


@pytest.mark.kill
def test_a_load_that_another_leader_overtook_writes_nothing(shop):
    """It wakes up after the other one has loaded newer rows, and its own ones are of an old snapshot."""
    mirror(shop, "a", "b", "c")
    shop.add(1, 3)
    load(shop)
    shop.execute("UPDATE film SET title = 'old', updated_at = '2026-02-01' WHERE film_id = 2")
    shop.add(4, 4)
    failpoint = f"pause:{Failpoint.TABLE_BEFORE_COMMIT}@{TABLE}"
    process = multiprocessing.get_context("spawn").Process(
        target=_load_and_tell, args=(shop.pipeline.home.path, os.environ["SHOP_PASSWORD"], failpoint)
    )
    process.start()
    try:
        wait_for(lambda: is_stopped(process))
        shop.execute(
            "UPDATE film SET title = 'new', updated_at = '2026-02-02' WHERE film_id = 2",
            "DELETE FROM film WHERE film_id = 4",
        )
        assert load_from(shop, "b").commits == 1
        os.kill(process.pid or 0, signal.SIGCONT)
        process.join(100)
    finally:
        process.kill()
    assert process.exitcode == CONFLICTED
    expected = {1: "film 1", 2: "new", 3: "film 3"}
    assert held_by(shop, "b") == expected
    load(shop)
    assert [held_by(shop, name) for name in ("a", "b", "c")].count(expected) >= 2
    assert load(shop).commits == 0


def _load_and_tell(home: Any, password: str, failpoint: str) -> None:
    os.environ["SHOP_PASSWORD"] = password
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    try:
        Topic("", "", Home(path=home)).load(None)
    except (CommitConflict, Fenced):
        os._exit(CONFLICTED)


def load_from(shop: Shop, name: str) -> StepReport:
    """Load as a machine does on which another domain leads."""
    settings = load_settings({"ETL_ASSETS_HOME": str(shop.pipeline.home.path)})
    domain = settings.placement().named(name)
    assert domain is not None
    context = StepContext(session=no_session, domain=domain)
    arguments = StepArguments(settings=settings, context=context, mode=ReadMode.INCREMENTAL)
    return domain.catalog.stage(TABLE).build_step(arguments).run([])


def is_stopped(process: Any) -> bool:
    assert process.exitcode is None, "it was not paused"
    return Path(f"/proc/{process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "T"


@pytest.mark.spark
def test_a_load_that_delta_merges_has_each_row_once_also_if_it_died_before_its_positions(
    shop, spark, monkeypatch
):
    """Delta's own MERGE takes one transaction id: positions are a commit of their own after the rows."""
    shop.add(1, 4)
    load(shop)
    monkeypatch.setattr(new_keys, "is_little_work", lambda rows: False)
    shop.execute("UPDATE film SET title = 'new', updated_at = '2026-02-01' WHERE film_id = 2")
    shop.add(5, 5)
    with monkeypatch.context() as dying:
        dying.setattr(commit, "_make_cursors_last", dies)
        with pytest.raises(Died):
            load(shop, spark)
    expected = {film: f"film {film}" for film in range(1, 6)} | {2: "new"}
    assert {film: title for film, (title, _) in rows(shop).items()} == expected
    # The range is read again with what came meanwhile.
    shop.execute("UPDATE film SET title = 'newer', updated_at = '2026-02-02' WHERE film_id = 5")
    shop.add(6, 6)
    shop.execute("UPDATE film SET updated_at = '2026-02-03' WHERE film_id = 6")
    report = load(shop, spark)
    assert report.total()["inserted"] == 1
    assert {film: title for film, (title, _) in rows(shop).items()} == expected | {5: "newer", 6: "film 6"}
    assert load(shop).commits == 0


class Died(Exception):
    pass


def dies(*_: object) -> int:
    raise Died


@pytest.mark.full
@pytest.mark.kill
def test_the_worker_follows_the_query_and_goes_on_after_a_kill(shop):
    home = shop.pipeline.home
    shop.add(1, 4)
    worker = home.start("worker")
    try:
        wait_for(lambda: sorted(rows(shop)) == [1, 2, 3, 4])
        shop.add(5, 6)
        wait_for(lambda: sorted(rows(shop)) == [1, 2, 3, 4, 5, 6])
    finally:
        worker.sweep()
        worker.process.wait()
    shop.execute("UPDATE film SET title = 'new', updated_at = '2026-02-01' WHERE film_id = 2")
    worker = home.start("worker")
    try:
        wait_for(lambda: rows(shop)[2] == ("new", None))
        worker.process.terminate()
        assert worker.ended(60).code == 0
    finally:
        worker.sweep()
    assert load(shop).commits == 0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)

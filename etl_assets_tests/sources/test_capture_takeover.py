"""A capture whose tables are mirrored over failure domains, when the machine that reads it is lost or asleep.

Another machine takes over, in another domain, with an empty home folder and the same control store.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from etl_assets.errors import SourceUnavailable
from etl_assets.failpoints import Failpoint
from etl_assets.sources.captures.connect import close_readers
from etl_assets_tests.sources.captured import Captured
from etl_assets_tests.sources.topics import SURVIVED

pytestmark = pytest.mark.kill
DOMAINS = ("rack/a", "rack/b", "rack/c")
TABLES = ("film", "actor", "staff")


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    """A capture of a platform with three domains, and its control store in PostgreSQL."""
    roots = {name: str(tmp_path / "roots" / name[-1]) for name in DOMAINS}
    platform = {"domains": [{"name": name, "root": root} for name, root in roots.items()]}
    found = Captured.create(postgres_server, tmp_path / "one", platform=platform, max_batch_records=1_000)
    found.share_control_store(postgres_server)
    found.root = roots["rack/a"]
    yield found
    for home in (found.home.path, tmp_path / "two" / "home"):
        close_readers(home)
    found.close()


def fail_domain(shop: Captured, name: str) -> None:
    """Say that a domain is not to be used, as the operator does who takes over."""
    done = shop.home.call("domains", "fail", name)
    assert done.code == 0, done


def on_another_machine(shop: Captured, folder: Path) -> Captured:
    other = shop.another(folder / "two" / "home", root=str(folder / "roots" / "b"))
    fail_domain(other, "rack/a")
    return other


def until(reached: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"waited without success until {what}"
        time.sleep(0.05)


def expect_equal(shop: Captured) -> None:
    for table in TABLES:
        shop.ingest(table)
        assert shop.held(table) == shop.source(table), table
        places = [
            (each["postgres.lsn"], each["postgres.sequence"], each["id"]) for each in shop.records(table)
        ]
        assert len(set(places)) == len(places), table


def test_another_machine_goes_on_after_the_loss_of_a_domain_and_copies_nothing_twice(shop, tmp_path):
    shop.make_tables("film", "actor")
    shop.make_tables("staff", rows=5_000)
    shop.discover()
    shop.settle("film", "actor")
    shop.ingest("staff", max_batches=1)
    copied = shop.states()["staff"].rows_copied
    assert 0 < copied < 5_000
    # 1. One table is followed, another one copied; both processes die before a majority has their commits.
    shop.execute(
        "UPDATE film SET title = 'new' WHERE id = 1",
        "INSERT INTO film VALUES (9, 'nine', 9)",
        "DELETE FROM staff WHERE id < 10 OR id > 4990",
        "UPDATE staff SET n = -1 WHERE id % 1000 = 0",
    )
    confirmed = shop.confirmed()
    for table in ("film", "staff"):
        shop.ingest_and_die(table, f"{Failpoint.TABLE_AFTER_COMMIT}@shop_{table}_source")
    assert shop.confirmed() == confirmed
    phases = shop.phases()
    assert phases == {"film": "ready", "actor": "ready", "staff": "data_sync"}
    # 2. The machine and its domain are gone.
    (tmp_path / "roots" / "a").rename(tmp_path / "lost")
    shop.home.path.rename(tmp_path / "lost home")
    shop.home.path = tmp_path / "lost home"
    other = on_another_machine(shop, tmp_path)
    shown = json.loads(other.home.call("cdc", "tables", "--json").out)
    assert {each["table"].removeprefix("public."): each["phase"] for each in shown} == phases
    other.discover()
    other.ingest("film")
    other.look()
    assert other.phases() == phases
    other.settle("staff")
    expect_equal(other)
    assert {each.copies for each in other.states().values()} == {0}
    assert [each["n"] for each in other.records("actor")] == [1, 2, 3]
    # 3. What is confirmed is what a majority has.
    for _ in range(2):
        other.look()
    assert other.confirmed() > confirmed


@pytest.mark.parametrize(
    "failpoint",
    [
        Failpoint.SOURCE_BEFORE_CONFIRM.value,
        pytest.param(Failpoint.SPOOL_BEFORE_STATE.value, marks=pytest.mark.full),
        f"{Failpoint.TABLE_BEFORE_COMMIT}@shop_film_source",
        pytest.param(f"{Failpoint.TABLE_AFTER_COMMIT}@shop_film_source", marks=pytest.mark.full),
        pytest.param(f"{Failpoint.CAPTURE_BEFORE_RELEASE}@public.film", marks=pytest.mark.full),
    ],
)
def test_a_process_that_slept_while_another_machine_took_over_changes_nothing(shop, tmp_path, failpoint):
    shop.make_tables(*TABLES)
    shop.discover()
    shop.settle(*TABLES)
    shop.execute("UPDATE film SET n = 10 WHERE id = 1")
    close_readers(shop.home.path)
    asleep = shop.begin("film", f"pause:{failpoint}")
    try:
        until(lambda: is_stopped(asleep.pid), "it sleeps")
        other = on_another_machine(shop, tmp_path)
        other.discover()
        shop.execute("UPDATE film SET n = 20 WHERE id = 1", "DELETE FROM film WHERE id = 2")
        expect_equal(other)
        other.look()
        before = (other.confirmed(), other.states(), other.home.rows("shop_film_source", root=other.root))
        os.kill(asleep.pid, signal.SIGCONT)
        asleep.join(60)
        # An error, unless all of its step was done.
        assert asleep.exitcode == (SURVIVED if failpoint.startswith("capture.") else 1)
    finally:
        asleep.kill()
        asleep.join()
    after = (other.confirmed(), other.states(), other.home.rows("shop_film_source", root=other.root))
    assert after == before
    # A machine that takes over back is served from a spool of its own, from where the other one was.
    shop.execute("INSERT INTO film VALUES (5, 'five', 5)")
    shop.look()
    with pytest.raises(SourceUnavailable):
        other.look()  # its session was ended
    with pytest.raises(SourceUnavailable, match="another home folder reads the log of the capture shop"):
        other.look()
    fail_domain(shop, "rack/a")
    shop.root = other.root
    expect_equal(shop)
    assert {each.copies for each in shop.states().values()} == {0}


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_tables_are_copied_again_after_the_loss_of_the_control_store(shop, tmp_path):
    shop.make_tables(*TABLES)
    shop.discover()
    shop.settle(*TABLES)
    shop.execute("DELETE FROM film WHERE id = 1", "UPDATE actor SET n = 5")
    other = on_another_machine(shop, tmp_path)
    path = other.home.path / "platform.yaml"
    content = json.loads(path.read_text("utf-8"))
    del content["control"]  # its own, which is empty
    path.write_text(json.dumps(content), "utf-8")
    assert len(other.discover().added) == len(TABLES)
    other.settle(*TABLES)
    other.execute("UPDATE film SET n = 7")
    expect_equal(other)
    assert {each.copies for each in other.states().values()} == {1}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(400)
def test_a_worker_in_another_domain_goes_on_where_a_killed_one_was(shop, tmp_path):
    shop.declare(look_interval_seconds=0.2, max_batch_records=3_000)
    shop.make_tables("film", "actor")
    shop.make_tables("staff", rows=40_000)
    writing = Writing(shop.session.info.dsn)
    first = shop.home.start("worker")
    try:
        until(lambda: shop.phases().get("film") == "ready", "film is followed", 120)
        until(lambda: shop.phases().get("actor") == "ready", "actor is followed", 120)
        writing.start()
        until(lambda: shop.states()["staff"].rows_copied > 0, "staff is being copied", 60)
    finally:
        first.sweep()
        first.process.wait()
    assert shop.phases() == {"film": "ready", "actor": "ready", "staff": "data_sync"}
    (tmp_path / "roots" / "a").rename(tmp_path / "lost")
    other = on_another_machine(shop, tmp_path)
    second = other.home.start("worker")
    try:
        until(lambda: other.phases()["staff"] == "ready", "staff is copied", 100)
        writing.end()
        until(lambda: unequal(other) == [], "tables are equal", 60)
        assert {each.copies for each in other.states().values()} == {0}
    finally:
        second.sweep()
        second.process.wait()


class Writing(threading.Thread):
    """Changes rows of all tables until it is to end."""

    def __init__(self, dsn: str) -> None:
        super().__init__(daemon=True)
        self._dsn, self._ends = dsn, threading.Event()

    def run(self) -> None:
        dice = random.Random(7)
        with psycopg.connect(self._dsn, password=os.environ["SHOP_PASSWORD"], autocommit=True) as session:
            while not self._ends.wait(0.02):
                table = dice.choice(TABLES)
                session.execute(
                    f"INSERT INTO {table} VALUES ({dice.randrange(50_000)}, 'new', 1)"
                    " ON CONFLICT (id) DO UPDATE SET n = excluded.n - 1".encode()
                )
                session.execute(f"DELETE FROM {table} WHERE id = {dice.randrange(50_000)}".encode())

    def end(self) -> None:
        self._ends.set()
        self.join()


def unequal(shop: Captured) -> list[str]:
    """Return the tables that differ from their sources."""
    found = []
    for table in TABLES:
        rows = shop.home.rows(f"shop_{table}", ["id", "title", "n"], root=shop.root)
        if {row["id"]: (row["title"], row["n"]) for row in rows} != shop.source(table):
            found.append(table)
    return found

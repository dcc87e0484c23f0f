"""Captures over a real failover: a primary and its standby, of which the standby is promoted.

PostgreSQL 17 or later; `POSTGRES_BINARIES` names its programs, as CONTRIBUTING.md says.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from etl_assets.errors import SourceLost, SourceUnavailable
from etl_assets.sources.captures.connect import close_readers
from etl_assets.stack.postgres import USER, PostgresServer
from etl_assets.stack.process import Account
from etl_assets.stack.server import HOST
from etl_assets_tests.servers import postgres_binaries
from etl_assets_tests.sources.captured import Captured

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]
STANDBY = "standby"


class StandbyServer(PostgresServer):
    """A standby that keeps the failover slots of its primary in step."""

    def __init__(self, primary: PostgresServer, binaries: Path | None) -> None:
        self._password = primary.password
        self._primary = (
            f"host={HOST} port={primary.port} user={USER} password={primary.password} dbname=postgres"
        )
        settings = {
            "primary_conninfo": self._primary,
            "primary_slot_name": STANDBY,
            "sync_replication_slots": "on",
            "hot_standby_feedback": "on",
            "wal_receiver_status_interval": "1",
        }
        super().__init__(settings=settings, durable=False, binaries=binaries)

    def _create(self, binaries: Path, account: Account | None) -> None:
        """Copy the primary in place of an empty cluster."""
        self._password_file.write_text(self._password, "utf-8")
        self._data.mkdir(mode=0o700)
        self.folder.chmod(0o711)
        if account:
            os.chown(self._data, account.uid, account.gid)
        program = str(binaries / "pg_basebackup")
        subprocess.run(
            [program, "-d", self._primary, "-D", str(self._data), "-R", "-X", "stream", "-c", "fast"],
            check=True,
            cwd="/",
            timeout=100,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )


def wait_for(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds} s"
        time.sleep(0.2)


@pytest.fixture
def servers() -> Iterator[tuple[PostgresServer, StandbyServer]]:
    """A primary, and a standby that it waits for before its log is read."""
    binaries = postgres_binaries()
    with (
        PostgresServer(durable=False, binaries=binaries) as primary,
        psycopg.connect(primary.url, autocommit=True) as admin,
    ):
        if admin.info.server_version < 170_000:
            pytest.skip("failover slots need PostgreSQL 17; POSTGRES_BINARIES names its programs")
        admin.execute("SELECT pg_create_physical_replication_slot(%s, true)", [STANDBY])
        with StandbyServer(primary, binaries) as standby:
            admin.execute(f"ALTER SYSTEM SET synchronized_standby_slots = '{STANDBY}'".encode())
            admin.execute("SELECT pg_reload_conf()")
            yield primary, standby


def fail_over(primary: PostgresServer, standby: StandbyServer, *captures: Captured) -> None:
    """End the primary, promote the standby, and let the captures' connections lead to it."""
    for each in captures:
        close_readers(each.settings.home)  # the worker is stopped
        each.session.close()
    primary.stop()
    with psycopg.connect(standby.url, autocommit=True) as admin:
        admin.execute("SELECT pg_promote(true, 60)")
    for each in captures:
        each.session = psycopg.connect(standby.database_url(each.name), autocommit=True)
        (platform,) = (
            path for path in each.home.path.glob("*.yaml") if str(primary.port) in path.read_text()
        )
        platform.write_text(platform.read_text().replace(str(primary.port), str(standby.port)))


def is_kept(shop: Captured, standby: psycopg.Connection) -> bool:
    """Read on, and return whether the standby has the slot: it keeps one only once that has moved."""
    shop.execute("UPDATE film SET n = n + 1 WHERE id = 20", "SELECT pg_log_standby_snapshot()")
    shop.ingest("film")
    shop.look()
    found = standby.execute(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s AND synced AND NOT temporary",
        [shop.name],
    )
    return found.fetchone() == (1,)


def test_a_promoted_standby_is_followed_from_the_committed_place(servers, tmp_path):
    primary, standby = servers
    shop = Captured.create(primary, tmp_path / "synchronized", failover=True)
    plain = Captured.create(primary, tmp_path / "plain", slot="plain_slot")
    for each in (shop, plain):
        each.make_tables("film", rows=50)
        each.discover()
        each.settle("film")
    # 1. Changes that are committed here, and changes that are not.
    shop.execute("UPDATE film SET n = n + 1 WHERE id <= 20")
    shop.ingest("film")
    shop.look()
    with psycopg.connect(standby.url, autocommit=True) as asked:
        wait_for(lambda: is_kept(shop, asked), "the slot is on the standby", 120)
        shop.execute("DELETE FROM film WHERE id = 3", "INSERT INTO film VALUES (1000, 'late', 1)")
        row = shop.session.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        has = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_for(lambda: asked.execute(has, row).fetchone() == (True,), "the standby has the changes")
    # 2. The standby takes over, and changes go on there.
    fail_over(primary, standby, shop, plain)
    shop.execute("UPDATE film SET title = 'after' WHERE id = 7", "DELETE FROM film WHERE id = 1000")
    for _ in range(3):
        shop.ingest("film")
    assert shop.held("film") == shop.source("film")
    places = [(each["postgres.lsn"], each["postgres.sequence"]) for each in shop.records("film")]
    assert len(set(places)) == len(places)
    assert shop.states()["film"].copies == 0
    # 3. A slot that the standby does not have is a named error, and copying again is its solution.
    with pytest.raises(SourceLost, match="the slot plain_slot is gone") as lost:
        plain.ingest("film")
    assert "on_lost: copy" in lost.value.fix
    plain.execute("UPDATE film SET title = 'after' WHERE id = 7")
    plain.declare(on_lost="copy", slot="plain_slot")
    plain.look()
    plain.settle("film")
    assert plain.held("film") == plain.source("film")
    for each in (shop, plain):
        close_readers(each.settings.home)
        each.session.close()


def test_tables_whose_copy_may_have_more_than_the_promoted_standby_are_copied_again(servers, tmp_path):
    primary, standby = servers
    shop = Captured.create(primary, tmp_path, failover=True, max_batch_records=1_000)
    shop.make_tables("film", rows=50)
    shop.make_tables("done", "late")
    shop.execute(
        # Updated rows stay in their pages, where the copy finds them.
        "CREATE TABLE half (id bigint PRIMARY KEY, title varchar(40), n int) WITH (fillfactor = 50)",
        "INSERT INTO half SELECT i, 'half ' || i, i FROM generate_series(1, 5000) i",
    )
    shop.discover()
    shop.settle("film")
    with psycopg.connect(standby.url, autocommit=True) as asked:
        wait_for(lambda: is_kept(shop, asked), "the slot is on the standby", 120)
        # 1. From here on only the copies read. One is complete, and the standby has all that it read.
        shop.declare(failover=True, max_batch_records=1_000, look_interval_seconds=600)
        shop.ingest("half", max_batches=1)
        shop.ingest("done")
        row = shop.session.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        has = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
        wait_for(lambda: asked.execute(has, row).fetchone() == (True,), "the standby has all of it")
    standby.stop()
    shop.execute(
        "ALTER SYSTEM RESET synchronized_standby_slots",
        "SELECT pg_reload_conf()",
        # 2. The standby will not have these, and the copies read them.
        "UPDATE half SET title = 'lost' WHERE id BETWEEN 1500 AND 3000",
        "DELETE FROM half WHERE id = 3000",
        "UPDATE late SET title = 'lost' WHERE id = 1",
    )
    shop.ingest("half", max_batches=1)
    shop.ingest("late")
    assert any(each["title"] == "lost" for each in shop.records("half"))
    assert shop.phases() == {"film": "ready", "done": "catchup", "late": "catchup", "half": "data_sync"}
    primary.kill()
    standby.start()
    fail_over(primary, standby, shop)
    shop.declare(failover=True, max_batch_records=1_000)
    shop.look()
    assert {name: state.copies for name, state in shop.states().items()} == {
        "film": 0,
        "done": 0,
        "late": 1,
        "half": 1,
    }
    shop.execute("UPDATE half SET n = 0 WHERE id = 4000", "DELETE FROM done WHERE id = 2")
    with pytest.raises(SourceUnavailable, match="lacks what was copied"):
        shop.ingest("late")
    shop.execute("SELECT pg_switch_wal()")
    shop.settle("done", "late", "half")
    for table in ("film", "done", "late", "half"):
        shop.ingest(table)
        assert shop.held(table) == shop.source(table)
    close_readers(shop.home.path)
    shop.session.close()


def test_a_machine_that_takes_over_after_a_failover_knows_what_was_read(servers, postgres_server, tmp_path):
    primary, standby = servers
    shop = Captured.create(primary, tmp_path / "one", failover=True)
    shop.share_control_store(postgres_server)
    shop.make_tables("film", rows=50)
    shop.discover()
    shop.settle("film")
    with psycopg.connect(standby.url, autocommit=True) as asked:
        wait_for(lambda: is_kept(shop, asked), "the slot is on the standby", 120)
    standby.stop()
    shop.execute(
        "ALTER SYSTEM RESET synchronized_standby_slots",
        "SELECT pg_reload_conf()",
        "UPDATE film SET title = 'lost' WHERE id = 3",
    )
    shop.ingest("film")
    shop.look()
    # The machine is lost with its spool, and the server with it.
    other = shop.another(tmp_path / "two")
    (tmp_path / "two" / "data").symlink_to(shop.home.path / "data")
    primary.kill()
    standby.start()
    fail_over(primary, standby, shop, other)
    other.execute("UPDATE film SET n = 0 WHERE id = 4", "SELECT pg_switch_wal()", "UPDATE film SET n = 1")
    other.discover()
    with pytest.raises(SourceLost, match="lacks transactions that were read"):
        other.ingest("film")
    other.declare(failover=True, on_lost="copy")
    other.look()
    other.settle("film")
    other.ingest("film")
    assert other.held("film") == other.source("film")
    for each in (shop, other):
        close_readers(each.home.path)
        each.session.close()

"""A primary that is killed, and its standby that is promoted: what a pipeline has that follows it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import psycopg
import pytest

from etl_assets.errors import SourceLost
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.servers import needs_postgres, postgres_binaries
from etl_assets_tests.sources.followed import Followed

pytestmark = [pytest.mark.full, pytest.mark.kill, pytest.mark.spark]
SECONDS = 60


@dataclass(slots=True)
class Pair:
    """A primary and a standby, which streams by the slot `standby` and copies failover slots."""

    primary: PostgresServer
    standby: PostgresServer

    def promote(self) -> None:
        with psycopg.connect(self.standby.url, autocommit=True) as session:
            assert session.execute("SELECT pg_promote(true, 60)").fetchone() == (True,)

    def point(self, films: Followed) -> None:
        """Let the connection lead to the standby."""
        home = films.pipeline.home
        connections = home.settings["connections"]
        connections["films"]["port"] = self.standby.port
        home.begin(**home.settings)
        films.session.close()
        films.session = psycopg.connect(self.standby.database_url(films.name), autocommit=True)


@pytest.fixture
def pair() -> Iterator[Pair]:
    binaries = postgres_binaries()
    primary, standby = (PostgresServer(durable=False, binaries=binaries) for _ in range(2))
    with primary, standby_of(primary, standby):
        yield Pair(primary, standby)


def standby_of(primary: PostgresServer, standby: PostgresServer) -> PostgresServer:
    """Make the standby as a copy of the folder of the stopped primary."""
    with psycopg.connect(primary.url, autocommit=True) as session:
        session.execute("SELECT pg_create_physical_replication_slot('standby', true)")
        has_slots = session.info.server_version >= 170_000
    primary.stop()
    for name in ("data", "password"):
        source = primary.folder / name
        copied = shutil.copytree if source.is_dir() else shutil.copy2
        copied(source, standby.folder / name)
    own(primary.folder / "data", standby.folder / "data")
    (standby.folder / "data" / "standby.signal").touch()
    standby.folder.chmod(0o711)
    address = f"host=127.0.0.1 port={primary.port} user={primary.user} password={primary.password}"
    standby.settings |= {
        "primary_conninfo": f"{address} dbname=postgres",
        "primary_slot_name": "standby",
        "hot_standby_feedback": "on",
        "wal_receiver_status_interval": "1",
    }
    if has_slots:
        standby.settings["sync_replication_slots"] = "on"
        primary.settings["synchronized_standby_slots"] = "standby"
    primary.start()
    return standby


def own(made: Path, copy: Path) -> None:
    """Give a copied folder to the owner of the first one."""
    owner = made.stat()
    for each in (copy, *copy.rglob("*")):
        shutil.chown(each, owner.st_uid, owner.st_gid)


def wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.2)


def is_copied(pair: Pair, slot: str) -> bool:
    """Whether the standby has the slot for good."""
    with psycopg.connect(pair.standby.url, autocommit=True) as session:
        found = session.execute(
            "SELECT synced AND NOT temporary FROM pg_replication_slots WHERE slot_name = %s", [slot]
        ).fetchone()
    return found == (True,)


def run(films: Followed) -> None:
    done = films.pipeline.home.start("run").ended(240)
    assert done.code == 0, done


def test_a_pipeline_goes_on_with_the_promoted_standby(pair, tmp_path):
    with psycopg.connect(pair.primary.url) as session:
        needs_postgres(session, 17)
    films = Followed.create(pair.primary, tmp_path)
    films.declare(failover=True)
    films.execute("INSERT INTO film SELECT n, 'film ' || n, 'PG' FROM generate_series(1, 6) n")
    run(films)
    films.execute("UPDATE film SET title = 'one' WHERE film_id = 1", "DELETE FROM film WHERE film_id = 2")
    run(films)
    wait_until(lambda: is_copied(pair, films.name))

    def write() -> None:
        with suppress(psycopg.Error):  # until the primary dies
            for number in range(100, 1_000_000):
                films.execute(f"INSERT INTO film VALUES ({number}, 'late', 'R')")

    writer = Thread(target=write)
    writer.start()
    films.ingest()  # while it is written
    pair.primary.kill()
    writer.join(SECONDS)
    pair.promote()
    pair.point(films)
    films.execute("INSERT INTO film VALUES (7, 'new primary', 'G')")
    run(films)
    rows = films.pipeline.home.rows("people")
    assert {row["film_id"]: (row["title"], row["rating"]) for row in rows} == films.films()
    assert len(rows) > 7
    assert len(films.ids()) == len(set(films.ids()))
    films.close()


def test_a_standby_that_lacks_what_was_read_is_named_although_its_log_is_longer(pair, tmp_path):
    films = Followed.create(pair.primary, tmp_path)
    films.execute("INSERT INTO film VALUES (1, 'one', 'G')")
    with psycopg.connect(pair.primary.url, autocommit=True) as session:
        if session.info.server_version >= 170_000:  # otherwise nothing is read before the standby has it
            session.execute("ALTER SYSTEM RESET synchronized_standby_slots")
    films.ingest()
    wait_until(lambda: has_film(pair, films))
    pair.standby.stop()
    pair.primary.stop()
    pair.primary.settings.pop("synchronized_standby_slots", None)
    pair.primary.start()
    films.session.close()
    films.session = psycopg.connect(pair.primary.database_url(films.name), autocommit=True)
    films.execute("INSERT INTO film VALUES (2, 'lost', 'G')")
    films.ingest()
    assert set(films.held()) == {1, 2}
    pair.primary.kill()
    pair.standby.start()
    pair.promote()
    pair.point(films)
    films.execute(
        "INSERT INTO film SELECT n, 'new', 'G' FROM generate_series(10, 9000) n",
        "SELECT pg_switch_wal()",
        "SELECT pg_create_logical_replication_slot('other', 'pgoutput')",
    )
    with pytest.raises(SourceLost, match=r"was promoted at .* lacks transactions that were read") as error:
        films.ingest()
    assert "on_lost: copy" in error.value.fix
    films.declare(on_lost="copy")
    films.ingest()
    assert films.held() == films.films()
    films.execute("SELECT pg_drop_replication_slot('other')")
    films.close()


def has_film(pair: Pair, films: Followed) -> bool:
    with psycopg.connect(pair.standby.database_url(films.name), autocommit=True) as session:
        return session.execute("SELECT FROM film").rowcount == 1

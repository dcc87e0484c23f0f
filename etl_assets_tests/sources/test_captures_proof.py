"""Captured tables equal the database at each of their positions, whatever fails meanwhile.

The database is written by pgbench and by sessions of this test at the same time. What it had at a place in
its log is known from triggers and from `pg_waldump`, not from logical decoding (`audited.py`).
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from etl_assets.errors import EtlAssetsError
from etl_assets.failpoints import Failpoint
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.commands.home import Running
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy
from etl_assets_tests.sources.audited import Audited, waldump
from etl_assets_tests.sources.captured import CAPTURE, Captured
from etl_assets_tests.sources.table_versions import (
    TableVersion,
    direct_versions,
    expect_equal,
    plain_rows,
    record_versions,
    table_versions,
)
from etl_assets_tests.sources.writers import TABLES, Pgbench, Writers, make_tables

pytestmark = [
    pytest.mark.kill,
    pytest.mark.skipif(not waldump().exists(), reason="the server of this machine comes without pg_waldump"),
]
SECONDS, LONG_SECONDS = 7, 25
FAILPOINTS = (
    Failpoint.SPOOL_BEFORE_STATE,
    Failpoint.SPOOL_AFTER_STATE,
    Failpoint.SOURCE_BEFORE_CONFIRM,
    Failpoint.SOURCE_AFTER_CONFIRM,
    Failpoint.CAPTURE_BEFORE_RELEASE,
    Failpoint.TABLE_BEFORE_COMMIT,
    Failpoint.TABLE_AFTER_COMMIT,
)


TROUBLES = (
    *("worker killed", "worker killed", "worker asleep", "sessions ended", "server killed", "server killed"),
    *(Fault.REFUSED.value, Fault.SILENT.value, Fault.CUT.value, Fault.ANSWERS_LOST.value),
)
Versions = Callable[[Captured, str, tuple[str, ...]], Iterator[TableVersion]]


class World:
    """A shop that is written and captured at the same time, through a network that fails."""

    def __init__(
        self, server: PostgresServer, folder: Path, seed: int, ends: ExitStack, **capture: Any
    ) -> None:
        self.seed, self.dice = seed, random.Random(seed)
        self.network = FaultProxy(server.port, self.dice)
        ends.callback(self.network.close)
        self.shop = Captured.create(
            server,
            folder,
            port=self.network.port,
            **{"max_batch_records": 1_000 if seed % 2 else 40, **capture},
        )
        ends.callback(self.shop.close)
        self.url = url = server.database_url(self.shop.name)
        self.audit = Audited(server, url, f"{self.shop.name}_wal")
        self.audit.begin()
        ends.callback(self.audit.close)
        make_tables(self.shop.session, self.audit)
        self.shop.discover()
        self.writers = Writers(url, seed)
        self.pgbench = Pgbench(
            port=server.port,
            database=self.shop.name,
            user=server.user,
            password=server.password,
            folder=folder,
        )
        self.befell: Counter[str] = Counter()

    def start_writing(self) -> None:
        self.writers.start(3)
        self.pgbench.start()

    def stop_writing(self) -> None:
        self.writers.leave()
        self.pgbench.leave()

    def add_table(self, name: str) -> None:
        self.shop.execute(f"CREATE TABLE {name} (id bigint PRIMARY KEY, title varchar(40))")
        self.audit.follow(self.shop.session, name, "id")
        self.shop.execute(f"INSERT INTO {name} SELECT i, 'late ' || i FROM generate_series(1, 50) i")

    def add_column(self) -> None:
        """Give a table a column, which is then written at once, before a discovery finds it."""
        self.shop.execute("ALTER TABLE story ADD stars int")
        self.writers.has_stars.set()

    def reconnect(self) -> None:
        """Open the shop's session again after its server has ended."""
        self.shop.session.close()
        self.shop.session = psycopg.connect(self.url, autocommit=True)

    def ingest(self, table: str) -> None:
        with suppress(EtlAssetsError):
            self.shop.ingest(table, max_batches=1)

    def trouble(self, table: str) -> None:
        """Let something happen while a table is ingested."""
        match kind := self.dice.choice(("killed", "killed", "sessions ended", *Fault)):
            case "killed":
                point = self.dice.choice(FAILPOINTS)
                self.shop.try_to_die(table, point.value)
                self.befell[point.value] += 1
            case "sessions ended":
                self.shop.end_other_sessions()
                self.befell[kind] += 1
            case Fault.SILENT:
                pass
            case _:
                with self.network.fault(kind):
                    self.ingest(table)
                self.befell[f"network {kind}"] += 1


@pytest.fixture
def world(postgres_server, tmp_path, request) -> Iterator[World]:
    with ExitStack() as ends:
        yield World(postgres_server, tmp_path, request.param, ends)


@pytest.mark.parametrize(
    "world", [1, *(pytest.param(each, marks=pytest.mark.full) for each in range(2, 12))], indirect=True
)
def test_tables_equal_the_database_at_each_position_whatever_fails(world: World, tell: Callable[[str], None]):
    write_and_ingest(world)
    expect_all_versions(world, tell, record_versions)


def write_and_ingest(world: World, *, alters: bool = True) -> None:
    """Write for some seconds while tables are ingested and things fail, and ingest the rest.

    If `alters`, a table gets a column meanwhile.
    """
    dice, tables = world.dice, list(TABLES)
    world.start_writing()
    deadline = time.monotonic() + (SECONDS if world.seed == 1 else LONG_SECONDS)
    altered = time.monotonic() + dice.uniform(1, SECONDS - 2)
    while time.monotonic() < deadline:
        table = dice.choice(tables)
        world.trouble(table) if dice.random() < 0.4 else world.ingest(table)
        if alters and not world.writers.has_stars.is_set() and time.monotonic() > altered:
            world.add_column()
            world.ingest("story")
            world.shop.discover()
    world.stop_writing()
    world.shop.settle(*tables, rounds=30)
    for _ in range(30):
        if not sum(world.shop.ingest(name).commits for name in tables):
            break


@pytest.mark.parametrize("seed", [1, *(pytest.param(each, marks=pytest.mark.full) for each in range(2, 12))])
def test_tables_without_records_equal_the_database_at_each_position(postgres_server, tmp_path, tell, seed):
    with ExitStack() as ends:
        world = World(postgres_server, tmp_path, seed, ends, keep_records=False)
        write_and_ingest(world, alters=False)  # the table would get it by Spark
        expect_all_versions(world, tell, direct_versions)


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_worker_a_server_and_a_network_that_fail_again_and_again_change_nothing(tmp_path, tell, seed):
    rounds = int(os.environ.get("ROUNDS", "8"))
    with PostgresServer(settings={"wal_keep_size": "4GB"}) as server, ExitStack() as ends:
        world = World(
            server,
            tmp_path,
            seed,
            ends,
            discovery_interval_seconds=2,
            look_interval_seconds=0.5,
            max_batch_records=1_000,  # fewer cannot keep up with the writers
        )
        campaign = Campaign(world, server)
        ends.callback(campaign.end_worker)
        world.start_writing()
        for number in range(rounds):
            campaign.round()
            if number == rounds // 3:
                world.add_column()
            if number == rounds // 2:
                world.add_table("late_item")
        campaign.expect(
            "ready", campaign.unready
        )  # while it is written: a version is compared after its copy
        time.sleep(5)
        world.stop_writing()
        campaign.expect("equal", campaign.unequal)
        campaign.end_worker()
        expect_all_versions(world, tell, record_versions, table_versions)


def expect_all_versions(world: World, tell: Callable[[str], None], *kinds: Versions) -> None:
    """Compare every complete version of every table with the source, and tell what befell."""
    compared: Counter[str] = Counter()
    for table, keys in world.audit.keys.items():
        assert world.shop.home.rows(f"{world.shop.read_into(table)}_rejects") == []
        for versions in kinds:
            compared += expect_equal(world.audit, table, versions(world.shop, table, keys))
    assert world.pgbench.transactions
    assert compared["rows"]
    befell = ", ".join(f"{number} x {kind}" for kind, number in sorted(world.befell.items()))
    kept, undone = world.writers.transactions
    tell(
        f"captures: {world.pgbench.transactions} transactions of pgbench, {kept} others, {undone} rolled"
        f" back; {compared['versions']} versions with {compared['rows']} rows compared; {befell}"
    )


class Campaign:
    """A worker that follows a world, and what happens to both."""

    def __init__(self, world: World, server: PostgresServer) -> None:
        self._world, self._server, self._dice = world, server, world.dice
        self._worker: Running | None = None

    def round(self) -> None:
        """Let a worker work for some seconds, while one thing happens."""
        if self._worker is None or self._worker.wait(0) is not None:
            point = self._dice.choice([None, *FAILPOINTS])
            self._start("" if point is None else point.value)
        self._wait_until_working()
        time.sleep(self._dice.uniform(1, 15))
        match kind := self._dice.choice(TROUBLES):
            case "worker killed":
                self.end_worker()
            case "worker asleep":
                self._with_worker_asleep()
            case "sessions ended":
                self._world.shop.end_other_sessions()
            case "server killed":
                self._server.kill()
                time.sleep(self._dice.uniform(0, 3))
                self._server.start()
                self._world.reconnect()
            case _:
                with self._world.network.fault(Fault(kind)):
                    time.sleep(self._dice.uniform(0.5, 5))
        self._world.befell[kind] += 1

    def expect(self, what: str, differs: Callable[[], str]) -> None:
        """Wait until a worker has made every table what it is expected to be."""
        if self._worker is None or self._worker.wait(0) is not None:
            self._start("")
        deadline = time.monotonic() + 240
        while found := differs():
            if self._worker is None or (done := self._worker.wait(0)) is not None:
                assert done is None or done.code == -signal.SIGKILL, done  # it came to its failpoint
                self._start("")
            assert time.monotonic() < deadline, f"not {what}: {found}"
            time.sleep(1)

    def end_worker(self) -> None:
        """Kill the worker with everything that it has started."""
        if self._worker is not None:
            self._worker.sweep()
            self._worker.process.wait()
            self._worker = None

    def _start(self, failpoint: str) -> None:
        self.end_worker()
        self._world.befell[failpoint or "worker started"] += 1
        self._worker = self._world.shop.home.start("worker", failpoint=failpoint)

    def _wait_until_working(self) -> None:
        """Wait until the worker follows the capture, or has come to its failpoint."""
        worker, deadline = self._worker, time.monotonic() + 90
        assert worker is not None  # the round has started it
        while worker.wait(0) is None and "working on the sources" not in worker.err:
            assert time.monotonic() < deadline, worker.err
            time.sleep(0.2)

    def _with_worker_asleep(self) -> None:
        """Stop the worker for a while, in which another process does a table's step."""
        assert self._worker is not None  # the round has started it
        self._worker.send(signal.SIGSTOP)
        # It may sleep while it holds the lock of the capture: then the other process waits for it.
        aside = threading.Thread(target=self._world.ingest, args=[self._dice.choice(list(TABLES))])
        aside.start()
        time.sleep(self._dice.uniform(0, 5))
        self._worker.send(signal.SIGCONT)
        aside.join(120)
        assert not aside.is_alive()

    def unready(self) -> str:
        """Return which table is not ready now."""
        shop = self._world.shop
        phases = shop.phases()
        late = next((table for table in self._world.audit.keys if phases.get(table) != "ready"), None)
        return "" if late is None else f"{late} is {phases.get(late)}: {shop.states().get(late)}"

    def unequal(self) -> str:
        """Return what differs from the source now."""
        if late := self.unready():
            return late
        shop = self._world.shop
        for table, keys in self._world.audit.keys.items():
            rows = shop.home.rows(f"{CAPTURE}_{table}")
            held = {tuple(row[key] for key in keys): row for row in rows}
            query = f"SELECT to_jsonb(t)::text FROM {table} t".encode()
            there = [json.loads(row, parse_float=Decimal) for (row,) in shop.session.execute(query)]
            wanted = {tuple(row[key] for key in keys): row for row in there}
            names = set().union(*there)
            own = {key: {name: row[name] for name in names & row.keys()} for key, row in held.items()}
            if plain_rows(own) != plain_rows(wanted):
                return f"{table} has {len(held)} rows of {len(wanted)}, or other ones"
        return ""

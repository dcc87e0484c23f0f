"""PostgreSQL dies under the worker: the other sink goes on, the source pauses at its limit, all arrives."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet
import pytest

from etl_assets.errors import NotFound
from etl_assets.sinks.files.reader import read_manifest
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.commands.home import Home, Running

LIMIT = 40
PIPELINE = f"""
name: films
source: {{type: files, path: "in/*.csv", id: [id], settle_seconds: 0}}
columns: {{id: bigint}}
table: {{keys: [id]}}
sinks:
  - {{type: postgres, connection: warehouse, table: marts.films, max_lag: {{rows: {LIMIT}}}}}
  - {{type: folder, connection: exports, target: films}}
"""
ROWS = 20
"""Rows of a file."""
PAUSED = "the source of films is not read further since"


@dataclass(kw_only=True)
class Site:
    """An installation whose pipeline goes to PostgreSQL and to a folder, and its worker."""

    home: Home
    postgres: PostgresServer
    worker: Running | None = None
    files: int = 0

    def land(self) -> None:
        """The next file."""
        first, folder = self.files * ROWS, self.home.path / "in"
        hidden = folder / ".next"
        hidden.write_text("id\n" + "".join(f"{first + each}\n" for each in range(ROWS)))
        hidden.rename(folder / f"{self.files:04}.csv")
        self.files += 1

    @property
    def landed(self) -> Counter[int]:
        return Counter(range(self.files * ROWS))

    @property
    def read(self) -> int:
        """Files that were read."""
        return len(self.home.rows("films_source", ["record_id"])) // ROWS

    def in_table(self) -> Counter[int]:
        return Counter(row["id"] for row in self.home.rows("films", ["id"]))

    def in_postgres(self) -> Counter[int]:
        with psycopg.connect(self.postgres.url) as session:
            try:
                return Counter(each for (each,) in session.execute("SELECT id FROM marts.films"))
            except psycopg.errors.UndefinedTable:
                return Counter()

    def in_folder(self) -> Counter[int]:
        try:
            files = read_manifest(str(self.home.path / "out" / "films")).files
        except NotFound:
            return Counter()
        return Counter(each for file in files for each in pyarrow.parquet.read_table(file)["id"].to_pylist())

    def alerts(self) -> list[str]:
        """Kinds of the alerts, but of runs."""
        return [each["kind"] for each in self.home.alerts() if each["kind"] != "RunFailed"]

    def work(self) -> None:
        self.worker = self.home.start("worker")

    def kill_worker(self) -> None:
        assert self.worker is not None
        self.worker.sweep()
        self.worker.wait(20)

    def until(self, holds: Callable[[], Any]) -> None:
        assert self.worker is not None
        deadline = time.monotonic() + 240  # the machine may be busy
        while not holds():
            assert time.monotonic() < deadline, self.worker.err[-6000:]
            assert self.worker.wait(0.2) is None, f"the worker has ended\n{self.worker.err[-6000:]}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with PostgresServer(durable=False) as server:
        monkeypatch.setenv("WAREHOUSE_PASSWORD", server.password)
        warehouse = {
            "type": "postgres",
            "host": "127.0.0.1",
            "port": server.port,
            "database": "postgres",
            "user": server.user,
            "password": "${WAREHOUSE_PASSWORD}",
            "write": ["marts.*"],
        }
        exports = {"type": "folder", "path": "out", "write": ["*"]}
        home = Home(path=tmp_path / "home").begin(
            pipelines={"built_in": []},
            runs={"max_retries": 1, "retry_delay_seconds": 0.1},
            connections={"warehouse": warehouse, "exports": exports},
        )
        for folder in ("pipelines", "in", "out"):
            (home.path / folder).mkdir()
        (home.path / "pipelines" / "films.yaml").write_text(PIPELINE)
        site = Site(home=home, postgres=server)
        yield site
        if site.worker is not None:
            site.kill_worker()


@pytest.mark.e2e
@pytest.mark.kill
@pytest.mark.spark
@pytest.mark.timeout(1_200)
def test_a_sink_that_dies_pauses_the_source_at_its_limit_and_nothing_is_lost_or_twice(site, tell):
    site.land()
    site.work()
    site.until(lambda: site.in_folder() == site.in_postgres() == site.landed)

    # Down: the folder follows, until the limit pauses the source.
    site.postgres.kill()
    for _ in range(3):
        site.land()
        site.until(lambda: site.read == site.files and site.in_folder() == site.landed)
    site.until(lambda: "SourcePaused" in site.alerts())
    site.land()
    time.sleep(2)
    assert site.read == site.files - 1, "nothing is read beyond the limit"
    assert sorted(site.alerts()) == ["SinkDown", "SourcePaused"]
    said = site.home.call("doctor").out
    for part in ("its circuit breaker is open since", PAUSED, f"over its limit of {LIMIT} rows"):
        assert part in said

    # Back: all by itself.
    site.postgres.start()
    began = time.monotonic()
    site.until(lambda: site.in_postgres() == site.in_folder() == site.landed)
    back = time.monotonic() - began
    site.until(lambda: len(site.alerts()) == 4)
    assert sorted(site.alerts()) == ["SinkBack", "SinkDown", "SourcePaused", "SourceResumed"]
    assert site.in_table() == site.landed
    site.kill_worker()

    # A run reads nothing beyond the limit. One that finds the sink back delivers first, and then reads.
    site.postgres.kill()
    for _ in range(3):
        site.land()
    assert site.home.call("run").code == 1
    assert site.read == site.files
    site.land()
    run = site.home.call("run")
    assert (run.code, site.read, PAUSED in run.err) == (1, site.files - 1, True), run
    site.postgres.start()
    run = site.home.call("run")
    assert (run.code, PAUSED in run.err) == (0, True), run
    assert site.in_postgres() == site.in_folder() == site.in_table() == site.landed
    tell(f"from PostgreSQL back to everything delivered and the source read again: {back:.0f} s")

"""A database that is cut off, killed or stopped in the middle of a range: each row is read once."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from etl_assets.errors import SourceUnavailable
from etl_assets.sources.ranges import ReadRange
from etl_assets.sources.sql.full_load import SqlFullLoad
from etl_assets.sources.sql.postgres import PostgresQuery
from etl_assets.sources.sql.source import SqlQuery
from etl_assets.stack.postgres import PostgresServer
from etl_assets_tests.reference.fault_proxy import Fault, FaultProxy

ROWS = 1_000
QUERY = """SELECT film_id, film_id AS version,
    CASE film_id WHEN 500 THEN pg_advisory_lock_shared(1)::text || pg_advisory_unlock_shared(1) END AS held
    FROM film"""
"""Who has the lock has the query wait in the middle of its rows."""
Source = SqlQuery | SqlFullLoad


@dataclass(frozen=True)
class Site:
    """A server of its own, and the network before it."""

    server: PostgresServer
    proxy: FaultProxy

    def source(self, load: str) -> Source:
        address = self.server.database_url("postgres", self.proxy.port)
        key = "version" if load == "incremental" else "film_id"
        database = PostgresQuery(name="shop", address=address, query=QUERY, key=key, id="film_id")
        if load == "incremental":
            return SqlQuery(name="films", database=database, key=key, id="film_id")
        return SqlFullLoad(name="films", database=database, id=("film_id",))

    @contextmanager
    def in_the_middle(self, load: str, folder: Path) -> Generator[Future[object]]:
        """The reading of a range that has got to the middle of its rows, in a thread."""
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        source = self.source(load)
        planned = plan(source)
        folder.mkdir()
        with psycopg.connect(self.server.url, autocommit=True) as other, ThreadPoolExecutor(1) as threads:
            other.execute("SELECT pg_advisory_lock(1)")
            reading: Future[object] = threads.submit(source.read, planned, folder)
            until = time.monotonic() + 30
            while other.execute(waits).fetchone() is None:
                assert time.monotonic() < until
                assert not reading.done()
                time.sleep(0.02)
            try:
                yield reading
            finally:
                other.close()
        source.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with PostgresServer(durable=False) as server:
        proxy = FaultProxy(server.port, random.Random(1))
        with psycopg.connect(server.url) as connection:
            connection.execute(f"CREATE TABLE film AS SELECT generate_series(1, {ROWS}) AS film_id".encode())
        yield Site(server, proxy)
        proxy.close()


def plan(source: Source) -> ReadRange:
    planned = source.plan({}, max_bytes=1 << 30, max_records=10 * ROWS)
    assert planned is not None
    return planned


def rows_in(folder: Path) -> list[int]:
    """The ids of the rows; a full load has written the ids that are there beside them."""
    lines = [line for file in folder.rglob("*.jsonl") for line in file.read_text("utf-8").splitlines()]
    return [each["film_id"] for each in map(json.loads, lines) if "version" in each]


@pytest.mark.parametrize("load", ["incremental", "full"])
def test_what_cannot_be_read_to_its_end_is_unavailable_and_the_next_attempt_has_each_row_once(
    site, tmp_path, load
):
    def cut_off(reading: Future[object]) -> None:
        with site.proxy.fault(Fault.REFUSED), pytest.raises(SourceUnavailable):
            reading.result(30)

    def killed(reading: Future[object]) -> None:
        site.server.kill()
        with pytest.raises(SourceUnavailable):
            reading.result(30)
        site.server.start()

    faults: list[Callable[[Future[object]], None]] = [cut_off, killed]
    for number, fault in enumerate(faults):
        with site.in_the_middle(load, tmp_path / f"{number}") as reading:
            fault(reading)
        again = tmp_path / f"{number}-again"
        again.mkdir()
        with closing(site.source(load)) as source:
            source.read(plan(source), again)
        assert rows_in(again) == list(range(1, ROWS + 1)), number


@pytest.mark.parametrize("load", ["incremental", "full"])
def test_a_database_that_is_stopped_for_a_while_is_read_to_the_end(site, tmp_path, load):
    with site.in_the_middle(load, tmp_path / "rows") as reading:
        site.server.pause()
        time.sleep(0.5)
        assert not reading.done()
        site.server.resume()
    assert reading.exception(30) is None
    assert rows_in(tmp_path / "rows") == list(range(1, ROWS + 1))

"""Many tables of mixed size in one publication, copied by several threads, while some are in error."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from click.testing import CliRunner

from etl_assets.cli.main import cli
from etl_assets.errors import SourceRefused
from etl_assets.sources.captures import discovery
from etl_assets.sources.captures.connect import close_readers
from etl_assets_tests.sources.captured import Captured

_SIZES = (0, 1, 7, 40, 400, 3_000)
_READY_SECONDS = 240


@pytest.fixture
def shop(postgres_server, tmp_path) -> Iterator[Captured]:
    found = Captured.create(postgres_server, tmp_path)
    yield found
    found.close()


@pytest.mark.parametrize("tables", [12, pytest.param(100, marks=pytest.mark.full)])
def test_tables_of_mixed_size_become_ready_beside_one_in_error(shop, monkeypatch, tables):
    names = [f"t{number:03d}" for number in range(tables - 1)]
    for number, name in enumerate(names):
        shop.make_tables(name, rows=_SIZES[number % len(_SIZES)])
    shop.make_tables("broken", rows=50)
    shop.declare(max_copies=4, max_batch_records=1_000)
    shop.discover()
    shop.execute("ALTER TABLE broken DROP CONSTRAINT broken_pkey")

    def carry(name: str) -> None:
        with suppress(SourceRefused):  # of the broken table
            shop.ingest(name)

    for _ in range(8 * tables):
        if all(phase == "ready" for name, phase in shop.phases().items() if name != "broken"):
            break
        with ThreadPoolExecutor(2) as threads:
            list(
                threads.map(
                    carry,
                    [n for n, phase in shop.phases().items() if phase in ("init", "data_sync", "catchup")],
                )
            )
        shop.look()
    phases = shop.phases()
    assert phases.pop("broken") == "errored"
    assert set(phases.values()) == {"ready"}
    for number, name in enumerate(names):
        shop.execute(f"UPDATE {name} SET n = -1 WHERE id % 3 = 1", f"DELETE FROM {name} WHERE id = 7")
        shop.execute(f"INSERT INTO {name} VALUES (9999, 'new', {number})")
    for name in names:
        shop.ingest(name)
        assert shop.held(name) == shop.source(name)
    monkeypatch.setenv("ETL_ASSETS_HOME", str(shop.home.path))
    shown = CliRunner().invoke(cli, ["cdc", "tables", "shop"])
    assert shown.exit_code in (0, 1), shown.output
    assert shown.output.count("  ready  ") == len(names)
    assert "public.broken  errored" in shown.output
    assert "does not identify the rows" in shown.output
    assert "etl-assets cdc rollback shop public.broken" in shown.output


def test_a_discovery_describes_tables_again_once_the_catalog_has_changed(shop, monkeypatch):
    described = []
    found = discovery.find_source_table
    monkeypatch.setattr(
        discovery, "find_source_table", lambda *a, **more: described.append(a[1]) or found(*a, **more)
    )
    shop.make_tables("film", "actor")
    for _ in range(3):  # the first one makes the publication
        shop.discover()
    described.clear()
    shop.discover()
    shop.execute("INSERT INTO film VALUES (9, 'nine', 9)", "CREATE TEMPORARY TABLE passing (id int)")
    assert (shop.discover(), described) == (discovery.FoundTables(), [])
    shop.execute("ALTER TABLE film ADD stars int")
    assert shop.discover().changed == ("public.film",)
    shop.execute("ALTER TABLE actor DROP CONSTRAINT actor_pkey")
    assert shop.discover().errored == ("public.actor",)
    described.clear()
    shop.discover()  # an error may end without a change of the catalog
    assert described == ["public.film"]


@pytest.mark.full
@pytest.mark.kill
def test_a_worker_that_is_killed_while_it_copies_two_tables_completes_both_once(shop):
    shop.make_tables("film", "actor", rows=30_000)
    shop.declare(max_batch_records=4_000, look_interval_seconds=0.5)
    shop.discover()
    close_readers(
        shop.home.path
    )  # the worker begins the spool, and ends sessions of others that read the log
    environment = {**os.environ, "ETL_ASSETS_HOME": str(shop.home.path)}
    command = [sys.executable, "-m", "etl_assets.cli.main", "worker"]
    with (shop.home.path / "worker.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        _until(lambda: all(0 < each.rows_copied < 30_000 for each in shop.states().values()))
        process.kill()
        process.wait()
        before = {name: state.rows_copied for name, state in shop.states().items()}
        shop.execute("UPDATE film SET n = -1 WHERE id % 100 = 0", "DELETE FROM actor WHERE id > 29990")
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            _until(lambda: set(shop.phases().values()) == {"ready"})
            _until(lambda: all(shop.lag(name) == 0 for name in ("film", "actor")))
        finally:
            process.terminate()
            process.wait(60)
    assert all(before.values())
    for name in ("film", "actor"):
        assert shop.held(name) == shop.source(name)
        rows = shop.home.rows(f"shop_{name}")
        assert {row["id"]: (row["title"], row["n"]) for row in rows} == shop.source(name)
        places = [(each["postgres.lsn"], each["postgres.sequence"]) for each in shop.records(name)]
        assert len(places) == len(set(places))


def _until(reached) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not reached():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.1)

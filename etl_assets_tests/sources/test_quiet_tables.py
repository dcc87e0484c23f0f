"""A worker lets tables rest in which nothing happens: none sleeps through what concerns it.

A table at rest is looked at anyway after `REST_SECONDS`. What is tested here has to come much sooner.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

import pytest

from etl_assets.captures import roll_back
from etl_assets.sources.replays import record_again, submit_replays
from etl_assets.worker.turns import REST_SECONDS
from etl_assets_tests.sources.captured import CAPTURE, Captured
from etl_assets_tests.sources.topics import today

_SOON_SECONDS = REST_SECONDS / 3
_QUIET_SECONDS = 3.0
"""After so long without a change each table rests."""


@pytest.fixture
def shop(postgres_server, tmp_path) -> Generator[Captured]:
    made = Captured.create(postgres_server, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.e2e
def test_no_table_at_rest_sleeps_through_what_concerns_it(shop):
    shop.make_tables("film", "actor", "staff")
    shop.declare(look_interval_seconds=0.5, discovery_interval_seconds=1)
    shop.discover()
    records = shop.settings.placement().reader().table_path("shop_staff_source")
    with _worker(shop):
        _soon(lambda: set(shop.phases().values()) == {"ready"}, "the copies")
        kept = shutil.copytree(records, records.parent / "kept")
        shop.execute("UPDATE staff SET n = 7")
        _soon(lambda: shop.held("staff") == shop.source("staff"), "a change")

        time.sleep(_QUIET_SECONDS)
        shutil.rmtree(records)
        kept.rename(records)
        shop.execute("UPDATE film SET n = 7 WHERE id = 2", "ALTER TABLE actor ADD stars int DEFAULT 5")
        _soon(lambda: shop.held("film") == shop.source("film"), "a change")
        _soon(lambda: shop.phases()["staff"] == "errored", "a backup that was restored")
        _soon(lambda: shop.states()["actor"].copies == 1, "another declaration")
        roll_back(shop.settings, CAPTURE, "public.staff", copies=True)
        _soon(lambda: set(shop.phases().values()) == {"ready"}, "a rollback")
        assert shop.held("staff") == shop.source("staff")
        assert shop.records("actor")[-1]["stars"] == 5

        time.sleep(_QUIET_SECONDS)
        (record, *_) = shop.records("film")
        again = json.dumps({**record, "id": 4, "title": "replayed"}).encode()
        replay = record_again(today(), "a" * 64, 1, again, stage="shop_film_source")
        submit_replays(shop.settings.placement().reader(), [replay])
        _soon(
            lambda: any(each["title"] == "replayed" for each in shop.records("film")),
            "a dead letter that was submitted again",
        )


@contextmanager
def _worker(shop: Captured) -> Generator[None]:
    environment = {**os.environ, "ETL_ASSETS_HOME": str(shop.home.path)}
    command = [sys.executable, "-m", "etl_assets.cli.main", "worker"]
    with (shop.home.path / "worker.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def _soon(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _SOON_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"slept through {what}"
        time.sleep(0.2)

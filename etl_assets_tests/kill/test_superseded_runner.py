"""A worker is stopped in the middle of a step, another one takes its run over, and the first one wakes up.

Each worker has a home folder of its own; root, store and target are shared.
"""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from deltalake import DeltaTable

from etl_assets.control.run_controls import RunControls
from etl_assets.control.states import ControlState
from etl_assets.control.store import open_store
from etl_assets.settings import Settings
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.kill.worker_process import follow

pytestmark = [pytest.mark.spark, pytest.mark.kill]

SCHEMA = "superseded"
ROWS = 40


@dataclass(kw_only=True)
class Site:
    """Shared folders, a store and a target, with any number of workers."""

    folder: Path
    server: Any
    begin: Callable[[str, str], Any]
    controls: RunControls

    def log_of(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text("utf-8")

    def until(self, what: Callable[[], bool], why: str) -> None:
        deadline = time.monotonic() + 45
        while not what():
            logs = "".join(f"\n{each}\n{each.read_text()[-3000:]}" for each in self.folder.glob("*.log"))
            assert time.monotonic() < deadline, f"{why}{logs}"
            time.sleep(0.05)

    def announced(self, table: str) -> bool:
        file = self.folder / "data" / "locks" / f"{table}.films.token"
        return file.exists() and file.read_text() == "2"

    @property
    def folders(self) -> list[Path]:
        return sorted((self.folder / "data" / "tables").glob("*/g*"))

    def rows(self) -> Counter[int]:
        (folder,) = (each for each in self.folders if each.parent.name == "films")
        return Counter(DeltaTable(str(folder)).to_pyarrow_table(columns=["id"])["id"].to_pylist())

    def in_target(self) -> Counter[int]:
        with psycopg.connect(self.server.url) as session:
            return Counter(key for (key,) in session.execute(f"SELECT id FROM {SCHEMA}.films".encode()))

    def position(self) -> str:
        with psycopg.connect(self.server.url) as session:
            found = session.execute(f"SELECT table_id FROM {SCHEMA}.etl_assets_positions".encode())
            return found.fetchall()[0][0]


@pytest.fixture
def site(spark, tmp_path: Path, postgres_server, monkeypatch) -> Iterator[Site]:
    monkeypatch.setenv("SUPERSEDED_PASSWORD", postgres_server.password)
    with psycopg.connect(postgres_server.url, autocommit=True) as session:
        session.execute(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE".encode())
        session.execute(f"DROP DATABASE IF EXISTS {SCHEMA}".encode())
        session.execute(f"CREATE DATABASE {SCHEMA}".encode())
    (tmp_path / "in").mkdir()
    to = {
        "type": "postgres",
        "host": "127.0.0.1",
        "port": postgres_server.port,
        "user": postgres_server.user,
        "password": "${SUPERSEDED_PASSWORD}",
        "statement_timeout_seconds": 30,
    }
    settings = {
        "start_date": dt.datetime.now(dt.UTC).date(),
        "pipelines": {"built_in": []},
        "domains": [{"name": "local", "root": str(tmp_path / "data")}],
        "connections": {
            "store": {**to, "database": SCHEMA},
            "target": {**to, "database": "postgres", "write": [f"{SCHEMA}.*"]},
        },
        "control": {"lease_seconds": 1, "connection": "store"},
        "spark": {"master": "local[2]"},
        "worker": {"batch_interval_seconds": 0.05, "derived_interval_seconds": 0.1},
    }
    pipeline = {
        "name": "films",
        "source": {"type": "files", "path": str(tmp_path / "in" / "*.csv"), "settle_seconds": 0},
        "columns": {"id": "bigint"},
        "table": {"keys": ["id"]},
        "sinks": [{"type": "postgres", "connection": "target", "table": f"{SCHEMA}.films"}],
    }
    for name in ("one", "two"):
        (tmp_path / name / "pipelines").mkdir(parents=True)
        (tmp_path / name / "platform.yaml").write_text(yaml.safe_dump(settings), "utf-8")
        (tmp_path / name / "pipelines" / "films.yaml").write_text(yaml.safe_dump(pipeline), "utf-8")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyspark.sql.functions", "deltalake", "pyarrow", "dagster"])
    started = []

    def begin(name: str, failpoint: str) -> Any:
        environment = {
            "ETL_ASSETS_HOME": str(tmp_path / name),
            "ETL_ASSETS_FAILPOINT": failpoint,
            "SUPERSEDED_PASSWORD": postgres_server.password,
        }
        log = tmp_path / f"{name}.log"
        log.touch()
        process: Any = context.Process(target=follow, args=(environment, log, Gateway.of(spark)))
        process.start()
        started.append(process)
        return process

    store = open_store(Settings.model_validate({**settings, "home": tmp_path / "one"}))
    yield Site(folder=tmp_path, server=postgres_server, begin=begin, controls=RunControls(store))
    store.close()
    for process in started:
        process.kill()
        process.join()


@pytest.mark.parametrize(
    ("failpoint", "wakes_up"),
    [
        ("table.before_commit@films", "films"),
        pytest.param("sink.before_target_commit@films", "films_to_postgres", marks=pytest.mark.full),
        pytest.param("sink.before_delivery@films_to_postgres", "", marks=pytest.mark.full),
    ],
)
def test_a_runner_that_wakes_up_is_rejected(site: Site, failpoint: str, wakes_up: str):
    site.controls.pause("films", "test")
    (site.folder / "in" / "a.csv").write_text("id\n" + "".join(f"{each}\n" for each in range(ROWS)))
    asked = site.controls.request_run("films", "test")
    site.controls.resume("films", "test")
    # 1. One is stopped in the middle of a step, and the lease of its run expires.
    one = site.begin("one", f"pause:{failpoint}")
    site.until(lambda: _is_stopped(one.pid), "the first worker was not stopped")
    site.begin("two", "")
    site.until(lambda: site.controls.run(asked.id).token == 2, "nobody took the run over")
    # 2. It wakes up once the other one has begun, or has done everything.
    if wakes_up:
        site.until(lambda: site.announced(wakes_up), "the second worker has not begun")
    else:
        site.until(lambda: site.controls.state_of("films").state is ControlState.IDLE, "not done")
    os.kill(one.pid, signal.SIGCONT)
    site.until(
        lambda: "was taken over" in site.log_of("one") or "SinkFenced" in site.log_of("one"),
        "the first worker was not rejected",
    )
    site.until(lambda: site.controls.state_of("films").state is ControlState.IDLE, "the run did not end")
    # 3. What is stored is what the second one wrote, and no commit of the first one came after its fence.
    assert site.controls.run(asked.id).status.value == "succeeded"
    assert site.rows() == site.in_target() == Counter(range(ROWS))
    assert site.position().endswith("#token=2")
    tokens = {folder.parent.name: _tokens(folder) for folder in site.folders}
    assert all(found == sorted(found) for found in tokens.values()), tokens
    assert 2 in tokens["films"]


def _tokens(folder: Path) -> list[int]:
    found = []
    for entry in sorted((folder / "_delta_log").glob("0*.json")):
        lines = entry.read_text("utf-8").splitlines()
        (info,) = (json.loads(line)["commitInfo"] for line in lines if "commitInfo" in line)
        found += [run["token"]] if (run := json.loads(info["userMetadata"]).get("run")) else []
    return found


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] == "T"

"""Run control by the commands that a user types, over a worker that is paused, killed and canceled."""

from __future__ import annotations

import datetime as dt
import json
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import yaml
from click.testing import CliRunner
from deltalake import DeltaTable

from etl_assets.cli.main import cli
from etl_assets.settings import load_settings
from etl_assets.sinks.files.reader import read_manifest
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.kill.worker_process import follow

pytestmark = [pytest.mark.spark, pytest.mark.kill]

PIPELINE = """
name: films
source: {type: files, path: "in/*.csv", settle_seconds: 0}
columns: {id: bigint, text: string}
table: {keys: [id]}
sinks: [{type: folder, connection: exports, target: films}]
"""
ROWS = 600
"""Rows of a file, which is as large as one batch."""
FILES = 6
SETTINGS = {
    "start_date": dt.datetime.now(dt.UTC).date(),
    "pipelines": {"built_in": []},
    "connections": {"exports": {"type": "folder", "path": "out", "write": ["*"]}},
    "control": {"lease_seconds": 1},
    "spark": {"master": "local[2]"},
    "worker": {
        "batch_interval_seconds": 0.05,
        "derived_interval_seconds": 0.1,
        "report_interval_seconds": 3_600,
        "max_batch_bytes": 1_048_576,
    },
}


@dataclass(kw_only=True)
class Site:
    """An installation with one pipeline, its commands and its worker."""

    home: Path
    log: Path
    begin: Callable[[], Any]
    files: int = 0

    def land(self, number: int) -> None:
        for _ in range(number):
            first = self.files * ROWS
            rows = "".join(f"{first + each},{'x' * 1_800}\n" for each in range(ROWS))
            hidden = self.home / "in" / ".next"
            hidden.write_text(f"id,text\n{rows}")
            hidden.rename(self.home / "in" / f"{self.files:03}.csv")
            self.files += 1

    def type(self, *words: str) -> dict[str, Any]:
        done = CliRunner().invoke(cli, ["pipelines", *words, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    @property
    def state(self) -> str:
        return self.type("runs", "films")["state"]

    def rows(self, table: str = "films", column: str = "id") -> Counter[Any]:
        folders = sorted((self.home / "data" / "tables" / table).glob("g*"))
        if not folders or not any((folders[-1] / "_delta_log").glob("0*.json")):
            return Counter()
        found = DeltaTable(str(folders[-1])).to_pyarrow_dataset().to_table(columns=[column])
        return Counter(found[column].to_pylist())

    def in_folder(self) -> Counter[int]:
        """Rows that the sink has."""
        files = read_manifest(str(self.home / "out" / "films")).files
        return Counter(each for file in files for each in pyarrow.parquet.read_table(file)["id"].to_pylist())

    @property
    def read(self) -> int:
        """Records that were read."""
        return len(self.rows("films_source", "record_id"))

    def until(self, what: Callable[[], bool], why: str) -> None:
        deadline = time.monotonic() + 30
        while not what():
            assert time.monotonic() < deadline, f"{why}\n{self.log.read_text()[-4000:]}"
            time.sleep(0.05)

    def until_state(self, state: str) -> None:
        self.until(lambda: self.state == state, f"not {state}: {self.state}")


@pytest.fixture
def site(spark, tmp_path: Path) -> Iterator[Site]:
    home = Path(os.environ["ETL_ASSETS_HOME"])
    (home / "pipelines").mkdir(parents=True)
    (home / "in").mkdir()
    (home / "out").mkdir()
    (home / "platform.yaml").write_text(yaml.safe_dump(SETTINGS), "utf-8")
    (home / "pipelines" / "films.yaml").write_text(PIPELINE, "utf-8")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyspark.sql.functions", "deltalake", "pyarrow", "dagster"])
    started = []

    def begin() -> Any:
        environment = {"ETL_ASSETS_HOME": str(home), "ETL_ASSETS_FAILPOINT": ""}
        process: Any = context.Process(target=follow, args=(environment, tmp_path / "log", Gateway.of(spark)))
        process.start()
        started.append(process)
        return process

    (tmp_path / "log").touch()
    assert load_settings().catalog().pipelines[0].name == "films"
    yield Site(home=home, log=tmp_path / "log", begin=begin)
    for process in started:
        process.kill()
        process.join()


def test_a_run_is_paused_between_batches_continued_after_a_kill_and_canceled(site: Site):
    site.land(FILES)
    assert site.type("pause", "films", "--reason", "upgrade")["state"] == "PAUSED"
    asked = site.type("run", "films")
    assert asked["state"] == "PAUSED", "the request is remembered"
    worker = _left_alone_while_paused(site)
    _paused_between_batches(site)
    _killed_and_continued(site, worker, asked["run"])
    _canceled_and_resumed(site)


def _left_alone_while_paused(site: Site) -> Any:
    worker = site.begin()
    site.until(lambda: "working on the sources" in site.log.read_text(), "the worker did not begin")
    time.sleep(0.5)
    assert site.read == 0
    return worker


def _paused_between_batches(site: Site) -> None:
    """The batch that is under way is committed, and no other begins."""
    site.type("resume", "films")
    site.until(lambda: bool(site.rows()), "no batch was committed")
    site.type("pause", "films")
    site.until_state("PAUSED")
    paused = site.rows()
    assert ROWS <= len(paused) < FILES * ROWS
    assert site.read == len(paused), "a batch that has begun goes all the way"
    time.sleep(0.5)
    assert site.rows() == paused


def _killed_and_continued(site: Site, worker: Any, run: str) -> None:
    """Another worker goes on once the lease has expired, and the attempt counts."""
    paused = site.rows()
    site.type("resume", "films")
    site.until(lambda: site.rows() != paused, "no batch was committed")
    worker.kill()
    worker.join()
    assert site.state == "RUNNING"
    site.begin()
    site.until_state("IDLE")
    assert site.in_folder() == Counter(range(FILES * ROWS)), "a run ends when its sinks have everything"
    found = site.type("runs", "films", "--limit", "50")
    (done,) = found["runs"]
    assert (done["id"], done["status"], done["attempts"]) == (run, "succeeded", 2)
    assert "lose" in [entry["action"] for entry in found["history"]]
    assert done["rows"] > 0
    assert site.rows() == Counter(range(FILES * ROWS))


def _canceled_and_resumed(site: Site) -> None:
    """A canceled run leaves what is unread alone, until the pipeline is resumed."""
    site.type("pause", "films")
    site.land(3)
    site.type("run", "films")
    site.type("resume", "films")
    site.until(lambda: len(site.rows()) > FILES * ROWS, "no batch was committed")
    site.type("cancel", "films")
    site.until_state("CANCELED")
    canceled = site.rows()
    assert len(canceled) < (FILES + 3) * ROWS
    assert site.type("runs", "films")["runs"][0]["status"] == "canceled"
    time.sleep(0.5)
    assert site.rows() == canceled
    assert site.type("resume", "films")["state"] == "IDLE"
    site.until(lambda: site.rows() == Counter(range((FILES + 3) * ROWS)), "what was unread did not follow")

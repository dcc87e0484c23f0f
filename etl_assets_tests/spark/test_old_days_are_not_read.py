"""A worker's steps behind a backlog of 31 days: a new batch opens no data file of an earlier day.

The first batch after the backlog does, once: it makes the index of ids that all later ones look records up
in. A table with keys has no days: an upsert searches all of its files that may have one of the keys, and with
random ids all may. `BACKLOG_COMMITS` says how many batches there are. What they read is counted by the
kernel, for the driver, its JVM and its Python workers alike.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from etl_assets.settings import Settings, load_settings
from etl_assets.worker.step_runner import StepRunner
from etl_assets_tests.commands.home import Home
from etl_assets_tests.pipeline import event
from etl_assets_tests.reference.opened_files import OpenedFiles

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(3_600)]
COMMITS = int(os.environ.get("BACKLOG_COMMITS", "4"))
FIRST = dt.date(2026, 1, 1)
BACKLOG = tuple(FIRST + dt.timedelta(days=number) for number in range(31))
TODAY = BACKLOG[-1] + dt.timedelta(days=1)
RECORDS, BATCH = 200, 20
BY_DAY = ("raw_events", "normalized_orders", "warehouse_rows", "visits_source")
PATH = (*BY_DAY, "visits")
VISITS = {
    "name": "visits",
    "source": {"type": "files", "path": "visits/{day}/*.jsonl", "id": ["id"], "settle_seconds": 0},
    "columns": {"id": {"type": "string", "required": True}, "page": "string", "seconds": "int"},
    "table": {"keys": ["id"]},
}


class Worker:
    """An installation, what lands in it, and the steps of a worker."""

    def __init__(self, home: Path, session: Any) -> None:
        self._dice = random.Random(17)
        self.home = Home(path=home).begin(start_date=FIRST.isoformat())
        (home / "pipelines").mkdir()
        (home / "pipelines" / "visits.yaml").write_text(json.dumps(VISITS), "utf-8")
        self.settings: Settings = load_settings({"ETL_ASSETS_HOME": str(home)})
        self._steps = StepRunner(
            settings=self.settings,
            session=lambda: session,
            renew=lambda: None,
            wait=lambda _: None,
            leaving=lambda: False,
        )

    def land(self, day: dt.date, records: int) -> None:
        """A file for each pipeline, with random ids: one that is new may be anywhere in the order of those
        before.
        """
        ids = [str(uuid.UUID(int=self._dice.getrandbits(128))) for _ in range(records)]
        events = [event(event_id=each, aggregate_id=each, day=day) for each in ids]
        visits = [{"id": each, "page": "p", "seconds": 1} for each in ids]
        for folder, lines in ((self.home.landing, events), (self.home.path / "visits", visits)):
            (folder / day.isoformat()).mkdir(parents=True, exist_ok=True)
            content = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / day.isoformat() / f"{ids[0]}.jsonl").write_text(content, "utf-8")

    def carry(self, days: Sequence[dt.date]) -> None:
        """One batch through every table, and what is crowded made one file."""
        for table in PATH:
            done = self._steps.run(table, days)
            assert not done.failed, done.failed
            self._steps.tidy(table)

    def folder(self, table: str) -> Path:
        found = self.home.folder(table)
        assert found is not None
        return found


def test_a_batch_behind_a_backlog_opens_no_data_file_of_an_earlier_day(engine, tmp_path, tell):
    worker = Worker(tmp_path / "home", engine.spark_session.newSession())
    for day in BACKLOG:
        worker.land(day, RECORDS)
    worker.carry(BACKLOG)
    worker.land(TODAY, BATCH)
    worker.carry([TODAY])  # makes the index of ids
    old = [worker.folder(table) / f"partition_date={day}" for table in BY_DAY for day in BACKLOG]
    figures: list[Counter[str]] = []
    with OpenedFiles([*old, worker.folder("visits")]) as opened:
        for _ in range(COMMITS):
            worker.land(TODAY, BATCH)
            worker.carry([TODAY])
            figures.append(_by_table(opened.seen(), worker))
    for table in BY_DAY:
        assert not any(read[table] for read in figures), f"{table}: {figures}"
    for table in PATH:
        assert len(worker.home.rows(table)) == len(BACKLOG) * RECORDS + (1 + COMMITS) * BATCH
    kib = [read["visits bytes"] // 1024 for read in figures]
    tell(
        f"{COMMITS} batches behind {len(BACKLOG)} days: no file of an old day opened; of visits, KiB by"
        f" batch: {kib}"
    )


def _by_table(opened: Counter[Path], worker: Worker) -> Counter[str]:
    """Data files opened, by table, and their bytes."""
    found: Counter[str] = Counter()
    tables = worker.folder("visits").parents[1]
    for path in opened:
        if path.suffix == ".parquet":
            table = path.relative_to(tables).parts[0]
            found[table] += 1
            found[f"{table} bytes"] += path.stat().st_size if path.exists() else 0
    return found

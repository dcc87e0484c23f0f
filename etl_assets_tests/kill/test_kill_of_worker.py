"""A worker killed by SIGKILL: the sensor takes over, another worker finishes, and the tables are those of
a run.
"""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from etl_assets.failpoints import Failpoint
from etl_assets.instance import open_instance
from etl_assets.observability.days_behind import days_behind
from etl_assets.observability.pending import unread as find_unread
from etl_assets.sensors.sources import source_sensors
from etl_assets.settings import Settings, load_settings
from etl_assets.worker.lease import running_worker
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.kill.worker_process import follow
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.reference.tables import ALL_TABLES

pytestmark = [pytest.mark.spark, pytest.mark.kill]

OF_THE_HOUR = {"batch_id", "ingested_at", "committed_at", "recorded_at", "failed_at", "updated_at"}
"""Columns that tell with which commit and when a row came, which may differ."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    home = Path(os.environ["ETL_ASSETS_HOME"])
    home.mkdir()
    told = {
        "start_date": DAY,
        "landing": {"path": str(tmp_path / "landing"), "settle_seconds": 0},
        "spark": {"master": "local[2]"},
        "worker": {
            "batch_interval_seconds": 0.05,
            "derived_interval_seconds": 0.1,
            "report_interval_seconds": 1,
        },
    }
    (home / "platform.yaml").write_text(yaml.safe_dump(told), "utf-8")
    return load_settings()


@pytest.fixture
def start(settings: Settings, spark, tmp_path: Path):
    """Starts a worker, which dies at a failpoint if one is given."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pyspark.sql.functions", "deltalake", "pyarrow", "dagster"])
    started = []

    def start(failpoint: str = "") -> Any:
        environment = {"ETL_ASSETS_HOME": str(settings.home), "ETL_ASSETS_FAILPOINT": failpoint}
        process: Any = context.Process(target=follow, args=(environment, tmp_path / "log", Gateway.of(spark)))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def test_whatever_becomes_of_workers_the_tables_are_those_of_a_run(settings, start, pipeline, tmp_path):
    first = [event(1), event(1), event(2, tenant_id="other"), "not json", event(2)]
    second = [event(1), event(3, day=NEXT_DAY), event(4, day=NEXT_DAY, payload={"amount": "-1"})]
    third = [event(5, day=NEXT_DAY), event(3, day=NEXT_DAY)]
    pipeline.land(first)
    pipeline.land(second, day=NEXT_DAY)

    killed = start(f"{Failpoint.TABLE_BEFORE_COMMIT}@warehouse_rows")
    killed.join(120)
    assert killed.exitcode == -9, (tmp_path / "log").read_text()
    assert running_worker(settings.home) is None
    assert find_unread(settings, now=dt.datetime.now(dt.UTC), settle_seconds=0).ready == ()
    assert asked(settings) == {(DAY, NEXT_DAY)}, "the sensor goes on where it was, though every file is read"

    worker = start()
    until(lambda: running_worker(settings.home) is not None, "it follows")
    assert "reads new files as they come" in str(skipped(settings))
    pipeline.land(third, day=NEXT_DAY, name="b.jsonl")
    until(lambda: not waiting(settings), "everything is up to date")
    until(lambda: reported(settings) >= 5, "Dagster knows")
    os.kill(worker.pid, signal.SIGTERM)
    worker.join(30)
    assert worker.exitcode == 0, (tmp_path / "log").read_text()
    assert not (settings.home / "alerts.jsonl").exists()

    run = Pipeline(root=tmp_path / "run", landing=tmp_path / "run_landing", session=pipeline.session)
    run.land(first)
    run.land(second, day=NEXT_DAY)
    run.run([DAY, NEXT_DAY])  # offsets are dealt commit by commit, so that the batches have to be the same
    run.land(third, day=NEXT_DAY, name="b.jsonl")
    run.run([DAY, NEXT_DAY])
    followed = Pipeline(
        root=settings.placement().domains[0].root, landing=pipeline.landing, session=pipeline.session
    )
    assert tables(followed) == tables(run)
    assert asked(settings) == set()


def until(reached: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline, f"waited without success until {what}"
        time.sleep(0.5)


def waiting(settings: Settings) -> bool:
    unread = find_unread(settings, now=dt.datetime.now(dt.UTC), settle_seconds=0).ready
    return bool(unread or days_behind(settings.placement().reader(), settings.start_date))


def reported(settings: Settings) -> int:
    """How many assets of the day Dagster has a materialization of."""
    names = ("raw_events", "normalized_orders", "warehouse_rows", "dead_letters", "audit_log")
    with open_instance(settings) as instance:
        return sum(
            NEXT_DAY.isoformat() in instance.get_materialized_partitions(dg.AssetKey(name)) for name in names
        )


def tick(settings: Settings) -> dg.SensorResult:
    (sensor,) = source_sensors(settings, settings.catalog().pipelines)
    with dg.DagsterInstance.ephemeral() as instance:
        context = dg.build_sensor_context(instance=instance, definitions=dg.Definitions(sensors=[sensor]))
        result = sensor(context)
    assert isinstance(result, dg.SensorResult)
    return result


def skipped(settings: Settings) -> object:
    reason = tick(settings).skip_reason
    return getattr(reason, "skip_message", reason)


def asked(settings: Settings) -> set[tuple[dt.date, dt.date]]:
    """First and last day of the runs the sensor asks for."""
    keys = (
        str(request.run_key).partition("@")[0].partition(":")[2]
        for request in tick(settings).run_requests or ()
    )
    days = (key.split("..") for key in keys)
    return {(dt.date.fromisoformat(first), dt.date.fromisoformat(last)) for first, last in days}


def tables(pipeline: Pipeline) -> dict[str, Any]:
    return {
        table.name: sorted(
            (
                {key: value for key, value in row.items() if key not in OF_THE_HOUR}
                for row in pipeline.rows(table.name)
            ),
            key=repr,
        )
        for table in ALL_TABLES
    }

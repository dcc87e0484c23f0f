"""One setting moves the work to another engine, and the tables come out the same."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import NoReturn

import pytest
import yaml

from etl_assets.contracts.tables import CAPTURE_STATES, EFFECTS, REPLAYS
from etl_assets.ingest.stage_lines import TASK_BYTES
from etl_assets.runtime.classes import archive_file
from etl_assets.runtime.jars import delta_jars
from etl_assets.runtime.java import find_java
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.reference.tables import ALL_TABLES
from etl_assets_tests.spark.engines import connect_server, parents_of_who_maps, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DIFFERS = {"ingested_at", "failed_at", "committed_at", "recorded_at"}
"""Columns that hold the time of a run."""


@pytest.fixture(scope="module")
def local(engine, tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """A platform whose tables were made by the local engine."""
    folder = tmp_path_factory.mktemp("local")
    session = engine.spark_session.newSession()
    pipeline = Pipeline(root=folder / "data", landing=folder / "landing", session=lambda: session)
    refused = [event(901, payload={"customer_id": "c", "amount": "-1"}), event(902, event_type="OrderLost")]
    pipeline.land([*(event(number) for number in range(200)), "bad", event(1), *refused])
    # Of two days, and by a line of white space of more than a task's size: several tasks wherever there are
    # any.
    later = [event(number, day=NEXT_DAY) for number in (300, 301, 300)]
    pipeline.land([later[0], " " * TASK_BYTES, *later[1:], "bad"], day=NEXT_DAY)
    (pipeline.landing / "_reference").mkdir()
    (pipeline.landing / "_reference" / "customers.csv").write_text(
        "customer_id,customer_region\ncustomer-7,emea\n", "utf-8"
    )
    pipeline.run([DAY, NEXT_DAY])
    return pipeline


def tables(pipeline: Pipeline) -> dict[str, list[str]]:
    return {
        contract.name: sorted(
            repr({name: value for name, value in row.items() if name not in DIFFERS})
            for row in pipeline.rows(contract.name)
        )
        for contract in ALL_TABLES
        if contract not in (CAPTURE_STATES, EFFECTS, REPLAYS)  # written without Spark
    }


def running_on(engine: str, module: str, *arguments: object) -> subprocess.Popen[str]:
    """A module of this package on an engine, in a process of its own."""
    home = Path(os.environ["ETL_ASSETS_HOME"])
    home.mkdir()
    # Spark's own defaults are for more than two cores.
    config = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"}
    (home / "platform.yaml").write_text(yaml.safe_dump({"spark": {"config": config}}), "utf-8")
    return subprocess.Popen(
        [sys.executable, "-m", f"etl_assets_tests.spark.{module}", *map(str, arguments)],
        env={**os.environ, "ETL_ASSETS_SPARK_MASTER": engine},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_well(run: subprocess.Popen[str]) -> str:
    """What the process printed."""
    try:
        printed, said = run.communicate(timeout=400)
    finally:
        run.kill()
    assert run.returncode == 0, said[-6_000:]
    return printed


def not_here() -> NoReturn:
    pytest.fail("it runs elsewhere")


def tasks_shared_out(printed: str) -> int:
    """How often a run of `run_on_engine` shared out tasks among workers."""
    return int(printed.split()[-1])


@pytest.fixture(scope="module")
def connect(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """Address of a Spark Connect server."""
    with connect_server(tmp_path_factory.mktemp("connect")) as address:
        yield address


@pytest.fixture(params=[pytest.param("standalone cluster", marks=pytest.mark.full), "Spark Connect"])
def other_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """Address of an engine outside of the process that works with it."""
    if request.param == "Spark Connect":
        yield request.getfixturevalue("connect")
        return
    with standalone_cluster(tmp_path / "engine", workers=2) as cluster:
        yield cluster.master


def test_the_tables_are_the_same_on_another_engine(local: Pipeline, tmp_path: Path, other_engine: str):
    printed = end_well(running_on(other_engine, "run_on_engine", tmp_path / "data", local.landing))
    assert tasks_shared_out(printed) == 3, "lines, exceptions and rows of raw_events"
    there = Pipeline(root=tmp_path / "data", landing=local.landing, session=local.session)
    expected = tables(local)
    assert all(expected.values())
    assert tables(there) == expected


@pytest.mark.full
def test_the_driver_of_a_cluster_maps_the_archive_of_classes(tmp_path: Path):
    archive = archive_file(find_java(), delta_jars())
    if not archive.is_file():
        pytest.skip(f"{archive} is not there: `make setup` records it")
    pipeline = Pipeline(root=tmp_path / "data", landing=tmp_path / "landing", session=not_here)
    pipeline.land([event(1)])
    with standalone_cluster(tmp_path / "engine", workers=1) as cluster:
        run = running_on(cluster.master, "run_on_engine", pipeline.root, pipeline.landing, "raw_events")
        seen, before = parents_of_who_maps(archive), set[int]()
        # A JVM maps the archive and then finds out whether it holds: it has to be there a second later as
        # well.
        while run.poll() is None and run.pid not in seen & before:
            time.sleep(1)
            seen, before = parents_of_who_maps(archive), seen
        end_well(run)
    assert run.pid in seen & before


def test_errors_of_a_connect_server_mean_what_they_mean_in_this_process(connect: str, tmp_path: Path):
    said = json.loads(end_well(running_on(connect, "errors_on_engine", tmp_path)))
    assert said == {
        "days": {
            "failed": {"2026-01-02": "NumberFormatException"},
            "stored": ["2026-01-01", "2026-01-03"],
        },
        "overtaken": {"error": "MetadataChangedException", "decision": "retry"},
        "renewed": [7],
    }


@pytest.mark.full
def test_a_worker_that_is_lost_in_the_middle_of_a_bulk_run_costs_no_event_and_doubles_none(tmp_path: Path):
    root, landing = tmp_path / "data", tmp_path / "landing"
    pipeline = Pipeline(root=root, landing=landing, session=not_here)
    files, events = 8, 3_000
    # A line of white space is no record, and makes of each file a task of its own: more than the workers do
    # at once.
    filler = " " * TASK_BYTES
    for file in range(files):
        lines = [event(file * events + number) for number in range(events)]
        pipeline.land([*lines, filler], name=f"{file:02}.jsonl")
    with standalone_cluster(tmp_path / "engine", workers=2) as cluster:
        run = running_on(cluster.master, "run_on_engine", root, landing, "raw_events", "normalized_orders")
        staged = pipeline.domain.staging_path("raw_events")
        deadline = time.monotonic() + 200
        while not any(staged.rglob("events-*.parquet")):
            assert run.poll() is None, run.communicate()[1][-6_000:]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        cluster.kill_worker(0)
        assert tasks_shared_out(end_well(run))
    rows = pipeline.rows("raw_events", order_by="offset")
    assert [row["offset"] for row in rows] == list(range(files * events))
    assert [row["event_id"] for row in rows] == [f"event-{number}" for number in range(files * events)]
    orders = pipeline.rows("normalized_orders", order_by="raw_offset")
    assert [row["raw_offset"] for row in orders] == list(range(files * events))

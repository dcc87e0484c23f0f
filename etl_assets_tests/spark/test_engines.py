"""One setting moves the work to another engine, and the tables come out the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from etl_assets.contracts.tables import ALL_TABLES, EFFECTS, REPLAYS
from etl_assets_tests.pipeline import DAY, Pipeline, event
from etl_assets_tests.spark.engines import connect_server, standalone_cluster

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
    (pipeline.landing / "_reference").mkdir()
    (pipeline.landing / "_reference" / "customers.csv").write_text(
        "customer_id,customer_region\ncustomer-7,emea\n", "utf-8"
    )
    pipeline.run([DAY])
    return pipeline


def tables(pipeline: Pipeline) -> dict[str, list[str]]:
    return {
        contract.name: sorted(
            repr({name: value for name, value in row.items() if name not in DIFFERS})
            for row in pipeline.rows(contract.name)
        )
        for contract in ALL_TABLES
        if contract not in (EFFECTS, REPLAYS)  # written without Spark
    }


def run_on(engine: str, root: Path, landing: Path) -> None:
    home = Path(os.environ["ETL_ASSETS_HOME"])
    home.mkdir()
    # Spark's own defaults are for more than two cores.
    config = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"}
    (home / "platform.yaml").write_text(yaml.safe_dump({"spark": {"config": config}}), "utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "etl_assets_tests.spark.run_on_engine", str(root), str(landing)],
        env={**os.environ, "ETL_ASSETS_SPARK_MASTER": engine},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-6_000:]


@pytest.mark.parametrize(
    "other_engine",
    [
        pytest.param(lambda folder: standalone_cluster(folder, workers=2), id="standalone cluster"),
        pytest.param(connect_server, id="Spark Connect"),
    ],
)
def test_the_tables_are_the_same_on_another_engine(
    local: Pipeline,
    tmp_path: Path,
    other_engine: Callable[[Path], contextlib.AbstractContextManager[str]],
):
    with other_engine(tmp_path / "engine") as address:
        run_on(address, tmp_path / "data", local.landing)
    there = Pipeline(root=tmp_path / "data", landing=local.landing, session=local.session)
    expected = tables(local)
    assert all(expected.values())
    assert tables(there) == expected

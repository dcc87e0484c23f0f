"""One setting moves the work to another engine, and the tables come out the same."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etl_assets.contracts.tables import ALL_TABLES
from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline, event
from etl_assets_tests.spark.engines import connect_server, standalone_cluster

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

DIFFERS = {"ingested_at", "failed_at", "committed_at", "recorded_at"}
"""Columns that hold the time of a run."""


def land(pipeline: Pipeline) -> None:
    pipeline.land([event(n) for n in range(200)] + ["bad", event(1), event(2, event_type="OrderLost")])
    paid = [event(n, event_id=f"paid-{n}", event_type="PaymentProcessed", day=NEXT_DAY) for n in range(100)]
    pipeline.land([*paid, event(3, payload={"customer_id": "c", "amount": "-1"})], day=NEXT_DAY)
    reference = pipeline.landing / "_reference"
    reference.mkdir()
    (reference / "customers.csv").write_text("customer_id,customer_region\ncustomer-7,emea\n", "utf-8")


def tables(pipeline: Pipeline) -> dict[str, list[str]]:
    return {
        contract.name: sorted(
            repr({name: value for name, value in row.items() if name not in DIFFERS})
            for row in pipeline.rows(contract.name)
        )
        for contract in ALL_TABLES
    }


def run_on(engine: str, root: Path, landing: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "etl_assets_tests.spark.run_on_engine", str(root), str(landing)],
        env={**os.environ, "ETL_ASSETS_SPARK_MASTER": engine},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr[-6_000:]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(lambda folder: standalone_cluster(folder, workers=2), id="standalone cluster"),
        pytest.param(connect_server, id="Spark Connect"),
    ],
)
def test_the_tables_are_the_same_on_another_engine(
    pipeline: Pipeline, tmp_path: Path, engine: Callable[[Path], contextlib.AbstractContextManager[str]]
):
    land(pipeline)
    for day in (DAY, NEXT_DAY):
        pipeline.run([day])
    with engine(tmp_path / "engine") as address:
        run_on(address, tmp_path / "other", pipeline.landing)
    other = Pipeline(root=tmp_path / "other", landing=pipeline.landing, session=pipeline.session)
    expected = tables(pipeline)
    assert all(expected.values())
    assert tables(other) == expected

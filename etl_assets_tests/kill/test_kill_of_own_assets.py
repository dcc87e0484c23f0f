"""A user's asset whose process is killed around its commit: the table has the rows from before or those of
the run, and never a mixture.

Each asset dies at another failpoint; one fresh process runs all of them again.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from deltalake import DeltaTable

from etl_assets.failpoints import Failpoint
from etl_assets_tests.kill import own_assets
from etl_assets_tests.kill.dying_run import Gateway

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kill,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

KILLED_AT = {
    "replaced_before": Failpoint.TABLE_BEFORE_COMMIT,
    "replaced_during": Failpoint.TABLE_DURING_COMMIT,
    "replaced_after": Failpoint.TABLE_AFTER_COMMIT,
    "appended_after": Failpoint.TABLE_AFTER_SYNC,
    "applied_between": Failpoint.TABLE_AFTER_COMMIT,
}
"""Of the changes it is the commit of their tombstones."""
OLD, NEW = "old-1 old-2", "new-1 new-2 new-3"
HAS_COMMITTED = {"replaced_after", "appended_after"}


def rows(root: Path, name: str) -> list[tuple[str, str]]:
    (folder,) = (root / "tables" / name).glob("g*")
    found = DeltaTable(str(folder)).to_pyarrow_dataset().to_table().to_pylist()
    return sorted((row["day"], row["id"]) for row in found)


def days_of(name: str) -> list[str]:
    """The days that an asset has had before; one has a day that its run is not for."""
    return [own_assets.DAY, own_assets.OTHER_DAY] if name == "replaced_after" else [own_assets.DAY]


def stored(name: str, rows: str) -> list[tuple[str, str]]:
    """What is in a table with these rows in the day of the run."""
    days = dict.fromkeys(days_of(name), OLD) | {own_assets.DAY: rows}
    return sorted((day, row) for day, names in days.items() for row in names.split())


def test_a_killed_run_that_is_executed_again_has_stored_its_rows_once(engine, spark, tmp_path, monkeypatch):
    environment = {
        own_assets.ROOT: str(tmp_path / "data"),
        own_assets.ROWS: OLD,
        "DAGSTER_HOME": str(tmp_path / "dagster"),
    }
    (tmp_path / "dagster").mkdir()
    (tmp_path / "dagster" / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with dg.DagsterInstance.get() as instance:
        for name in own_assets.NAMES:
            for day in days_of(name):
                job = own_assets.job_of(name, engine)
                assert job.execute_in_process(instance=instance, partition_key=day).success

    environment[own_assets.ROWS] = NEW
    root = Path(environment[own_assets.ROOT])
    after = {
        name: stored(name, f"{OLD} {NEW}" if name.startswith("appended") else NEW)
        for name in own_assets.NAMES
    }
    processes: Any = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(
        ["etl_assets_tests.kill.own_assets", "pyspark.sql.functions", "deltalake"]
    )
    for name, failpoint in KILLED_AT.items():
        table = f"{name}_tombstones" if name.startswith("applied") else name
        with_its_jvm = failpoint is Failpoint.TABLE_DURING_COMMIT
        process = processes.Process(
            target=own_assets.run,
            args=(environment, name, f"{failpoint}@{table}", None if with_its_jvm else Gateway.of(spark)),
        )
        process.start()
        process.join(200)
        assert process.exitcode == -9, f"{name} did not die at {failpoint}: exit code {process.exitcode}"
        assert rows(root, name) == (after[name] if name in HAS_COMMITTED else stored(name, OLD))

    again = subprocess.run(
        [sys.executable, "-m", "etl_assets_tests.kill.own_assets"],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert again.returncode == 0, again.stderr[-5000:]
    assert {name: rows(root, name) for name in own_assets.NAMES} == after
    with dg.DagsterInstance.get() as instance:
        for name in own_assets.NAMES:
            event = instance.get_latest_materialization_event(dg.AssetKey(name))
            assert event is not None
            assert event.asset_materialization is not None
            notes = event.asset_materialization.metadata.get("notes")
            assert (notes is not None) == (name == "appended_after"), name

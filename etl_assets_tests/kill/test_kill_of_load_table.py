"""A load of a declared pipeline killed at each failpoint, and run again: the tables of a load that nobody killed."""

from __future__ import annotations

import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.kill import dying_load
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.reference.declared_pipeline import Declared

pytestmark = [pytest.mark.spark, pytest.mark.kill]
FAILPOINTS = [
    f"{Failpoint.STAGE_AFTER_WRITE}@people",
    f"{Failpoint.EXCEPTIONS_BEFORE_COMMIT}@people",
    f"{Failpoint.TABLE_BEFORE_COMMIT}@people_rejects",
    f"{Failpoint.TABLE_AFTER_COMMIT}@people_rejects",
    f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@people",
    f"{Failpoint.TABLE_BEFORE_COMMIT}@people",
    f"{Failpoint.TABLE_AFTER_COMMIT}@people",
    f"{Failpoint.TABLE_AFTER_SYNC}@people",
]
RECORDS = (
    [{"id": "a", "age": 1, "updated_at": "2026-01-05T10:00:00Z"}, {"id": "b", "age": "much"}, {"id": "c", "age": 3}],
    [{"id": "a", "age": 4, "updated_at": "2026-01-05T11:00:00Z"}, {"id": None}, {"id": "d", "age": 5}],
)  # fmt: skip
"""Two batches. The second one updates a row, inserts one and has a reject."""


@pytest.fixture(scope="module")
def loaded_once(engine, tmp_path_factory: pytest.TempPathFactory) -> Declared:
    """A pipeline that has loaded its first batch and not its second."""
    session = engine.spark_session.newSession()
    pipeline = Declared(root=tmp_path_factory.mktemp("loaded") / "data", session=lambda: session)
    pipeline.accept(RECORDS[0])
    pipeline.load()
    pipeline.accept(RECORDS[1])
    return pipeline


@pytest.fixture(scope="module")
def undisturbed(loaded_once: Declared, tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the tables hold after a load that nobody killed."""
    pipeline = copied(loaded_once, tmp_path_factory.mktemp("undisturbed"))
    pipeline.load()
    return contents(pipeline)


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that begin with everything imported, and with no JVM or thread of this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pyspark.sql.functions", "deltalake", "pyarrow", "etl_assets_tests.kill.dying_load"]
    )
    return context


def copied(pipeline: Declared, folder: Path) -> Declared:
    return replace(pipeline, root=Path(shutil.copytree(pipeline.root, folder / "data")))


def contents(pipeline: Declared) -> list[Any]:
    rejects = [
        {name: value for name, value in row.items() if name != "failed_at"}
        for row in pipeline.rows(pipeline.tables.rejects.name, "original_offset")
    ]
    return [pipeline.rows(), rejects]


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_after_a_kill_the_next_load_completes_the_work_once(
    loaded_once, undisturbed, processes, spark, tmp_path, failpoint
):
    pipeline = copied(loaded_once, tmp_path)
    kill(processes, pipeline, failpoint, Gateway.of(spark))
    pipeline.load()
    assert contents(pipeline) == undisturbed
    assert pipeline.load().commits == 0


def test_after_a_kill_in_the_middle_of_a_merge_the_next_load_completes_the_work_once(
    loaded_once, undisturbed, processes, tmp_path
):
    pipeline = copied(loaded_once, tmp_path)
    kill(processes, pipeline, f"{Failpoint.TABLE_DURING_COMMIT}@people", None)
    pipeline.load()
    assert contents(pipeline) == undisturbed


def kill(processes: Any, pipeline: Declared, failpoint: str, gateway: Gateway | None) -> None:
    process = processes.Process(target=dying_load.load, args=(pipeline.root, failpoint, gateway))
    process.start()
    process.join(200)
    assert process.exitcode == -9, f"the process did not die at {failpoint}: exit code {process.exitcode}"

"""The ingest of a declared pipeline's files killed at each failpoint, and run again: every record has one
outcome.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.failpoints import Failpoint
from etl_assets_tests.commands.home import Home
from etl_assets_tests.kill import dying_load
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.reference.declared_pipeline import DAY

pytestmark = [pytest.mark.spark, pytest.mark.kill]
SOURCE = "people_source"
REJECTS = f"{SOURCE}_rejects"
FAILPOINTS = [
    f"{Failpoint.STAGE_AFTER_WRITE}@{SOURCE}",
    f"{Failpoint.EXCEPTIONS_BEFORE_COMMIT}@{SOURCE}",
    f"{Failpoint.TABLE_BEFORE_COMMIT}@{REJECTS}",
    f"{Failpoint.TABLE_DURING_COMMIT}@{REJECTS}",
    f"{Failpoint.TABLE_AFTER_COMMIT}@{REJECTS}",
    f"{Failpoint.TABLE_AFTER_SYNC}@{REJECTS}",
    f"{Failpoint.EXCEPTIONS_AFTER_COMMIT}@{SOURCE}",
    f"{Failpoint.TABLE_BEFORE_COMMIT}@{SOURCE}",
    f"{Failpoint.TABLE_DURING_COMMIT}@{SOURCE}",
    f"{Failpoint.TABLE_AFTER_COMMIT}@{SOURCE}",
    f"{Failpoint.TABLE_AFTER_SYNC}@{SOURCE}",
    Failpoint.LEDGER_BEFORE_WRITE.value,
    Failpoint.LEDGER_AFTER_WRITE.value,
]
PEOPLE = {
    "name": "people",
    "source": {"type": "files", "path": "in/{day}/*.jsonl", "id": ["id"], "settle_seconds": 0},
    "columns": {"id": "string", "age": "int"},
    "table": {"keys": ["id"]},
}
FILES = (
    [{"id": "a", "age": 1}, {"id": "b", "age": 2}, {"age": 3}],
    [{"id": "c", "age": 4}, {"id": "a", "age": 1}, {"id": "b", "age": 9}, {"id": None}, {"id": "d",
        "age": 5}],
)  # fmt: skip
"""Two batches. The second one has two new records, a duplicate, a conflict and one without an id."""


def land(home: Home, number: int) -> None:
    folder = home.path / "in" / DAY.isoformat()
    folder.mkdir(parents=True, exist_ok=True)
    content = "".join(json.dumps(record) + "\n" for record in FILES[number])
    (folder / f"{number}.jsonl").write_text(content, "utf-8")


@pytest.fixture(scope="module")
def ingested_once(engine, tmp_path_factory: pytest.TempPathFactory) -> Home:
    """An installation that has ingested its first file and not its second."""
    home = Home(path=tmp_path_factory.mktemp("ingested") / "home").begin(start_date=DAY.isoformat())
    (home.path / "pipelines").mkdir()
    (home.path / "pipelines" / "people.yaml").write_text(json.dumps(PEOPLE), "utf-8")
    land(home, 0)
    dying_load.accept_files(home.path, SOURCE, engine.spark_session.newSession())
    land(home, 1)
    return home


@pytest.fixture(scope="module")
def processes() -> Any:
    """Processes that begin with everything imported, and with no JVM or thread of this one."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["pyspark.sql.functions", "deltalake", "pyarrow", "etl_assets_tests.kill.dying_load"]
    )
    return context


def contents(home: Home) -> tuple[list[Any], list[Any]]:
    """Records with their offsets, and what became of the others."""
    accepted = sorted((row["offset"], row["record_id"], row["record"]) for row in home.rows(SOURCE))
    others = sorted(
        (row["source_position"], row["outcome"], str(row["reason"]), str(row["original_offset"]))
        for row in home.rows(REJECTS)
    )
    return accepted, others


EXPECTED = (
    [
        (0, "a", '{"age":1,"id":"a"}'),
        (1, "b", '{"age":2,"id":"b"}'),
        (2, "c", '{"age":4,"id":"c"}'),
        (3, "d", '{"age":5,"id":"d"}'),
    ],
    [
        (f"{DAY}/0.jsonl:3", "rejected", "MissingField", "None"),
        (f"{DAY}/1.jsonl:2", "duplicate", "None", "0"),
        (f"{DAY}/1.jsonl:3", "conflict", "FingerprintConflict", "1"),
        (f"{DAY}/1.jsonl:4", "rejected", "MissingField", "None"),
    ],
)


@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_after_a_kill_the_next_run_gives_every_record_one_outcome(
    ingested_once, processes, spark, tmp_path, failpoint
):
    home = Home(path=Path(shutil.copytree(ingested_once.path, tmp_path / "home")))
    kill(processes, home, failpoint, Gateway.of(spark))
    dying_load.accept_files(home.path, SOURCE, spark)
    assert contents(home) == EXPECTED
    version = dying_load.accept_files(home.path, SOURCE, spark).version
    assert version == 2, "the first run made the table's rows, and one of the others the second file's"


def kill(processes: Any, home: Home, failpoint: str, gateway: Gateway | None) -> None:
    process = processes.Process(target=dying_load.ingest, args=(home.path, SOURCE, failpoint, gateway))
    process.start()
    process.join(200)
    assert process.exitcode == -9, f"the process did not die at {failpoint}: exit code {process.exitcode}"

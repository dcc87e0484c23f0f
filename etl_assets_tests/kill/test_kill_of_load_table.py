"""A load of a declared pipeline killed at each failpoint, and run again: the tables of a load that nobody
killed.
"""

from __future__ import annotations

import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etl_assets.delta.write.create import ensure_table
from etl_assets.failpoints import Failpoint
from etl_assets_tests.kill import dying_load
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.reference.changes import Change, table_of, tombstones_of
from etl_assets_tests.reference.declared_pipeline import (
    CHANGES,
    PEOPLE,
    Declared,
    declared,
    delete,
    truncate,
    upsert,
)

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
IN_TURN = [FAILPOINTS[:-1], FAILPOINTS[-1:]]
"""Loads that are killed at one after the other. Behind the last commit no later failpoint is reached."""
RECORDS = (
    [{"id": "a", "age": 1, "updated_at": "2026-01-05T10:00:00Z"}, {"id": "b", "age": "much"}, {"id": "c",
        "age": 3}],
    [{"id": "a", "age": 4, "updated_at": "2026-01-05T11:00:00Z"}, {"id": None}, {"id": "d", "age": 5}],
)  # fmt: skip
"""Two batches. The second one updates a row, inserts one and has a reject."""


CHANGE_FAILPOINTS = [
    *(
        f"{each}@{table}"
        for table in ("people_tombstones", "people")
        for each in (Failpoint.TABLE_BEFORE_COMMIT, Failpoint.TABLE_AFTER_COMMIT, Failpoint.TABLE_AFTER_SYNC)
    ),
]
CHANGES_IN_TURN = [
    [each for each in CHANGE_FAILPOINTS if not each.startswith(Failpoint.TABLE_AFTER_SYNC)],
    [each for each in CHANGE_FAILPOINTS if each.startswith(Failpoint.TABLE_AFTER_SYNC)],
]
CHANGES_OF = (
    [upsert("a", 1), upsert("b", 1), upsert("c", 5), delete("d", 3), upsert("e", 9)],
    [delete("a", 4), upsert("b", 3, 2), upsert("c", 4), upsert("d", 2), delete("e", 8), truncate(2),
        delete("b", 2), delete("c", 6)],
)  # fmt: skip
"""Two batches of changes. Of the second one each has an effect, or would have one if a tombstone were
missing.
"""


def singly(failpoints: list[str]) -> list[Any]:
    """A kill at each, of a load of its own: the long form."""
    return [pytest.param([each], marks=pytest.mark.full) for each in failpoints]


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


@pytest.fixture(scope="module")
def changed_once(engine, tmp_path_factory: pytest.TempPathFactory) -> Declared:
    """A pipeline that has applied its first batch of changes and not its second."""
    session = engine.spark_session.newSession()
    root = tmp_path_factory.mktemp("changed") / "data"
    pipeline = Declared(root=root, session=lambda: session, spec=declared(**CHANGES))
    pipeline.accept(CHANGES_OF[0])
    pipeline.load()
    pipeline.accept(CHANGES_OF[1])
    return pipeline


def copied(pipeline: Declared, folder: Path) -> Declared:
    return replace(pipeline, root=Path(shutil.copytree(pipeline.root, folder / "data")))


def contents(pipeline: Declared) -> list[Any]:
    rejects = [
        {name: value for name, value in row.items() if name != "failed_at"}
        for row in pipeline.rows(pipeline.tables.rejects.name, "original_offset")
    ]
    return [pipeline.rows(), rejects]


@pytest.mark.parametrize("failpoints", [*IN_TURN, *singly(FAILPOINTS[:-1])], ids="+".join)
def test_after_a_kill_the_next_load_completes_the_work_once(
    loaded_once, undisturbed, processes, spark, tmp_path, failpoints
):
    pipeline = copied(loaded_once, tmp_path)
    for failpoint in failpoints:
        kill(processes, pipeline, failpoint, Gateway.of(spark))
    pipeline.load()
    assert contents(pipeline) == undisturbed
    assert pipeline.load().commits == 0


COLUMN_FAILPOINTS = [
    f"{point}@people"
    for point in (Failpoint.TABLE_BEFORE_COMMIT, Failpoint.TABLE_AFTER_COMMIT, Failpoint.TABLE_AFTER_SYNC)
]
"""The first commit of a load into a table whose columns are not the declared ones is that of its columns."""


@pytest.fixture(scope="module")
def with_former_columns(request, engine, tmp_path_factory: pytest.TempPathFactory) -> Declared:
    """A pipeline whose table has the columns of an earlier declaration: one without rows, one with a row
    and a column less.
    """
    session = engine.spark_session.newSession()
    root = tmp_path_factory.mktemp(request.param) / "data"
    if request.param == "replaced":
        former = declared(
            columns={"id": "string", "age": "string", "height": "double"}, table={"keys": ["id"]}
        )
    else:
        kept = {name: column for name, column in PEOPLE["columns"].items() if name != "country"}
        former = declared(columns=kept)
    before = Declared(root=root, session=lambda: session, spec=former)
    pipeline = Declared(root=root, session=lambda: session)
    if request.param == "replaced":
        ensure_table(before.context.table("people"))
    else:
        before.accept(RECORDS[0])
        before.load()
    pipeline.accept(RECORDS[1])
    return pipeline


@pytest.mark.parametrize(
    ("with_former_columns", "failpoint"),
    [
        *(("replaced", each) for each in COLUMN_FAILPOINTS),
        ("added", f"{Failpoint.TABLE_AFTER_COMMIT}@people"),
        *(
            pytest.param("added", f"{each}@people", marks=pytest.mark.full)
            for each in (Failpoint.TABLE_BEFORE_COMMIT, Failpoint.TABLE_AFTER_SYNC)
        ),
    ],
    indirect=["with_former_columns"],
)
def test_after_a_kill_around_a_change_of_columns_the_next_load_completes_the_work_once(
    with_former_columns, processes, spark, tmp_path, failpoint
):
    undisturbed, pipeline = (
        copied(with_former_columns, tmp_path / name) for name in ("undisturbed", "killed")
    )
    undisturbed.load()
    before = pipeline.context.table("people").version()
    kill(processes, pipeline, failpoint, Gateway.of(spark))
    after = pipeline.context.table("people").version()
    assert after - before == (not failpoint.startswith(Failpoint.TABLE_BEFORE_COMMIT)), "only the columns"
    pipeline.load()
    assert contents(pipeline) == contents(undisturbed)
    assert pipeline.load().commits == 0


def test_after_a_kill_in_the_middle_of_a_merge_the_next_load_completes_the_work_once(
    loaded_once, undisturbed, processes, tmp_path
):
    pipeline = copied(loaded_once, tmp_path)
    kill(processes, pipeline, f"{Failpoint.TABLE_DURING_COMMIT}@people", None)
    pipeline.load()
    assert contents(pipeline) == undisturbed


@pytest.mark.parametrize("failpoints", [*CHANGES_IN_TURN, *singly(CHANGE_FAILPOINTS)], ids="+".join)
def test_after_a_kill_between_tombstones_and_rows_the_next_load_applies_every_change(
    changed_once, processes, spark, tmp_path, failpoints
):
    pipeline = copied(changed_once, tmp_path)
    for failpoint in failpoints:
        kill(processes, pipeline, failpoint, Gateway.of(spark))
    expect_all_applied(pipeline)


@pytest.mark.parametrize("table", ["people_tombstones", pytest.param("people", marks=pytest.mark.full)])
def test_after_a_kill_in_the_middle_of_a_merge_the_next_load_applies_every_change(
    changed_once, processes, tmp_path, table
):
    pipeline = copied(changed_once, tmp_path)
    kill(processes, pipeline, f"{Failpoint.TABLE_DURING_COMMIT}@{table}", None)
    expect_all_applied(pipeline)


def expect_all_applied(pipeline: Declared) -> None:
    pipeline.load()
    changes = [
        Change(kind=each["op"], key=each.get("id"), place=(each["changed_at"], offset), value=each.get("age"))
        for offset, each in enumerate([*CHANGES_OF[0], *CHANGES_OF[1]])
    ]
    assert {row["id"]: (row["age"], (row["changed_at"], row["_offset"])) for row in pipeline.rows()} == {
        key: (each.value, each.place) for key, each in table_of(changes).items()
    }
    kept = {row["id"]: (row["changed_at"], row["_offset"]) for row in pipeline.rows("people_tombstones")}
    assert kept == tombstones_of(changes)
    assert pipeline.load().commits == 0


def kill(processes: Any, pipeline: Declared, failpoint: str, gateway: Gateway | None) -> None:
    process = processes.Process(
        target=dying_load.load, args=(pipeline.root, pipeline.spec, failpoint, gateway)
    )
    process.start()
    process.join(200)
    assert process.exitcode == -9, f"the process did not die at {failpoint}: exit code {process.exitcode}"

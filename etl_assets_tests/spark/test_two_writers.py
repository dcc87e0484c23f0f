"""Two processes that write one table at once lose nothing."""

from __future__ import annotations

import multiprocessing
from collections import Counter

import pytest
from deltalake import DeltaTable

from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.write import Transaction, Write
from etl_assets.error_policy import Decision, decide
from etl_assets.errors import CommitConflict
from etl_assets_tests.kill.dying_run import Gateway
from etl_assets_tests.spark import frame_writer, writer_process

pytestmark = pytest.mark.spark

COMMITS = 12
CUSTOMERS = "customer_id STRING, customer_region STRING"


@pytest.mark.slow
def test_commits_of_two_processes_follow_one_another_and_none_is_lost(spark, pipeline):
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    other = context.Process(target=writer_process.run, args=(pipeline.root, "other", COMMITS, ready, go))
    other.start()
    try:
        assert ready.wait(200)
        go.set()
        writer_process.append(spark, pipeline.root, "this", COMMITS)
        other.join(200)
    finally:
        other.kill()
        other.join()
    assert other.exitcode == 0
    table = writer_process.table_in(pipeline.root)
    names = sorted(path.stem for path in (table.path / "_delta_log").glob("*.json"))
    assert names == [f"{version:020d}" for version in range(2 * COMMITS + 1)]
    assert sorted(row["customer_id"] for row in pipeline.rows("customers")) == sorted(
        f"{writer}-{number}" for writer in ("other", "this") for number in range(COMMITS)
    )


def test_two_processes_that_replace_and_append_at_once_leave_rows_of_one_and_of_both(spark, tmp_path):
    context = multiprocessing.get_context("spawn")
    ready, go = context.Event(), context.Event()
    other = context.Process(
        target=frame_writer.run, args=(tmp_path, "other", 3, ready, go, Gateway.of(spark))
    )
    other.start()
    try:
        assert ready.wait(200)
        go.set()
        frame_writer.write(spark, tmp_path, "this", 3)
        other.join(200)
    finally:
        other.kill()
        other.join()
    assert other.exitcode == 0
    writes = {f"{writer}-{number}" for writer in ("other", "this") for number in range(3)}

    replaced = frame_writer.table_in(tmp_path, "replace")
    contents = [
        Counter(
            row["id"]
            for row in DeltaTable(str(replaced.path), version=version).to_pyarrow_table().to_pylist()
        )
        for version in range(1, replaced.version() + 1)
    ]
    assert all(len(each) == 1 and each.total() == frame_writer.ROWS for each in contents), contents
    assert {row for each in contents for row in each} == writes
    appended = frame_writer.table_in(tmp_path, "append")
    rows = Counter(row["id"] for row in DeltaTable(str(appended.path)).to_pyarrow_table().to_pylist())
    assert rows == Counter(dict.fromkeys(writes, frame_writer.ROWS))


def test_a_write_planned_on_an_older_version_writes_nothing_and_its_repetition_is_a_no_op(spark, pipeline):
    table = pipeline.context.table("customers")
    base = ensure_table(table)

    def write(name: str, app_id: str) -> Write:
        rows = spark.createDataFrame([(name, "x")], CUSTOMERS)
        return Write(rows=rows, base_version=base, transaction=Transaction(app_id=app_id, version=1))

    first = commit(table, write("first", "a"))
    with pytest.raises(
        CommitConflict, match="customers is at version 1, the batch was planned on 0"
    ) as conflict:
        commit(table, write("second", "b"))
    assert (conflict.value.version, conflict.value.base_version) == (1, 0)
    again = commit(table, write("first", "a"))
    assert (again.repeated, again.version, again.inserted) == (True, first.version, 0)
    assert [row["customer_id"] for row in pipeline.rows("customers")] == ["first"]
    left = [
        key
        for key in ("txnAppId", "txnVersion")
        if spark.conf.get(f"spark.databricks.delta.write.{key}", None)
    ]
    assert left == [], "a transaction id left in the session would make the next write a silent no-op"


def test_a_conflict_that_delta_finds_is_tried_again(spark):
    jvm = spark._jvm
    found = jvm.io.delta.exceptions.MetadataChangedException("another commit came in between")
    with pytest.raises(Exception, match="came in between") as error:
        jvm.scala.util.Failure(found).get()
    assert decide(error.value) is Decision.RETRY

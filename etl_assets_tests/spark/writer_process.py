"""One of several writers of a table: appends row after row, planning again whenever another commit came in
between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etl_assets.delta.table import Table
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.write import Write
from etl_assets.errors import CommitConflict
from etl_assets.steps.step import platform_table
from etl_assets_tests.reference.tables import local_domain


def table_in(root: Path) -> Table:
    """The table that is written."""
    return platform_table("customers", local_domain(root))


def append(spark: Any, root: Path, writer: str, commits: int) -> int:
    """Append that many rows in as many commits; returns how often another writer was faster."""
    table, conflicts = table_in(root), 0
    for number in range(commits):
        rows = spark.createDataFrame(
            [(f"{writer}-{number}", writer)], "customer_id STRING, customer_region STRING"
        )
        while True:
            try:
                commit(table, Write(rows=rows, base_version=ensure_table(table)))
                break
            except CommitConflict:
                conflicts += 1
    return conflicts


def run(root: Path, writer: str, commits: int, ready: Any, go: Any) -> None:
    """The same in a process and on a JVM of its own, once `go` is set."""
    from etl_assets_tests.kill.dying_run import own_session

    spark = own_session()
    spark.range(1).collect()
    ready.set()
    go.wait()
    append(spark, root, writer, commits)
    spark.stop()

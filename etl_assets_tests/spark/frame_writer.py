"""One of several processes that write users' tables at once, on the engine of the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.table import Table
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.io_managers.frame_step import FrameStep
from etl_assets.placement.domains import FailureDomain
from etl_assets_tests.kill.dying_run import Gateway, attached_session

ROWS, DAY = 3, "2026-01-01"


def table_in(root: Path, name: str) -> Table:
    """A user's table."""
    return Table(name=name, domain=FailureDomain(name="local", root=root))


def write(spark: Any, root: Path, writer: str, times: int) -> None:
    """Replace the only day of one table and append to another, again and again."""
    for number in range(times):
        rows = spark.createDataFrame([(f"{writer}-{number}", DAY)] * ROWS, "id STRING, day STRING")
        for mode in (WriteMode.REPLACE, WriteMode.APPEND):
            step = FrameStep(
                rows=rows,
                table=table_in(root, str(mode)),
                spec=WriteSpec(write_mode=mode, delta_partition="day"),
                all_keys=(DAY,),
                partitions={DAY: PartitionFilter.of(DAY)},
                run_id=f"{writer}-{number}",
            )
            step.run([DAY])


def run(root: Path, writer: str, times: int, ready: Any, go: Any, gateway: Gateway) -> None:
    """The same in a process of its own, once `go` is set."""
    spark = attached_session(gateway)
    ready.set()
    go.wait()
    write(spark, root, writer, times)

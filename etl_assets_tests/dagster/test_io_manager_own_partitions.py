"""Assets that read their own earlier partitions, with Dagster's name for the column of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pytest
from pyspark.sql import DataFrame

from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets_tests.dagster.io_manager_lab import Lab

pytestmark = [
    pytest.mark.spark,
    # Dagster calls its own deprecated property when it sets up any ConfigurableIOManager.
    pytest.mark.filterwarnings("ignore:InitResourceContext.dagster_run is deprecated"),
]

DAYS = ("2026-01-01", "2026-01-02", "2026-01-03")
BY_DAY = {"delta_upsert/write_mode": "replace", "partition_expr": "day"}
"""By hand, as users of Dagster's own IO managers write it."""
COLUMNS = "day DATE, total BIGINT"


def counting(lab: Lab, metadata: dict[str, Any], annotation: Any, last: list[int]) -> dg.AssetsDefinition:
    """An asset that adds one to the total of the day before."""

    def mine(context: Any, yesterday: Any) -> Any:
        last.append(total_of(yesterday))
        return lab.spark.sql(f"SELECT DATE'{context.partition_key}' AS day, {last[-1] + 1}L AS total")

    mine.__annotations__ = {"context": dg.AssetExecutionContext, "yesterday": annotation, "return": Any}
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    return dg.asset(
        partitions_def=dg.DailyPartitionsDefinition(start_date=DAYS[0]),
        ins={"yesterday": dg.AssetIn("mine", partition_mapping=before)},
        metadata=metadata,
        io_manager_key="delta",
    )(mine)


def total_of(frame: Any) -> int:
    if frame is None:
        return 0
    if isinstance(frame, pl.DataFrame | pd.DataFrame):
        return int(frame["total"].sum())
    return sum(row["total"] for row in frame.select("total").collect())


def totals(lab: Lab) -> dict[str, int]:
    return {row["day"].isoformat(): row["total"] for row in lab.rows_of()}


@pytest.mark.parametrize(
    ("annotation", "metadata"),
    [
        (Any, BY_DAY | {"delta_upsert/columns": COLUMNS}),
        (pd.DataFrame, BY_DAY | {"delta_upsert/columns": COLUMNS}),
        (DataFrame | None, BY_DAY),
        (pl.DataFrame | None, BY_DAY),
        (
            DataFrame | None,
            WriteSpec(write_mode=WriteMode.UPSERT, keys=("day",), delta_partition="day").to_metadata(),
        ),
    ],
    ids=["columns", "columns for pandas", "or None", "polars or None", "upsert"],
)
def test_an_asset_that_reads_its_own_yesterday_starts_without_a_table(
    lab: Lab, annotation: Any, metadata: dict[str, Any]
):
    last: list[int] = []
    mine = counting(lab, metadata, annotation, last)
    for day in DAYS[:2]:
        assert lab.run(mine, partition_key=day).success
    assert (last, totals(lab)) == ([0, 1], {DAYS[0]: 1, DAYS[1]: 2})


@pytest.mark.parametrize(
    ("order", "read"),
    [((1, 0, 1), [0, 0, 1]), ((0, 0, 1, 1), [0, 0, 1, 1])],
    ids=["the second day first", "each day twice"],
)
def test_days_in_any_order_read_the_day_before_and_no_other(lab: Lab, order: Sequence[int], read: list[int]):
    """The first day has a table, and no day before it: it is given no rows."""
    last: list[int] = []
    mine = counting(lab, BY_DAY, pl.DataFrame | None, last)
    for number in order:
        assert lab.run(mine, partition_key=DAYS[number]).success
    assert last == read
    assert totals(lab) == {DAYS[0]: 1, DAYS[1]: 2}


def test_an_asset_that_could_not_start_is_told_how_to(lab: Lab):
    text = failure_of_a_load(lab.run(counting(lab, BY_DAY, Any, []), partition_key=DAYS[0]))
    assert "the asset mine reads its own earlier partitions, and its table does not exist yet" in text
    assert "WriteSpec(..., columns='id STRING, day DATE')" in text
    assert "DataFrame | None" in text


def failure_of_a_load(result: dg.ExecuteInProcessResult) -> str:
    (event,) = (each for each in result.all_events if each.is_step_failure)
    error = event.step_failure_data.error
    assert error is not None
    return error.to_string()

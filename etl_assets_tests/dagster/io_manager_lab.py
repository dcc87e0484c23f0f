"""Assets of users on an instance, with the shared engine and tables in a temporary folder."""

from __future__ import annotations

from typing import Any

import dagster as dg
from deltalake import DeltaTable

from etl_assets.build import platform_resources
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.settings import load_settings

DAYS = dg.DailyPartitionsDefinition(start_date="2026-01-01", end_date="2026-01-05")
SPEC = UpsertSpec(merge_key=("id",), ordering="revision", delta_partition="day")
COLUMNS = "id string, day string, revision int, value string"


class Lab:
    """Assets on an instance, with the shared engine and tables in a temporary folder."""

    def __init__(self, instance: dg.DagsterInstance, spark: Any, engine: Any) -> None:
        self.instance = instance
        self.spark = spark
        resources = platform_resources(load_settings())
        delta = type(resources["delta"])(
            root=str(load_settings().placement().domains[0].root), domain="local", spark=engine
        )
        self.resources = {"delta": delta}

    def frame(self, *rows: tuple[Any, ...], columns: str = COLUMNS) -> Any:
        return self.spark.createDataFrame(list(rows), columns)

    def run(self, *assets: dg.AssetsDefinition, **how: Any) -> dg.ExecuteInProcessResult:
        return dg.materialize(
            list(assets), instance=self.instance, resources=self.resources, raise_on_error=False, **how
        )

    def days(self, first: str, last: str) -> dict[str, str]:
        return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}

    def rows_of(self, asset: str = "mine") -> list[dict[str, Any]]:
        """All rows that the table of an asset has, read without Spark."""
        table = self.resources["delta"].table_of(dg.AssetKey(asset), users=True)
        return DeltaTable(str(table.path)).to_pyarrow_dataset().to_table().to_pylist()

    def version_of(self, asset: str = "mine") -> int:
        return self.resources["delta"].table_of(dg.AssetKey(asset), users=True).version()


def asset_of(
    rows: Any, metadata: dict[str, Any] | None = None, *, daily: bool = False
) -> dg.AssetsDefinition:
    """An asset of a user's own; `rows` makes its DataFrame."""

    @dg.asset(
        name="mine",
        io_manager_key="delta",
        metadata=SPEC.to_metadata() if metadata is None else metadata,
        partitions_def=DAYS if daily else None,
        backfill_policy=dg.BackfillPolicy.single_run() if daily else None,
    )
    def mine() -> Any:
        return rows()

    return mine


def figures(result: dg.ExecuteInProcessResult, partition: str | None = None) -> dict[str, Any]:
    assert result.success
    events = [each.materialization for each in result.get_asset_materialization_events()]
    (event,) = (each for each in events if each.partition == partition and each.asset_key.path == ["mine"])
    return {name: value.value for name, value in event.metadata.items()}


def failure(result: dg.ExecuteInProcessResult) -> str:
    assert not result.success
    (event,) = (each for each in result.all_events if each.is_step_failure)
    told = event.step_failure_data.user_failure_data
    assert told is not None
    return str(told.description)


def stored(lab: Lab) -> dict[str, tuple[int, str]]:
    return {row["id"]: (row["revision"], row["value"]) for row in lab.rows_of()}

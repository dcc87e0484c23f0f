"""Assets of a user's own, as a code location: run by processes that die at a failpoint, and run again by one
that nothing attends.

`python -m etl_assets_tests.kill.own_assets` re-executes every run that has not succeeded, as `Re-execute` in
the UI does.
"""
# ruff: noqa: I002 - Dagster does not read postponed annotations

import os
from pathlib import Path
from typing import Any

import dagster as dg

from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.io_managers import DeltaUpsertIOManager
from etl_assets.resources.spark import SparkResource, spark_config
from etl_assets.settings import SparkSettings
from etl_assets_tests.kill.dying_run import SURVIVED, Gateway, attached_session, own_session

ROOT, ROWS = "OWN_ASSETS_ROOT", "OWN_ASSETS_ROWS"
DAY, OTHER_DAY = "2026-01-01", "2026-01-02"
NAMES = ("replaced_before", "replaced_during", "replaced_after", "appended_after", "applied_between")
CHANGES = WriteSpec(
    write_mode=WriteMode.APPLY_CHANGES,
    keys=("id",),
    sequence_by="at",
    delta_partition="day",
    apply_as_deletes="is_gone",
    except_column_list=("is_gone",),
)
SETTINGS = SparkSettings(
    master="local[2]",
    config={
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    },
)


def asset_called(name: str) -> dg.AssetsDefinition:
    """An asset whose rows are named by the environment."""
    mode = WriteMode.REPLACE if name.startswith("replaced") else WriteMode.APPEND
    applies = name.startswith("applied")
    spec = CHANGES if applies else WriteSpec(write_mode=mode, delta_partition="day")

    @dg.asset(
        name=name,
        partitions_def=dg.DailyPartitionsDefinition(start_date=DAY),
        metadata=spec.to_metadata(),
        io_manager_key="delta",
    )
    def own(context: dg.AssetExecutionContext, spark: SparkResource) -> Any:
        ids = os.environ[ROWS].split()
        if applies:
            # The rows of `new-1` and so on take the place of `old-1` and so on.
            changes = [(row, context.partition_key, 2, False) for row in ids]
            changes += [
                (row.replace("new", "old"), context.partition_key, 3, True) for row in ids if "new" in row
            ]
            return spark.spark_session.createDataFrame(
                changes, "id STRING, day STRING, at INT, is_gone BOOLEAN"
            )
        rows = [(row, context.partition_key) for row in ids]
        return spark.spark_session.createDataFrame(rows, "id STRING, day STRING")

    return own


def job_of(name: str, spark: SparkResource | None = None) -> dg.JobDefinition:
    """The job of an asset, in processes without a session of their own."""
    spark = spark or SparkResource(spark_config=spark_config(SETTINGS))
    defs = dg.Definitions(
        assets=[asset_called(name)],
        jobs=[dg.define_asset_job(f"job_{name}", selection=[name])],
        resources={"spark": spark, "delta": DeltaUpsertIOManager(root=os.environ[ROOT], spark=spark)},
        executor=dg.in_process_executor,
    )
    return defs.resolve_job_def(f"job_{name}")


def run(environment: dict[str, str], name: str, failpoint: str, gateway: Gateway | None) -> None:
    """Run an asset for a day, and die at the failpoint."""
    os.environ.update(environment)
    os.environ["ETL_ASSETS_FAILPOINT"] = failpoint
    own_session() if gateway is None else attached_session(gateway)
    with dg.DagsterInstance.get() as instance:
        job_of(name).execute_in_process(instance=instance, partition_key=DAY)
    os._exit(SURVIVED)


def main() -> None:
    """Re-execute every run that has not succeeded."""
    with dg.DagsterInstance.get() as instance:
        for record in instance.get_runs():
            if record.status is not dg.DagsterRunStatus.SUCCESS:
                name = record.job_name.removeprefix("job_")
                job = dg.build_reconstructable_job(
                    "etl_assets_tests.kill.own_assets", "job_of", reconstructable_args=(name,)
                )
                with dg.execute_job(
                    job,
                    instance=instance,
                    tags={"dagster/partition": DAY},
                    reexecution_options=dg.ReexecutionOptions(parent_run_id=record.run_id),
                    raise_on_error=True,
                ) as result:
                    assert result.success


if __name__ == "__main__":
    Path(os.environ[ROOT]).mkdir(exist_ok=True)
    main()

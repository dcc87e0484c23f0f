"""The cold case by the platform: the step that its IO manager runs for a frame, on the session that its runs
get.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.marks import mark
from benchmarks.scripts.arguments import arguments


def main() -> None:
    from etl_assets.delta.table import Table
    from etl_assets.delta.write.write_spec import WriteSpec
    from etl_assets.io_managers.frame_step import FrameStep
    from etl_assets.placement.domains import FailureDomain
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import SparkSettings

    told = arguments()
    domain = FailureDomain(name="local", root=Path(told["root"]))
    resource = SparkResource(
        spark_config=spark_config(SparkSettings(config=told["spark"])), start=told["start"]
    )
    spark = resource.spark_session
    mark("session")
    table = Table(name="orders", domain=domain, contract=None)
    spec = WriteSpec(keys=("order_id",), sequence_by="updated_at")
    rows = spark.read.schema(told["schema"]).json(told["rows"])
    FrameStep(rows=rows, table=table, spec=spec, all_keys=()).run(())
    mark("merged")
    snapshot = table.snapshot()
    mark("verified", rows=0 if snapshot is None else snapshot.row_count())
    spark.stop()


if __name__ == "__main__":
    main()

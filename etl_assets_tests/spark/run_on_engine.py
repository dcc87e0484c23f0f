"""The steps for one day on the engine that `ETL_ASSETS_SPARK_MASTER` names: what the engine tests start.

`run_on_engine ROOT LANDING [TABLE ...]`: every step, or those of some tables.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from etl_assets_tests.pipeline import DAY, Pipeline


def main(root: Path, landing: Path, only: Sequence[str]) -> None:
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import load_settings

    resource = SparkResource(spark_config=spark_config(load_settings().spark))
    pipeline = Pipeline(root=root, landing=landing, session=lambda: resource.spark_session)
    pipeline.run([DAY], only=only or None)
    resource.spark_session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

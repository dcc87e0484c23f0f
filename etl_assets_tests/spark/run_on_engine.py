"""The steps for two days on the engine that `ETL_ASSETS_SPARK_MASTER` names: what the engine tests start.

`run_on_engine ROOT LANDING [TABLE ...]`: every step, or those of some tables. It prints how often tasks were
shared out among the engine's workers; a single task is worked on here. Lines are shared out by `TASK_BYTES`,
rows and exceptions by days, however few they are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from unittest import mock

from etl_assets_tests.pipeline import DAY, NEXT_DAY, Pipeline


def main(root: Path, landing: Path, only: Sequence[str]) -> None:
    from etl_assets.compute import worker_tasks
    from etl_assets.ingest import ingest_batch, raw_exceptions, raw_rows, stage_lines
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.settings import load_settings

    resource = SparkResource(spark_config=spark_config(load_settings().spark))
    pipeline = Pipeline(root=root, landing=landing, session=lambda: resource.spark_session)
    by_days = partial(ingest_batch.exceptions_tasks, lines_a_task=1)
    with (
        mock.patch.object(worker_tasks, "in_workers", wraps=worker_tasks.in_workers) as in_workers,
        mock.patch.object(ingest_batch, "exceptions_tasks", by_days),
        mock.patch.object(stage_lines, "LITTLE_BYTES", 0),
        mock.patch.object(raw_rows, "is_little", return_value=False),
        mock.patch.object(raw_exceptions, "is_little", return_value=False),
    ):
        pipeline.run([DAY, NEXT_DAY], only=only or None)
    sys.stdout.write(f"{in_workers.call_count}\n")
    resource.spark_session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

"""What Spark's analyzer says about the transforms of pipeline files, for `etl-assets pipelines validate`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.contracts.columns import TableContract
    from etl_assets.pipelines.pipeline_file import PipelineFile
    from etl_assets.pipelines.spec import PipelineSpec
    from etl_assets.settings import Settings


def with_transform_problems(
    settings: Settings, files: Sequence[PipelineFile], contract_of: Callable[[str], TableContract]
) -> list[PipelineFile]:
    """Return files with the problems that Spark finds in their transforms, on the declared columns and
    without rows.

    Starts Spark if a file has transforms, or says which rows are deletes.
    """
    if not any(file.spec is not None and _has_sql(file.spec) for file in files):
        return list(files)
    from etl_assets.contracts.spark_types import struct_type
    from etl_assets.delta.session import frame_of
    from etl_assets.errors import ContractError
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.resources.spark import SparkResource, spark_config
    from etl_assets.steps.check_transforms import check_transforms

    click.echo("==> Spark starts, to look at the transforms (--no-spark leaves that out)", err=True)
    spark = SparkResource(
        spark_config=spark_config(settings.spark), start=settings.spark.start.value
    ).spark_session

    def read_table(name: str) -> DataFrame:
        return frame_of(spark, [], struct_type(contract_of(name)))

    checked = []
    for file in files:
        found = (
            []
            if file.spec is None
            else check_transforms(spark, DeclaredTables(spec=file.spec, contract_of=contract_of), read_table)
        )
        errors = [ContractError(message, fix=fix, field=place) for place, message, fix in found]
        checked.append(file.with_problems(map(file.contract_problem, errors)))
    return checked


def _has_sql(spec: PipelineSpec) -> bool:
    return bool(spec.transforms or spec.table.apply_as_deletes or spec.table.apply_as_truncates)

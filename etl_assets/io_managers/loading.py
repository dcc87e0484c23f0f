"""Load an asset's input: the rows of the partitions it depends on.

Does not belong here: which values a partition key represents (`partition_keys.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.sql_text import identifier
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.session import frame_of
from etl_assets.delta.write.frame_columns import columns_of
from etl_assets.delta.write.write_spec import WriteSpec, is_declared
from etl_assets.errors import ContractError, NotFound
from etl_assets.io_managers.partition_keys import values_by_key
from etl_assets.io_managers.requested_frames import as_requested, is_optional

if TYPE_CHECKING:
    import dagster as dg
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from etl_assets.delta.table import Table
    from etl_assets.resources.spark import SparkResource


def spec_of(context: dg.InputContext) -> WriteSpec | None:
    """Return the spec of the loaded asset; None if it has none, like the platform's assets."""
    metadata: Mapping[str, Any] = (
        context.upstream_output.definition_metadata if context.upstream_output else {}
    )
    if not is_declared(metadata):
        return None
    return WriteSpec.from_metadata(metadata, asset=context.asset_key.to_user_string())


def _is_own(context: dg.InputContext) -> bool:
    """Return whether the step itself produces the loaded asset."""
    assets = context.step_context.assets_def
    return assets is not None and context.asset_key in assets.keys


def columns_known(table: Table, spec: WriteSpec, spark: SparkResource) -> StructType | None:
    """Return the columns of an asset's table; if it has no table, those its spec declares, or None."""
    if (stored := table.snapshot()) is not None:
        return columns_of(stored)
    return None if spec.columns is None else frame_of(spark.spark_session, [], spec.columns).schema


def before_the_first(
    context: dg.InputContext, spec: WriteSpec | None, table: Table, spark: SparkResource
) -> Any:
    """Return the input from an asset that has no table yet.

    An asset that reads itself gets None if the parameter may be None, else an empty frame with the columns
    that its spec declares.

    Raises:
        NotFound: another asset reads it, or its spec declares no columns.
    """
    name = context.asset_key.to_user_string()
    if not _is_own(context):
        raise NotFound(
            f"the table of {name} does not exist", fix="materialize that asset first", table=table.name
        )
    if is_optional(context):
        return None
    if spec is None or spec.columns is None:
        raise NotFound(
            f"the asset {name} reads its own earlier partitions, and its table does not exist yet",
            fix="declare its columns in the spec, and the first partition is given an empty frame:"
            " WriteSpec(..., columns='id STRING, day DATE'); or annotate the parameter as DataFrame | None",
            table=table.name,
        )
    return as_requested(context, frame_of(spark.spark_session, [], spec.columns))


def partition_column(context: dg.InputContext, spec: WriteSpec | None, table: Table) -> str:
    """Return the column that tells the partitions of a table's asset apart.

    Raises:
        ContractError: the asset's spec names none.
    """
    if table.contract is not None:
        return table.contract.delta_partition[0]
    if spec is not None and spec.delta_partition is not None:
        return spec.delta_partition
    raise ContractError(
        f"the partitions of {context.asset_key.to_user_string()} cannot be told apart in its table",
        fix="name the column of the asset's partition in the spec's `delta_partition`",
        asset=context.asset_key.to_user_string(),
    )


def rows_of_partitions(context: dg.InputContext, rows: DataFrame, column: str) -> DataFrame:
    """Filter rows to the requested partitions.

    Raises:
        ContractError: the table has no such column, or a key represents no value of it.
    """
    asset = context.asset_key.to_user_string()
    if column not in rows.columns:
        raise ContractError(
            f"the table of {asset} has no column {column}, which its spec names as `delta_partition`",
            fix=f"name one of its columns: {', '.join(rows.columns)}",
            asset=asset,
            column=column,
        )
    partitions = values_by_key(
        context.asset_partitions_def,
        context.asset_partition_keys,
        column=column,
        type_=rows.schema[column].dataType,
        asset=asset,
    )
    return rows.where(PartitionFilter.union(partitions.values()).condition(identifier(column)))

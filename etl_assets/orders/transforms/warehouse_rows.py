"""Normalized orders to warehouse rows: the same columns, under the key that sinks use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.orders.tables.normalized_orders import ORDER_COLUMNS
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_KEY_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def warehouse_rows(orders: DataFrame) -> DataFrame:
    """Add the warehouse key to normalized rows.

    Args:
        orders: normalized_orders' columns.

    Returns:
        `warehouse_key`, `normalized_offset`, the order columns and `partition_date`, one row for each input
        row.
    """
    from pyspark.sql import functions as F

    return orders.select(
        F.concat(F.lit(WAREHOUSE_KEY_PREFIX), "tenant_id", F.lit("/"), "event_id").alias("warehouse_key"),
        F.col("offset").alias("normalized_offset"),
        *(column.name for column in ORDER_COLUMNS),
        "partition_date",
    )

"""Order events folded to one row an order: a merge that gives the same row in whatever order events are read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contracts.events import EventType
from etl_assets.contracts.order_status import OrderStatus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMES = {status: f"{status.value}_at" for status in OrderStatus}
_AMOUNTS = {"order_amounts": EventType.ORDER_CREATED, "paid_amounts": EventType.PAYMENT_PROCESSED}
_NO_AMOUNTS = "CAST(map() AS MAP<STRING, DECIMAL(18,2)>)"


def fold_orders(rows: DataFrame) -> DataFrame:
    """Fold events by order.

    Args:
        rows: warehouse_rows' columns; an event may be there more than once.

    Returns:
        order_status_view's columns, one row for each `tenant_id, order_id`.
    """
    from pyspark.sql import functions as F

    folded = rows.groupBy("tenant_id", "order_id").agg(
        *(
            F.expr(f"min(occurred_at) FILTER (WHERE order_status = '{status.value}')").alias(column)
            for status, column in TIMES.items()
        ),
        *(
            F.expr(
                "coalesce(map_from_entries(collect_set(struct(event_id, amount))"
                f" FILTER (WHERE event_type = '{event_type.value}' AND amount IS NOT NULL)), {_NO_AMOUNTS})"
            ).alias(column)
            for column, event_type in _AMOUNTS.items()
        ),
        # Of several values the least: any rule will do that does not depend on the order of reading.
        F.min("currency").alias("currency"),
        F.min("customer_id").alias("customer_id"),
        F.max_by("event_id", "normalized_offset").alias("last_event_id"),
        F.max("normalized_offset").alias("last_offset"),
        F.max("committed_at").alias("updated_at"),
    )
    columns = {name: name for name in folded.columns}
    return folded.select(
        "*",
        F.expr(status_sql(columns)).alias("order_status"),
        F.expr(total_sql("order_amounts")).alias("order_total"),
        F.expr(total_sql("paid_amounts")).alias("paid_total"),
    )


def combine_sql(stored: str, incoming: str) -> dict[str, str]:
    """For each column that is not the key: SQL that combines a stored row with an incoming one.

    Commutative, associative and idempotent, because minimum, maximum and the union of maps are.

    Args:
        stored: Alias of the stored row.
        incoming: Alias of the incoming row.
    """
    combined = {
        column: f"least({stored}.{column}, {incoming}.{column})"
        for column in (*TIMES.values(), "currency", "customer_id")
    }
    for column in _AMOUNTS:
        combined[column] = (
            f"map_from_entries(array_distinct(concat(map_entries({stored}.{column}), map_entries({incoming}.{column}))))"
        )
    later = f"{incoming}.last_offset > {stored}.last_offset"
    combined["last_event_id"] = (
        f"CASE WHEN {later} THEN {incoming}.last_event_id ELSE {stored}.last_event_id END"
    )
    combined["last_offset"] = f"greatest({stored}.last_offset, {incoming}.last_offset)"
    combined["updated_at"] = f"greatest({stored}.updated_at, {incoming}.updated_at)"
    combined["order_status"] = status_sql(combined)
    combined["order_total"] = total_sql(combined["order_amounts"])
    combined["paid_total"] = total_sql(combined["paid_amounts"])
    return combined


def changed_sql(stored: str, combined: dict[str, str]) -> str:
    """Whether combining would change the stored row. Maps only ever grow, so their sizes tell."""
    compared = [name for name in combined if name not in _AMOUNTS]
    differs = [f"NOT ({stored}.{name} <=> {combined[name]})" for name in compared]
    grown = [f"cardinality({stored}.{name}) < cardinality({combined[name]})" for name in _AMOUNTS]
    return " OR ".join(differs + grown)


def status_sql(expressions: dict[str, str]) -> str:
    """The highest status whose time is known."""
    ranked = sorted(OrderStatus, key=lambda status: status.rank, reverse=True)
    cases = " ".join(
        f"WHEN {expressions[TIMES[status]]} IS NOT NULL THEN '{status.value}'" for status in ranked
    )
    return f"CASE {cases} END"


def total_sql(amounts: str) -> str:
    """Sum of a map's amounts, 0.00 for none."""
    return (
        f"aggregate(map_values({amounts}), CAST(0 AS DECIMAL(28,2)),"
        " (total, amount) -> CAST(total + amount AS DECIMAL(28,2)))"
    )

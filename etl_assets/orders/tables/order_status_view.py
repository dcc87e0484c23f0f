"""order_status_view: the latest state of each order."""

from __future__ import annotations

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, MaxCharacters, NotEmpty, OneOf
from etl_assets.contracts.tables.recurring_columns import (
    AMOUNT_TYPE,
    CURRENCY_RULES,
    MAX_ID_CHARACTERS,
    identifier,
    position,
)
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS

_WAREHOUSE = WAREHOUSE_ROWS.name
_AMOUNTS_TYPE = f"MAP<STRING, {AMOUNT_TYPE}>"
# Ten digits more than one amount: an overflow of a sum would stop the whole batch.
_TOTAL_TYPE = "DECIMAL(28,2)"


def _from_events(*columns: str) -> tuple[str, ...]:
    return tuple(f"{_WAREHOUSE}.{column}" for column in columns)


def _reached(name: str, event: str) -> Column:
    return Column(
        name,
        "TIMESTAMP",
        f"Earliest time of {event} (UTC); null while none has arrived.",
        nullable=True,
        derived_from=_from_events("occurred_at", "order_status"),
    )


ORDER_STATUS_VIEW = TableContract(
    name="order_status_view",
    description=(
        "One row for each order: a merge of its events that gives the same row in whatever order, and"
        " however often, they are read. The status only moves up; a late lower event fills its own columns."
    ),
    columns=(
        WAREHOUSE_ROWS.column("tenant_id").taken_from(_WAREHOUSE),
        WAREHOUSE_ROWS.column("order_id").taken_from(_WAREHOUSE),
        Column(
            "order_status",
            "STRING",
            f"Highest status reached: {' < '.join(OrderStatus)}.",
            rules=(OneOf(tuple(OrderStatus)),),
            derived_from=_from_events("order_status"),
        ),
        Column(
            "order_total",
            _TOTAL_TYPE,
            "Sum of order_amounts; 0.00 while there is none.",
            rules=(AtLeast(0),),
            derived_from=_from_events("amount", "event_type"),
        ),
        Column(
            "paid_total",
            _TOTAL_TYPE,
            "Sum of paid_amounts; 0.00 while there is none.",
            rules=(AtLeast(0),),
            derived_from=_from_events("amount", "event_type"),
        ),
        Column(
            "currency",
            "STRING",
            "Currency of the totals (ISO 4217); null where no event names one.",
            nullable=True,
            rules=CURRENCY_RULES,
            derived_from=_from_events("currency"),
        ),
        Column(
            "customer_id",
            "STRING",
            "Customer who ordered; null while `OrderCreated` has not arrived.",
            nullable=True,
            rules=(NotEmpty(), MaxCharacters(MAX_ID_CHARACTERS)),
            derived_from=_from_events("customer_id"),
        ),
        _reached("created_at", "`OrderCreated`"),
        _reached("paid_at", "`PaymentProcessed`"),
        _reached("shipped_at", "`ItemShipped`"),
        _reached("delivered_at", "`OrderDelivered`"),
        _reached("canceled_at", "`OrderCanceled`"),
        identifier("last_event_id", "Event of last_offset.", derived_from=_from_events("event_id")),
        position(
            "last_offset",
            "Highest normalized_offset of the order's events.",
            derived_from=_from_events("normalized_offset"),
        ),
        Column(
            "updated_at",
            "TIMESTAMP",
            "Latest committed_at of the order's events (UTC).",
            derived_from=_from_events("committed_at"),
        ),
        Column(
            "order_amounts",
            _AMOUNTS_TYPE,
            "Amount of each `OrderCreated` by its event id, so that an event read again is not added again.",
            derived_from=_from_events("event_id", "amount", "event_type"),
        ),
        Column(
            "paid_amounts",
            _AMOUNTS_TYPE,
            "Amount of each `PaymentProcessed` by its event id.",
            derived_from=_from_events("event_id", "amount", "event_type"),
        ),
    ),
    merge_key=("tenant_id", "order_id"),
    ordering="last_offset",
)

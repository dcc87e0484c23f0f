"""normalized_orders: order events, typed and enriched, in order."""

from __future__ import annotations

from dataclasses import replace

from etl_assets.contracts.columns import Column, TableContract
from etl_assets.contracts.rules import AtLeast, MaxCharacters, NotEmpty, OneOf
from etl_assets.contracts.tables.recurring_columns import (
    AMOUNT_TYPE,
    COMMIT_STAMPS,
    CURRENCY_RULES,
    MAX_ID_CHARACTERS,
    identifier,
    label,
    position,
)
from etl_assets.orders.event_contracts import EventType
from etl_assets.orders.order_status import OrderStatus
from etl_assets.orders.tables.raw_events import RAW_EVENTS

_RAW = RAW_EVENTS.name
_FROM_PAYLOAD = (f"{_RAW}.payload", f"{_RAW}.event_type", f"{_RAW}.schema_version")

ORDER_COLUMNS: tuple[Column, ...] = (
    RAW_EVENTS.column("event_id").taken_from(_RAW),
    RAW_EVENTS.column("tenant_id").taken_from(_RAW),
    identifier("order_id", "The order the event is about.", derived_from=(f"{_RAW}.aggregate_id",)),
    Column(
        "event_type",
        "STRING",
        "Type of the event, one that has a contract.",
        rules=(OneOf(tuple(EventType)),),
        derived_from=(f"{_RAW}.event_type",),
    ),
    Column(
        "order_status",
        "STRING",
        "Status the order reaches by this event.",
        rules=(OneOf(tuple(OrderStatus)),),
        derived_from=(f"{_RAW}.event_type",),
    ),
    Column(
        "amount",
        AMOUNT_TYPE,
        "Amount of the event in units of its currency: the order's for `OrderCreated`, the payment's for"
        " `PaymentProcessed`; null for the other types. Never rounded.",
        nullable=True,
        rules=(AtLeast(0),),
        derived_from=_FROM_PAYLOAD,
    ),
    Column(
        "currency",
        "STRING",
        "Currency of the amount (ISO 4217); null where the event names none.",
        nullable=True,
        rules=CURRENCY_RULES,
        derived_from=_FROM_PAYLOAD,
    ),
    Column(
        "customer_id",
        "STRING",
        "Customer who ordered; only `OrderCreated` tells.",
        nullable=True,
        rules=(NotEmpty(), MaxCharacters(MAX_ID_CHARACTERS)),
        derived_from=_FROM_PAYLOAD,
    ),
    Column(
        "customer_region",
        "STRING",
        "Region of the customer by the reference data; null if the customer or the region is unknown there.",
        nullable=True,
        derived_from=("customers.customer_id", "customers.customer_region", *_FROM_PAYLOAD),
    ),
    RAW_EVENTS.column("occurred_at").taken_from(_RAW),
    Column("event_date", "DATE", "Day (UTC) on which it happened.", derived_from=(f"{_RAW}.occurred_at",)),
    replace(
        RAW_EVENTS.column("schema_version").taken_from(_RAW),
        description="Version of the payload's contract, as sent (before it was lifted to the newest).",
    ),
    RAW_EVENTS.column("trace_id").taken_from(_RAW),
    RAW_EVENTS.column("span_id").taken_from(_RAW),
)
"""Columns of an order event; warehouse_rows has the same ones."""

NORMALIZED_ORDERS = TableContract(
    name="normalized_orders",
    description=(
        "Every order event with a payload that its contract accepts: typed, lifted to the newest version,"
        " with the customer's region. One row for each event, in order of normalization."
    ),
    columns=(
        position(
            "offset",
            "Place in the order of normalization: dense, from 0, over all days, but for those that an undo"
            " took away; never dealt twice.",
        ),
        position("raw_offset", "Offset of the event in raw_events.", derived_from=(f"{_RAW}.offset",)),
        *ORDER_COLUMNS,
        label("transformer", "Name and version of the transformation that made the row."),
        label("transform_domain", "Failure domain that made the row."),
        *COMMIT_STAMPS,
    ),
    merge_key=("event_id",),
    ordering="offset",
    offset_column="offset",
    delta_partition=("partition_date",),
    append_only=True,
)

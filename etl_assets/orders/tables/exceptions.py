"""Exceptions of the orders pipeline: records that did not become a new row of a stage's table."""

from __future__ import annotations

from etl_assets.contracts.tables.exceptions import exceptions_of
from etl_assets.orders.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.orders.tables.raw_events import RAW_EVENTS

RAW_EVENTS_EXCEPTIONS = exceptions_of(RAW_EVENTS, read_from=None)
NORMALIZED_ORDERS_EXCEPTIONS = exceptions_of(NORMALIZED_ORDERS, read_from=RAW_EVENTS)

"""The contracts of the tables, one module a table.

Belongs here: the declarations. Does not belong here: what a declaration is made of (`columns.py`, `rules.py`), how a table is
filled, and which tables an installation has (`pipelines/catalog.py`).
"""

from __future__ import annotations

from etl_assets.contracts.tables.audit_log import AUDIT_LOG
from etl_assets.contracts.tables.customers import CUSTOMERS
from etl_assets.contracts.tables.dead_letters import DEAD_LETTERS
from etl_assets.contracts.tables.effects import EFFECTS
from etl_assets.contracts.tables.exceptions import (
    NORMALIZED_ORDERS_EXCEPTIONS,
    RAW_EVENTS_EXCEPTIONS,
)
from etl_assets.contracts.tables.normalized_orders import NORMALIZED_ORDERS
from etl_assets.contracts.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.contracts.tables.raw_events import RAW_EVENTS
from etl_assets.contracts.tables.replays import REPLAYS
from etl_assets.contracts.tables.warehouse_rows import WAREHOUSE_ROWS

__all__ = [
    "AUDIT_LOG",
    "CUSTOMERS",
    "DEAD_LETTERS",
    "EFFECTS",
    "NORMALIZED_ORDERS",
    "NORMALIZED_ORDERS_EXCEPTIONS",
    "ORDER_STATUS_VIEW",
    "RAW_EVENTS",
    "RAW_EVENTS_EXCEPTIONS",
    "REPLAYS",
    "WAREHOUSE_ROWS",
]

"""Tables: every table of the platform, one module a table.

Belongs here: the declarations and the list of all of them. Does not belong here: what a declaration is made
of (`columns.py`, `rules.py`) and how a table is filled.
"""

from __future__ import annotations

import difflib

from etl_assets.contracts.columns import TableContract
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
from etl_assets.errors import NotFound

__all__ = [
    "ALL_TABLES",
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
    "table",
]

ALL_TABLES: tuple[TableContract, ...] = (
    RAW_EVENTS,
    NORMALIZED_ORDERS,
    WAREHOUSE_ROWS,
    ORDER_STATUS_VIEW,
    CUSTOMERS,
    RAW_EVENTS_EXCEPTIONS,
    NORMALIZED_ORDERS_EXCEPTIONS,
    DEAD_LETTERS,
    AUDIT_LOG,
    REPLAYS,
    EFFECTS,
)
"""In the order of the data path; after it what the platform keeps for itself."""


def table(name: str) -> TableContract:
    """The contract of the table of that name.

    Raises:
        NotFound: There is no such table.
    """
    contracts = {contract.name: contract for contract in ALL_TABLES}
    if name in contracts:
        return contracts[name]
    near = difflib.get_close_matches(name, contracts, n=1)
    raise NotFound(
        f"there is no table {name!r}",
        fix=f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(contracts)}",
        table=name,
    )

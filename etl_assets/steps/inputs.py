"""Which tables each step reads with a cursor, for the steps themselves and for whoever shows where they stand."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from etl_assets.contracts.tables import (
    AUDIT_LOG,
    DEAD_LETTERS,
    NORMALIZED_ORDERS,
    ORDER_STATUS_VIEW,
    RAW_EVENTS,
    WAREHOUSE_ROWS,
)
from etl_assets.contracts.tables.exceptions import EXCEPTIONS_TABLES

_EXCEPTIONS = tuple(contract.name for contract in EXCEPTIONS_TABLES)

INPUTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        NORMALIZED_ORDERS.name: (RAW_EVENTS.name,),
        WAREHOUSE_ROWS.name: (NORMALIZED_ORDERS.name,),
        ORDER_STATUS_VIEW.name: (WAREHOUSE_ROWS.name,),
        # A letter is closed by what the stages accept, so their tables are read as well as their exceptions.
        DEAD_LETTERS.name: (*_EXCEPTIONS, RAW_EVENTS.name, NORMALIZED_ORDERS.name),
        AUDIT_LOG.name: (RAW_EVENTS.name, NORMALIZED_ORDERS.name, WAREHOUSE_ROWS.name, *_EXCEPTIONS),
    }
)
"""Inputs by the table a step writes."""

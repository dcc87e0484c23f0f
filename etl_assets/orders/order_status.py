"""Order status: the steps of an order's life cycle, and their rank.

Belongs here: the closed set and its rank. Does not belong here: which event leads to which status
(`event_contracts.py`).
"""

from __future__ import annotations

from enum import StrEnum


class OrderStatus(StrEnum):
    """Statuses in rising order: a status only ever rises, whatever the order of arrival."""

    CREATED = "created"
    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELED = "canceled"

    @property
    def rank(self) -> int:
        """Place in the life cycle, from 0; the higher rank wins."""
        return tuple(OrderStatus).index(self)

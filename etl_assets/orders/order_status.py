"""Order status: where an order is in its life cycle, and which status is further on.

Belongs here: the closed set and its rank. Does not belong here: which event leads to which status
(`events.py`).
"""

from __future__ import annotations

from enum import StrEnum


class OrderStatus(StrEnum):
    """In rising order: a status only ever moves up, whatever the order of arrival."""

    CREATED = "created"
    PAID = "paid"
    SHIPPED = "shipped"
    DELIVERED = "delivered"
    CANCELED = "canceled"

    @property
    def rank(self) -> int:
        """Place in the life cycle, from 0; the higher one wins."""
        return tuple(OrderStatus).index(self)

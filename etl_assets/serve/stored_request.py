"""A request whose events are durable: where they are, and how that is answered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etl_assets.serve.events_description import Ack
from etl_assets.serve.group_commit import Receipt


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """A request whose events are durable.

    Attributes:
        receipt: Where its events are.
        is_repeated: Whether its `Idempotency-Key` was known.
        is_lone_object: Whether it sent one object, not a list or lines.
    """

    receipt: Receipt
    is_repeated: bool
    is_lone_object: bool

    @property
    def headers(self) -> dict[str, str]:
        """Headers of its answer."""
        return {"Idempotency-Replayed": "true"} if self.is_repeated else {}

    def as_json(self, status: Ack = Ack.DURABLE, **more: Any) -> dict[str, Any]:
        """Return its answer."""
        return {
            "status": status.value,
            "events": self.receipt.events,
            "position": self.receipt.position,
            **more,
        }

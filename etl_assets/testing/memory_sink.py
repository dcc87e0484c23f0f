"""A sink in memory, for tests of what is delivered and when: exactly once, as a database."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etl_assets.errors import SinkFenced
from etl_assets.sinks.sink import Delivered, Delivery, Guarantee, SinkPosition

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract


@dataclass
class MemoryTarget:
    """What outlives a sink: rows by key, and the position."""

    rows: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    position: SinkPosition | None = None


@dataclass(kw_only=True)
class MemorySink:
    """The sink of a target in memory."""

    held: MemoryTarget
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    keeps_position: bool = True
    applies_deletes: bool = True
    target: str = "memory://target"
    _contract: TableContract | None = None

    def prepare(self, contract: TableContract) -> None:
        """Remember the columns."""
        self._contract = contract

    def position(self) -> SinkPosition | None:
        """Return the position."""
        return self.held.position if self.keeps_position else None

    def deliver(self, delivery: Delivery) -> Delivered:
        """Bring the target to the position, or nothing of it."""
        assert self._contract is not None  # `prepare` was called
        if self.keeps_position and self.held.position != delivery.before:
            raise SinkFenced("the position was moved", fix="nothing", sink=self.target)
        keys = self._contract.merge_key
        new = {tuple(row[key] for key in keys): row for rows in delivery.rows() for row in rows.to_pylist()}
        gone = {tuple(row[key] for key in keys) for rows in delivery.deleted() for row in rows.to_pylist()}
        if delivery.whole:
            gone = set(self.held.rows) - set(new)
        gone &= set(self.held.rows)
        changed = {key: row for key, row in new.items() if self.held.rows.get(key) != row}
        delivery.expect_current()
        kept = self.held.rows if not self.applies_deletes else _without(self.held.rows, gone)
        self.held.rows = kept | changed
        self.held.position = delivery.after
        return Delivered(written=len(changed), unchanged=len(new) - len(changed), deleted=len(gone))

    def close(self) -> None:
        """Nothing to let go of."""


def _without(rows: dict[Any, Any], gone: set[Any]) -> dict[Any, Any]:
    return {key: row for key, row in rows.items() if key not in gone}

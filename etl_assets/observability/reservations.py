"""Effects that are reserved but not completed:

their owners, and whether those can still complete them. No JVM.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.tables import EFFECTS
from etl_assets.contracts.tables.effects import EffectState
from etl_assets.observability.rows import find_rows
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.placement.domains import FailureDomain

_COLUMNS = ("sink", "key", "attempt", "owner_domain", "owner_epoch", "owner_process", "reserved_at")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """One reservation of an effect.

    `is_fenced`: another epoch leads since, so the next process that reserves the effect gets it at once.
    """

    sink: str
    key: str
    attempt: int
    owner_domain: str
    owner_epoch: str
    owner_process: str
    reserved_at: dt.datetime
    is_fenced: bool

    def as_json(self) -> dict[str, Any]:
        """Return the reservation as a JSON object."""
        return {**dataclasses.asdict(self), "reserved_at": self.reserved_at.isoformat()}


def reservations(domain: FailureDomain, *, sink: str | None = None) -> list[Reservation]:
    """Return the reservations of one sink or of all, the oldest first by the reserving process's clock."""
    table = platform_table(EFFECTS.name, domain)
    where = {"state": [EffectState.RESERVED.value], **({} if sink is None else {"sink": [sink]})}
    mirrored = table.replication
    state = None if mirrored is None else mirrored.acknowledged()
    epoch = "" if state is None else str(state.epoch)
    found = [
        Reservation(**row, is_fenced=row["owner_epoch"] != epoch)
        for row in find_rows(table, columns=_COLUMNS, where=where)
    ]
    return sorted(found, key=lambda each: (each.reserved_at, each.sink, each.key))

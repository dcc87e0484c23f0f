"""One effect and its state transitions. Pure: no clock, no table."""

from __future__ import annotations

import dataclasses
import datetime as dt
import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from etl_assets.contracts.tables.effects import EffectState


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The owner of a reservation.

    Attributes:
        domain: Its failure domain.
        epoch: Fence epoch under which that domain leads the table; empty with one domain.
        process: Machine, process id and start time of the process.
    """

    domain: str
    epoch: str
    process: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A row of the table `effects`."""

    sink: str
    key: str
    fingerprint: str
    state: EffectState
    attempt: int
    token: str
    owner_domain: str
    owner_epoch: str
    owner_process: str
    result: str | None
    reserved_at: dt.datetime
    completed_at: dt.datetime | None
    batch_id: int = 0

    @property
    def name(self) -> tuple[str, str]:
        """Identifies the effect."""
        return self.sink, self.key

    @property
    def change(self) -> tuple[str, int]:
        """Identifies the owner's last change of it."""
        return self.token, self.batch_id

    @property
    def is_completed(self) -> bool:
        """Whether the effect was completed."""
        return self.state is EffectState.COMPLETED

    def is_of_another_epoch(self, epoch: str) -> bool:
        """Return whether its owner is fenced: it reserved under a past epoch, and cannot complete."""
        return self.owner_epoch != epoch

    def noted(self, content: str) -> Effect:
        """Return the reservation with other content in its result."""
        return dataclasses.replace(self, result=content)

    def completed(self, result: str, at: dt.datetime) -> Effect:
        """Return the effect as completed."""
        return dataclasses.replace(self, state=EffectState.COMPLETED, result=result, completed_at=at)

    def as_row(self, batch_id: int) -> dict[str, Any]:
        """Return the row of the table."""
        return {**dataclasses.asdict(self), "state": self.state.value, "batch_id": batch_id}

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> Effect:
        """Build an effect from a row of the table."""
        values: dict[str, Any] = {**row, "state": EffectState(row["state"])}
        return cls(**values)


def reserved(
    before: Effect | None, *, sink: str, key: str, fingerprint: str, owner: Owner, token: str, at: dt.datetime
) -> Effect:
    """Return a reservation of an effect that has no owner, or whose owner is replaced."""
    return Effect(
        sink=sink,
        key=key,
        fingerprint=fingerprint,
        state=EffectState.RESERVED,
        attempt=1 if before is None else before.attempt + 1,
        token=token,
        owner_domain=owner.domain,
        owner_epoch=owner.epoch,
        owner_process=owner.process,
        result=None,
        reserved_at=at,
        completed_at=None,
    )


def forgotten(effects: Iterable[Effect], keep: int) -> list[Effect]:
    """Return the completed effects of one sink to delete: all but the `keep` that were completed last.

    The limit is a number, not an age, because clocks are unreliable.
    """
    done = [effect for effect in effects if effect.is_completed]
    return heapq.nsmallest(len(done) - keep, done, key=lambda effect: (effect.batch_id, effect.key))

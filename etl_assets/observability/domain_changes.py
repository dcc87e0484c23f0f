"""Changes of mirrored tables between two observations: another leader, another generation. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl_assets.delta.replicated.replication_status import ReplicationStatus


class ChangeKind(StrEnum):
    """Kind of an observed change.

    RELOCATED: another domain leads the table.
    REBOUND: the replica set changed (another leader or other replicas), so every reader binds again.
    """

    RELOCATED = "relocated"
    REBOUND = "rebound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of one table, in words for people."""

    kind: ChangeKind
    table: str
    text: str

    def __str__(self) -> str:
        return f"{self.table}: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """State of one table at an observation, kept for comparison with the next one."""

    leader: str | None
    epoch: int
    generation: int
    version: int

    @classmethod
    def of(cls, standing: ReplicationStatus) -> Noted:
        """Return the part of a replication status that is compared."""
        return cls(
            leader=standing.leader,
            epoch=standing.epoch,
            generation=standing.generation,
            version=standing.version,
        )


def changes(before: Mapping[str, Noted], after: Mapping[str, Noted]) -> Iterator[Change]:
    """Yield the changes of tables that are in both observations.

    A table's first leader is not a change.
    """
    for table in [name for name in after if name in before and before[name].epoch]:
        was, now = before[table], after[table]
        if now.leader != was.leader:
            text = (
                f"led by {now.leader} under epoch {now.epoch}, before by {was.leader} under epoch {was.epoch}"
            )
            yield Change(kind=ChangeKind.RELOCATED, table=table, text=text)
        if now.generation != was.generation:
            text = f"generation {now.generation}, before {was.generation}: its readers bind again"
            yield Change(kind=ChangeKind.REBOUND, table=table, text=text)

"""What became of mirrored tables between two looks at them: relocations, other generations, one copy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etl_assets.delta.replication_status import ReplicationStatus


class ChangeKind(StrEnum):
    """What can be seen to have changed.

    RELOCATED: another domain leads the table.
    REBOUND: the locator changed, so that every reader binds again: another leader, or other replicas.
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
    """What one look leaves for the next one to compare with."""

    leader: str | None
    epoch: int
    generation: int
    version: int

    @classmethod
    def of(cls, standing: ReplicationStatus) -> Noted:
        """The part of a standing that is compared."""
        return cls(
            leader=standing.leader,
            epoch=standing.epoch,
            generation=standing.generation,
            version=standing.version,
        )


def changes(before: Mapping[str, Noted], after: Mapping[str, Noted]) -> Iterator[Change]:
    """What changed of the tables that both looks saw, and that somebody had led: to be led at first is no move."""
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

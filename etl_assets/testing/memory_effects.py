"""The table `effects` in memory: several domains, epochs, and hooks around every commit.

The twin of `effects.table.EffectsTable`; the contract tests of `EffectsLog` run against both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from etl_assets.effects.effect import Effect
from etl_assets.effects.store import Change
from etl_assets.errors import CommitConflict, Fenced

_ATTEMPTS = 5
Moment = Callable[[], None]


def _nothing() -> None:
    pass


@dataclass
class MemoryEffectsTable:
    """The state that the domains agree on: the effects at each version, and the leader."""

    versions: list[dict[tuple[str, str], Effect]] = field(default_factory=lambda: [{}])
    epochs: list[str] = field(default_factory=list)
    number: int = 0
    leader: str = ""

    @property
    def epoch(self) -> str:
        """The leading epoch."""
        return f"{self.number}/{self.leader}"

    def claim(self, domain: str) -> None:
        """Let a domain lead under a new epoch; all earlier epochs are fenced."""
        self.number, self.leader = self.number + 1, domain

    def process(self, domain: str, *, before: Moment = _nothing, after: Moment = _nothing) -> MemoryEffects:
        """Return the table as a process of a domain accesses it; see `MemoryEffects`."""
        return MemoryEffects(self, domain, before, after)


@dataclass
class MemoryEffects:
    """Access of one process to the table.

    Attributes:
        table: The table.
        domain: The process's domain.
        before: Called after a commit was decided on, before it is made.
        after: Called after a commit was made, before the call returns.
    """

    table: MemoryEffectsTable
    domain: str
    before: Moment
    after: Moment

    def update(self, change: Change, *, take_lead: bool) -> None:
        """See `effects.store.EffectsLog`."""
        for _ in range(_ATTEMPTS):
            if self.table.leader != self.domain:
                if not take_lead:
                    raise Fenced(
                        f"{self.domain} does not lead", fix="lead", table="effects", by=self.table.epoch
                    )
                self.table.claim(self.domain)
            epoch, base = self.table.epoch, len(self.table.versions)
            rows = change(_View(epoch, self.table.versions[-1]))
            if not rows:
                return
            self.before()
            if self._commit(rows, epoch, base):
                self.after()
                return
        raise CommitConflict("others keep committing", fix="try again", table="effects")

    def _commit(self, rows: Sequence[Effect], epoch: str, base: int) -> bool:
        if self.table.epoch != epoch:
            raise Fenced(f"{epoch} has passed", fix="plan again", table="effects", by=self.table.epoch)
        if len(self.table.versions) != base:
            return False
        stamped = {row.name: dataclasses.replace(row, batch_id=base) for row in rows}
        self.table.versions.append(self.table.versions[-1] | stamped)
        self.table.epochs.append(epoch)
        return True


@dataclass(frozen=True, slots=True)
class _View:
    epoch: str
    effects: dict[tuple[str, str], Effect]

    def get(self, sink: str, key: str) -> Effect | None:
        return self.effects.get((sink, key))

"""Replication status of a mirrored table and the places of its data, read from the registers.

Changes nothing.

Belongs here: the registers' account of an acknowledged state. Does not belong here: whether the log and the
files agree with it (`mirroring/maintenance/verification.py`), and what follows from it
(`replicas/reconcile.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import DomainUnavailable, Unanswered
from etl_assets.mirroring.protocol.fork import forked
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.table import Answer

if TYPE_CHECKING:
    from etl_assets.mirroring.protocol.record import Record, State
    from etl_assets.mirroring.protocol.table import MirroredTable
    from etl_assets.mirroring.stores.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """Replication status of a mirrored table.

    Attributes:
        leader: The domain that leads it; None if no domain leads yet or the leader is unknown.
        epoch: Number of the fence epoch.
        generation: The locator's generation.
        version: The acknowledged version, -1 for none.
        one_copy: Commits are acknowledged with the data in one domain.
        behind: For each domain with a replica, the number of acknowledged versions it lacks; None where it
            does not answer, or has published another history.
        roles: Role of each replica.
        whole: Domains that hold the acknowledged version with all its rows, published or voted for: it
            survives there.
        problem: Why the rest is unknown; None if it is known.
        forked: Domains that have published another history.
    """

    leader: str | None
    epoch: int
    generation: int
    version: int
    one_copy: bool
    behind: Mapping[str, int | None]
    roles: Mapping[str, Role]
    whole: tuple[str, ...]
    problem: str | None = None
    forked: tuple[str, ...] = ()

    @classmethod
    def unknown(cls, problem: str) -> ReplicationStatus:
        """Return a status in which nothing is known, for the given reason."""
        return cls(
            leader=None,
            epoch=0,
            generation=0,
            version=-1,
            one_copy=False,
            behind={},
            roles={},
            whole=(),
            problem=problem,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """A table's data in one domain.

    Attributes:
        domain: The domain.
        store: Its root.
        folder: Key of the table's folder.
        version: The version up to which it has the data, or from which on it will have it. It still has to
            receive what it lacks of later versions.
    """

    domain: str
    store: Store
    folder: str
    version: int


def standing(table: MirroredTable, state: State) -> ReplicationStatus:
    """Return the replication status of a table with an acknowledged state. Asks every domain once."""
    behind: dict[str, int | None] = {}
    whole, others = [], []
    roles = {replica.domain: replica.role for replica in state.locator.replicas}
    domains = list(roles)
    reads = {domain: functools.partial(table.read, domain, state.locator) for domain in domains}
    answers = table.couriers.gather_from_all(reads)
    for domain in domains:
        record = answers.get(domain, Answer(None)).record
        if record is not None and _has_forked(table, domain, record, state):
            others.append(domain)
            record = None
        behind[domain] = None if record is None else max(0, state.version - record.published.version)
        voted = record is not None and record.accepted is not None and record.accepted.covers(state)
        # A domain votes for durable data only, and only once it has everything up to that version.
        if roles[domain] is not Role.WITNESS and (behind[domain] == 0 or voted):
            whole.append(domain)
    return ReplicationStatus(
        leader=state.epoch.domain or None,
        epoch=state.epoch.number,
        generation=state.locator.generation,
        version=state.version,
        one_copy=state.locator.one_copy,
        behind=behind,
        roles=roles,
        whole=tuple(whole),
        forked=tuple(others),
    )


def _has_forked(table: MirroredTable, domain: str, record: Record, state: State) -> bool:
    try:
        return forked(table.replica(domain, state.locator), record, state, ()) is not None
    except Unanswered:
        return False


def holdings(table: MirroredTable, state: State) -> list[Holding]:
    """Return the places of a table's data, in every domain that must have it, this process's domain first.

    Raises:
        DomainUnavailable: one of the domains does not answer, or has another history.
    """
    found = []
    for agreed in state.locator.replicas:
        if not agreed.has_data:
            continue
        answer = table.read(agreed.domain, state.locator)
        if answer.record is None:
            raise DomainUnavailable(
                f"how far {agreed.domain} has the table {table.name} cannot be told: "
                f"{answer.problem or 'it has no register'}",
                fix="bring it back first; a domain that is lost for good gets an empty root and `domains"
                " heal --new-root`",
                domain=agreed.domain,
            )
        replica, at = table.replica(agreed.domain, state.locator), answer.record.published
        if (fork := forked(replica, answer.record, state, ())) is not None:
            raise DomainUnavailable(
                f"how far {agreed.domain} has the table {table.name} cannot be told: {fork}",
                fix=f"see docs/operations.md, A fork; `etl-assets tables repair {table.name}`",
                domain=agreed.domain,
            )
        found.append(
            Holding(
                domain=agreed.domain,
                store=replica.store,
                folder=replica.folder(at.folder),
                version=max(at.version, state.base.first),
            )
        )
    return sorted(found, key=lambda holding: holding.domain != table.home)

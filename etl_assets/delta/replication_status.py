"""Where a mirrored table stands, and where its data is: read from the registers, and nothing changed.

Belongs here: what the registers say of an acknowledged state. Does not belong here: whether the log and the files are what they
say (`mirroring/verification.py`), and what becomes of it (`replicas/reconcile.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import DomainUnavailable, Unanswered
from etl_assets.mirroring.fork import forked
from etl_assets.mirroring.locator import Role
from etl_assets.mirroring.table import Answer

if TYPE_CHECKING:
    from etl_assets.mirroring.record import Record, State
    from etl_assets.mirroring.stores import Store
    from etl_assets.mirroring.table import MirroredTable


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationStatus:
    """Where a mirrored table stands.

    Attributes:
        leader: The domain that leads it, None if none does yet or that cannot be told.
        epoch: Number of the fence epoch.
        generation: The locator's generation.
        version: The acknowledged version, -1 for none.
        one_copy: Commits are acknowledged with the data in one domain.
        behind: For each domain with a replica how many acknowledged versions it lacks; None where it does not answer, or has
            published another history.
        roles: What each replica is for.
        whole: Domains that hold the acknowledged version with all its rows, published or voted for: it survives there.
        problem: Why the rest is not known, None if it is.
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
        """Nothing can be told."""
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
        version: Up to which version it is there, or from which on it will be: what it has not got of later ones it is
            still to get.
    """

    domain: str
    store: Store
    folder: str
    version: int


def standing(table: MirroredTable, state: State) -> ReplicationStatus:
    """Where a table with an acknowledged state stands. Asks every domain once."""
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
        # A vote is given for durable data only, and for nothing before everything up to it is there.
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
    """Where a table's data is, in every domain that is to have it, this process's one first.

    Raises:
        DomainUnavailable: one of them does not answer, or has another history.
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
                fix="bring it back first; a domain that is lost for good gets an empty root and `domains heal --new-root`",
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

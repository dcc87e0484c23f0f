"""Bootstrap: make a table mirrored by creating its register in every domain, once.

A table that one of the domains has already begins with that copy (`first_copy.py`). The register of that
domain is created first, and says what the others must hold before they get theirs: a register with that state
is a vote for it.

A register that is missing later was lost with its promises. It is not created again here; its domain rejoins
as a learner (`membership.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from etl_assets.errors import MembershipRefused
from etl_assets.mirroring.protocol.chain import GENESIS
from etl_assets.mirroring.protocol.epochs import BEFORE_ALL
from etl_assets.mirroring.protocol.first_copy import Conversion, begin_with, find_first_copy
from etl_assets.mirroring.protocol.locator import Locator, ReplicaConfig, Role
from etl_assets.mirroring.protocol.record import NOTHING_PUBLISHED, Published, Record, State
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.protocol.voter import Voter


def bootstrap(
    table: MirroredTable,
    roles: Mapping[str, Role],
    new_incarnation: Callable[[], str],
    conversion: Conversion,
) -> Locator:
    """Create the table's register in all its domains.

    All domains must answer, because one that does not may have the table's rows. An interrupted bootstrap is
    completed by running it again, as long as no domain has led the table.

    Args:
        table: The table, with a root for each domain.
        roles: Role of each domain.
        new_incarnation: Makes names that were never used before.
        conversion: Closes the first copy, if a domain has one.

    Returns:
        The first locator.

    Raises:
        Unanswered: not every domain answers. What was created stays; run it again.
        MembershipRefused: no domain is a voter, several domains have a copy, the domain with the copy is no
            voter, the table is mirrored already, or another bootstrap was begun there.
        ReplicaCorrupt: the first copy cannot be taken over, or a register cannot be read.
    """
    voters = [domain for domain in sorted(roles) if roles[domain] is Role.VOTER]
    if not voters:
        raise _refused(table, "no domain is a voter with data", "give at least one domain the role voter")
    # 1. Registers that exist must be those of an unfinished bootstrap.
    existing = _existing(table, roles)
    if any(
        _forget_published(record) != _first(table, domain, record.accepted)
        for domain, record in existing.items()
    ):
        missing = ", ".join(sorted(set(roles) - set(existing)))
        raise _refused(
            table,
            f"it is mirrored already{f', and the register is gone in {missing}' if missing else ''}",
            "nothing needs to be done; a domain whose register is gone rejoins as a learner: `tables repair`",
        )
    # 2. Continue with the state of that bootstrap, or make the first state.
    state = next((record.accepted for record in existing.values() if record.accepted is not None), None)
    holding = {domain: record.published for domain, record in existing.items()}
    if state is None:
        state, holding = _first_state(table, roles, new_incarnation, conversion)
    begun = {replica.domain: (replica.uri, replica.role) for replica in state.locator.replicas}
    if begun != {domain: (table.roots[domain], role) for domain, role in roles.items()}:
        raise _refused(
            table,
            f"a bootstrap with other replicas was begun under these roots ({', '.join(sorted(begun))})",
            "give each platform roots of its own; or finish it with the same domains, roots and roles",
        )
    # 3. Create the registers. Every process uses the same order: one that loses the first register leaves the
    # others alone, so that the winner gets them all.
    for domain in sorted(roles, key=lambda domain: (domain not in holding, domain)):
        if not _create(table, domain, state, holding):
            break
    created = _existing(table, roles)
    if any(
        domain not in created or _forget_published(created[domain]) != _first(table, domain, state)
        for domain in roles
    ):
        raise _refused(
            table, "another process creates it at the same time", "look at what they created; run it again"
        )
    return state.locator


def _create(table: MirroredTable, domain: str, state: State, holding: Mapping[str, Published]) -> bool:
    """Create a domain's register, after its replica holds the first state.

    Returns:
        False if the domain has another register.
    """
    register, record = table.replica(domain).register, _first(table, domain, state)
    if register.read() is None:
        published = holding.get(domain)
        if published is None and state.version >= 0:
            sources = [(table.replica(other), there.folder) for other, there in holding.items()]
            published = Voter(table, domain, state.locator).install(state, sources)
        register.create(record if published is None else record.publish(published))
    held = register.read()
    return held is not None and _forget_published(held.record) == record


def _first_state(
    table: MirroredTable,
    roles: Mapping[str, Role],
    new_incarnation: Callable[[], str],
    conversion: Conversion,
) -> tuple[State, dict[str, Published]]:
    """Return the first state, and its published part in the domain that has the first copy, if any."""
    replicas = tuple(
        ReplicaConfig(domain=domain, uri=table.roots[domain], role=role, incarnation=new_incarnation())
        for domain, role in sorted(roles.items())
    )
    locator = Locator(generation=1, one_copy=False, replicas=replicas)
    domain = find_first_copy(table, roles)
    if domain is None:
        return State(epoch=BEFORE_ALL, version=-1, chain=GENESIS, locator=locator), {}
    if roles[domain] is not Role.VOTER:
        raise _refused(
            table,
            f"{domain}, which has its rows, is to be a {roles[domain]}",
            f"give {domain} the role voter; it can be made less once the others have everything",
        )
    state, published = begin_with(table, domain, locator, conversion)
    return state, {domain: published}


def _first(table: MirroredTable, domain: str, state: State | None) -> Record:
    """Return the record of a domain, without its published part, for a table that no domain has led."""
    agreed = None if state is None else state.locator.replica(domain)
    return Record(
        table=table.name,
        incarnation="" if agreed is None else agreed.incarnation,
        promised=BEFORE_ALL,
        accepted=state if state is not None and state.epoch == BEFORE_ALL else None,
        published=NOTHING_PUBLISHED,
    )


def _forget_published(record: Record) -> Record:
    return replace(record, published=NOTHING_PUBLISHED)


def _existing(table: MirroredTable, roles: Mapping[str, Role]) -> dict[str, Record]:
    """Return the existing registers, by domain.

    Raises:
        Unanswered: a domain does not say whether it has one.
    """
    records: dict[str, Record] = {}
    held = {domain: table.replica(domain).register for domain in sorted(roles)}
    for domain, register in held.items():
        found = register.read()
        if found is not None:
            records[domain] = found.record
    return records


def _refused(table: MirroredTable, why: str, fix: str) -> MembershipRefused:
    return MembershipRefused(
        f"the table {table.name} cannot be made mirrored: {why}", fix=fix, table=table.name
    )

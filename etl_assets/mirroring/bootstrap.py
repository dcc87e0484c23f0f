"""Making a table mirrored: its register in every voter at once, and never again after that.

A register that is missing later was lost with what it promised. It is not made anew here; its domain rejoins as a
learner (`membership.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from etl_assets.errors import MembershipRefused
from etl_assets.mirroring.chain import GENESIS
from etl_assets.mirroring.epochs import BEFORE_ALL
from etl_assets.mirroring.locator import Locator, Replica, Role
from etl_assets.mirroring.record import NOTHING_PUBLISHED, Record, State
from etl_assets.mirroring.table import MirroredTable


def bootstrap(table: MirroredTable, roles: Mapping[str, Role], new_incarnation: Callable[[], str]) -> Locator:
    """Create the table's register in all its domains. All must answer.

    What the log of a domain holds already is not looked at: the first leader pushes what its own folder has, every
    version of it, to the others.

    A bootstrap that was cut short is finished by running it again, as long as nobody has led the table.

    Args:
        table: The table, with a root for each domain.
        roles: Role of each domain.
        new_incarnation: Makes names that were never used before.

    Returns:
        The first locator.

    Raises:
        Unanswered: not every domain answers. What was created stays; run it again.
        MembershipRefused: the roles make no quorum, or the table is mirrored already.
    """
    voters = [domain for domain in sorted(roles) if roles[domain] is Role.VOTER]
    if not voters:
        raise _refused(table, "no domain is a voter with data", "give at least one domain the role voter")
    existing = _existing(table, roles)
    if any(record != _first(table, domain, record.accepted) for domain, record in existing.items()):
        missing = ", ".join(sorted(set(roles) - set(existing)))
        raise _refused(
            table,
            f"it is mirrored already{f', and the register is gone in {missing}' if missing else ''}",
            "nothing needs to be done; a domain whose register is gone rejoins as a learner: `tables repair`",
        )
    state = next((record.accepted for record in existing.values() if record.accepted is not None), None)
    if state is None:
        state = _first_state(table, roles, new_incarnation)
    begun = {replica.domain: (replica.uri, replica.role) for replica in state.locator.replicas}
    if begun != {domain: (table.roots[domain], role) for domain, role in roles.items()}:
        raise _refused(
            table,
            f"a bootstrap with other replicas was begun under these roots ({', '.join(sorted(begun))})",
            "give each platform roots of its own; or finish it with the same domains, roots and roles",
        )
    for domain in sorted(roles):
        register, first = table.replica(domain).register, _first(table, domain, state)
        register.create(first)
        # Everybody goes by the same order: who loses the first one leaves the others alone, so that the winner gets them all.
        if (held := register.read()) is None or held.record != first:
            break
    created = _existing(table, roles)
    if any(created.get(domain) != _first(table, domain, state) for domain in roles):
        raise _refused(
            table, "somebody else creates it at the same time", "look at what they created; run it again"
        )
    return state.locator


def _first_state(
    table: MirroredTable, roles: Mapping[str, Role], new_incarnation: Callable[[], str]
) -> State:
    replicas = tuple(
        Replica(domain=domain, uri=table.roots[domain], role=role, incarnation=new_incarnation())
        for domain, role in sorted(roles.items())
    )
    locator = Locator(generation=1, one_copy=False, replicas=replicas)
    return State(epoch=BEFORE_ALL, version=-1, chain=GENESIS, locator=locator)


def _first(table: MirroredTable, domain: str, state: State | None) -> Record:
    """The record of a domain in a table that nobody has led."""
    agreed = None if state is None else state.locator.replica(domain)
    return Record(
        table=table.name,
        incarnation="" if agreed is None else agreed.incarnation,
        promised=BEFORE_ALL,
        accepted=state if state is not None and state.epoch == BEFORE_ALL else None,
        published=NOTHING_PUBLISHED,
    )


def _existing(table: MirroredTable, roles: Mapping[str, Role]) -> dict[str, Record]:
    """Registers that are there; every domain must say whether it has one."""
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

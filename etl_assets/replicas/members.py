"""Reconcile the replicas of a table with the platform file.

Domains join, are promoted, rejoin after they lost their register, and are removed. Degraded mode sets how
many of them must have the data while others are unavailable.

Belongs here: what follows from the roles in the platform file, those in the register, and the health of the
domains. Does not belong here: how a change of the replicas is agreed on (`mirroring/protocol/membership.py`).
Each step may be repeated. The next round completes an interrupted step, because it reads the remaining work
from the register.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import DomainUnavailable, MembershipRefused, MirrorError, Unanswered
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.health import HealthState
from etl_assets.steps.placing import place
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etl_assets.delta.replicated.replication import Replication
    from etl_assets.mirroring.protocol.locator import Locator
    from etl_assets.placement.domains import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class MembersPlan:
    """Changes that the platform file asks for in a table's replicas.

    Attributes:
        join: Domains that have no replica yet.
        promote: Learners that are to vote.
        strays: Domains with a replica that the platform file does not name.
        fixed: Sentences by domain, for roles that the file changed in a way that no round carries out.
    """

    join: tuple[str, ...] = ()
    promote: tuple[str, ...] = ()
    strays: tuple[str, ...] = ()
    fixed: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """Result of reconciling the replicas of one table.

    Attributes:
        rejoined: Domains whose lost register was replaced.
        joined: Domains that now have the role that the platform file gives them.
        problems: Differences from the platform file that remain, in sentences.
    """

    rejoined: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def plan_members(agreed: Mapping[str, Role], wanted: Mapping[str, Role]) -> MembersPlan:
    """Compare the roles that the voters agreed on with those of the platform file.

    A domain that the file no longer names keeps its replica: a slip in the file must not cost a copy.
    """
    both = [name for name in wanted if name in agreed]
    return MembersPlan(
        join=tuple(name for name in wanted if name not in agreed),
        promote=tuple(
            name for name in both if agreed[name] is Role.LEARNER and wanted[name] is not Role.LEARNER
        ),
        strays=tuple(name for name in agreed if name not in wanted),
        fixed={
            name: f"{name} is a {agreed[name]} and the platform file says {wanted[name]}: take it out of the"
            f" file, `etl-assets domains remove {name}`, then put it back"
            for name in both
            if agreed[name] is not Role.LEARNER and wanted[name] is not agreed[name]
        },
    )


def reconcile_members(placement: Placement, mirrored: Replication) -> Members:
    """Bring the replicas of a table that this domain leads closer to the platform file.

    Raises:
        MirrorError: the domain no longer leads, or too few domains answer.
    """
    wanted = {site.name: site.role for site in placement.sites}
    lost = [name for name in mirrored.membership.forgotten() if name in wanted]
    plan = plan_members(mirrored.roles(), wanted)
    rejoined, joined, problems = [], [], [*plan.fixed.values()]
    for name in (*lost, *plan.join, *(each for each in plan.promote if each not in lost)):
        if (why := placement.unusable(placement.site(name))) is not None:
            # The health of a domain that lost its register already reports why it is unusable.
            problems += [] if name in lost else [f"{name} waits to join: {why}"]
            continue
        try:
            if _give_role(mirrored, name, wanted[name]):
                (rejoined if name in lost else joined).append(name)
        except (MirrorError, Unanswered) as error:
            problems.append(f"{name} cannot join: {error.message}")
    problems += [
        f"{why}: `etl-assets tables repair {mirrored.name}`"
        for why in mirrored.membership.unreadable().values()
    ]
    problems += [
        f"{name} {why}: `etl-assets tables repair {mirrored.name}`, once it is known which history counts"
        for name, why in mirrored.forked().items()
    ]
    problems += [
        f"{name} holds a replica and is not in the platform file: put it back, or `etl-assets domains remove"
        f" {name}`"
        for name in plan.strays
    ]
    return Members(rejoined=tuple(rejoined), joined=tuple(joined), problems=tuple(problems))


def _give_role(mirrored: Replication, name: str, role: Role) -> bool:
    """Add a domain to the replicas, and promote it if its role votes.

    Returns:
        False if it has not caught up yet and cannot be promoted; the next round continues.
    """
    mirrored.membership.add(name)
    if role is Role.LEARNER:
        return True
    try:
        mirrored.membership.promote(name, witness=role is Role.WITNESS)
    except MembershipRefused:
        return False
    return True


def enter_degraded_mode(placement: Placement, seen: Replication) -> bool:
    """Enter degraded mode if one voter with data is left and a majority answers.

    In degraded mode a table needs its data in that one domain only.

    Two voters and a witness survive the loss of one voter this way. The register records the change, and
    `leave_degraded_mode` reverts it. The remaining voter leads from then on; its claim makes sure that it has
    everything acknowledged.

    Args:
        placement: The failure domains.
        seen: The table, from any domain.

    Returns:
        Whether degraded mode was entered.

    Raises:
        MirrorError: the voters cannot agree on it.
        DomainUnavailable: no domain may and can lead the table.
    """
    locator = seen.locator()
    if locator is None or locator.copies_needed == 1:
        return False
    there = set(locator.voters) - _gone(placement, seen, locator)
    left = there.intersection(locator.domains(Role.VOTER))
    if len(left) != 1 or not locator.is_majority(there):
        return False
    domain = placement.place(
        placement.catalog.placement_of(seen.name), table=seen.name, leader=next(iter(left))
    )
    mirrored = platform_table(seen.name, domain).replication
    if domain.name not in left or mirrored is None:
        return False
    mirrored.membership.set_one_copy(True)
    return True


def leave_degraded_mode(mirrored: Replication) -> bool:
    """Clear the one-copy flag as soon as a second voter has all data.

    Returns:
        Whether the flag was cleared.

    Raises:
        MirrorError: this domain does not lead, or too few voters answer.
    """
    standing = mirrored.standing()
    if standing is None or not standing.one_copy:
        return False
    voters = [name for name in standing.whole if standing.roles[name] is Role.VOTER]
    if len(voters) < 2:
        return False
    mirrored.membership.set_one_copy(False)
    return True


def _gone(placement: Placement, seen: Replication, locator: Locator) -> set[str]:
    """Return the voters that cannot vote.

    These are the domains known to be unavailable; one that failed a single probe is waited for. They also
    include the domains that lost their register on a usable root. A register that is missing because its disk
    is not mounted is waited for.
    """
    silent = {
        name
        for name in locator.voters
        if placement.watch.observations.of(name).state is HealthState.UNAVAILABLE
    }
    forgot = seen.without_memory(locator)
    return silent | {
        site.name for site in placement.sites if site.name in forgot and placement.unusable(site) is None
    }


def take_out(placement: Placement, name: str) -> Iterator[tuple[str, str | None]]:
    """Remove a domain's replicas from every table, one table after the other. The files under its root stay.

    Yields:
        Each table of which the domain had a replica, and the reason why it still has it; None if it was
        removed.
    """
    for table in placement.catalog.every_name():
        try:
            if _take_out(placement, table, name):
                yield table, None
        except (MirrorError, Unanswered, DomainUnavailable) as error:
            yield table, f"{error.message} ({error.fix})"


def _take_out(placement: Placement, table: str, name: str) -> bool:
    seen = platform_table(table, placement.reader()).replication
    standing = None if seen is None else seen.standing()
    if standing is None or name not in standing.roles:
        return False
    mirrored = platform_table(table, place(placement, table)).replication
    if mirrored is None:
        return False
    mirrored.lead()
    with suppress(MirrorError):  # `remove` itself enforces two copies and a majority.
        mirrored.follow()
    mirrored.membership.remove(name)
    return True

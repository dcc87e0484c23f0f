"""Placement of a stage, given the domain that leads the table it writes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from etl_assets.errors import Leaderless, MirrorError, Unanswered
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.mirroring.protocol.locator import Locator
    from etl_assets.mirroring.protocol.record import State

T = TypeVar("T")
logger = logging.getLogger("etl_assets")


def place(placement: Placement, table: str) -> FailureDomain:
    """Return the domain that runs the stage of a table now.

    It is the domain where the stage ran before, as long as that may and can continue.

    A domain that has lost its replica of the table cannot, however healthy it is: it has to rejoin first,
    under another leader. While no domain leads, the last claimant is preferred, so that every process
    completes the same claim. Sensors call this, and the run calls it again, so that both name the same
    domain.

    Raises:
        DomainUnavailable: no domain may and can run the stage.
        NotFound: there is no such table.
    """
    stage = placement.catalog.placement_of(table)
    leads, locator, state = _led_by(placement, table)
    unfit: dict[str, str] = {}
    while True:
        domain = placement.place(stage, table=table, leader=leads, unfit=unfit)
        mirrored = platform_table(table, domain).replication
        problem = None if mirrored is None or locator is None else mirrored.problem(locator, state)
        if problem is None:
            return domain
        unfit[domain.name] = problem


def take_up(placement: Placement, table: str) -> FailureDomain:
    """Complete an interrupted leader change.

    The domain that runs the table's stage leads the table from then on.

    Raises:
        DomainUnavailable: no domain may and can lead.
        MirrorError: too few domains answer, or others claim at the same time. The next process that needs the
            table tries again.
    """
    domain = place(placement, table)
    mirrored = platform_table(table, domain).replication
    if mirrored is not None:
        lead = mirrored.lead()
        logger.warning("%s: nobody led it; led by %s from version %d on", table, domain.name, lead.version)
    return domain


def once_led(placement: Placement, look: Callable[[], T]) -> T:
    """Run `look`, which reads tables before a write, and return its result.

    If a table has no leader, its leader change is completed and `look` runs again, once for each table.

    Raises:
        Exception: any error of `look` or of `take_up`.
    """
    taken_up: set[str] = set()
    while True:
        try:
            return look()
        except Leaderless as error:
            if (table := str(error.table)) in taken_up:
                raise
            taken_up.add(table)
            take_up(placement, table)


def leader(placement: Placement, table: str) -> str | None:
    """Return the domain that leads a table; None if none does, or too few domains answer to know."""
    seen = platform_table(table, placement.domains[0]).replication
    try:
        state = None if seen is None else seen.acknowledged()
    except (MirrorError, Unanswered):
        return None
    return None if state is None else state.epoch.domain or None


def another_leader(placement: Placement, table: str, than: str) -> str | None:
    """Return another domain that may and, judging by its current state, can lead a table; None without one.

    Changes nothing.
    """
    _, _, state = _led_by(placement, table)
    stage = placement.catalog.placement_of(table)
    for domain in placement.domains:
        if domain.name == than or not placement.policy.allows(stage, domain.name):
            continue
        mirrored = platform_table(table, domain).replication
        locator = None if mirrored is None else mirrored.locator()
        if mirrored is None or locator is None or placement.problem(domain) is not None:
            continue
        if placement.site(domain.name).may_lead and mirrored.problem(locator, state) is None:
            return domain.name
    return None


def _led_by(placement: Placement, table: str) -> tuple[str | None, Locator | None, State | None]:
    """Return the domain that leads a table or claimed it last, the table's replicas, and its state.

    The state is the acknowledged one.

    A part is None if it cannot be determined.
    """
    seen = platform_table(table, placement.domains[0]).replication
    try:
        state = None if seen is None else seen.acknowledged()
    except Leaderless as error:
        return error.claimant or None, None if seen is None else seen.locator(), None
    except (MirrorError, Unanswered):
        return None, None, None
    return (None, None, None) if state is None else (state.epoch.domain or None, state.locator, state)

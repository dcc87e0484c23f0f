"""Where a stage runs: the placement's decision, told which domain leads the table the stage writes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from etl_assets.errors import Leaderless, MirrorError, Unanswered
from etl_assets.placement.domains import FailureDomain, Placement
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.mirroring.locator import Locator
    from etl_assets.mirroring.record import State

T = TypeVar("T")
logger = logging.getLogger("etl_assets")


def place(placement: Placement, table: str) -> FailureDomain:
    """The domain that runs the stage of a table now: where it ran before, as long as that may and can go on.

    A domain whose part of the table is lost cannot, however healthy it is: it has to rejoin first, under another leader.
    While nobody leads it is the domain that claimed last, so that all who help help the same one.
    Sensors ask for the domain, and the run asks again, so that both name the same.

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
    """End a change of leader that was left in the middle: the domain that runs the table's stage leads it from then on.

    Raises:
        DomainUnavailable: no domain may and can.
        MirrorError: too few domains answer, or others claim at the same time: whoever needs the table tries again later.
    """
    domain = place(placement, table)
    mirrored = platform_table(table, domain).replication
    if mirrored is not None:
        lead = mirrored.lead()
        logger.warning("%s: nobody led it; led by %s from version %d on", table, domain.name, lead.version)
    return domain


def once_led(placement: Placement, look: Callable[[], T]) -> T:
    """What a look at tables finds, for whoever is about to write: one that nobody leads is led first, each once.

    Raises:
        Exception: whatever the look raises, and `take_up`.
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
    """The domain that leads a table; None if nobody does, or too few domains answer to tell."""
    seen = platform_table(table, placement.domains[0]).replication
    try:
        state = None if seen is None else seen.acknowledged()
    except (MirrorError, Unanswered):
        return None
    return None if state is None else state.epoch.domain or None


def another_leader(placement: Placement, table: str, than: str) -> str | None:
    """Another domain that may and could lead a table, as it looks now; None if there is none. Changes nothing."""
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
    """The domain that leads a table, or claimed last to, its replicas and what is acknowledged; None of what cannot be told."""
    seen = platform_table(table, placement.domains[0]).replication
    try:
        state = None if seen is None else seen.acknowledged()
    except Leaderless as error:
        return error.claimant or None, None if seen is None else seen.locator(), None
    except (MirrorError, Unanswered):
        return None, None, None
    return (None, None, None) if state is None else (state.epoch.domain or None, state.locator, state)

"""Scrub replicas that no run needs at the moment, so that damage is found before they are needed.

Belongs here: which piece of which replica comes next, and rebuilding a damaged replica. Does not belong here:
what is compared (`mirroring/maintenance/inspection.py`).

A leader's log is compared before the domain leads, and a reader's log before it is read. A replica that is
neither would keep its damage until it is the last one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from etl_assets.errors import DomainUnavailable, MirrorError, Unanswered
from etl_assets.mirroring.maintenance.inspection import ScrubFinding, ScrubProgress
from etl_assets.replicas.long_work import LongWork
from etl_assets.replicas.reconcile import ReconcileResult, unforeseen
from etl_assets.steps.placing import leader
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.delta.replicated.replication import Replication
    from etl_assets.placement.domains import Placement

_long_work = LongWork()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubCursor:
    """Position of the scrub.

    Attributes:
        table: The next table.
        domain: The next domain of that table; empty: its first.
        seen: How far the replica in that domain has been scrubbed.
        damaged: Damage of replicas that could not be rebuilt, by table and domain. An entry stays until its
            replica is scrubbed again.
    """

    table: str = ""
    domain: str = ""
    seen: ScrubProgress | None = None
    damaged: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def scrub(
    placement: Placement, last: ScrubCursor, *, seconds: float, wait_seconds: float = math.inf
) -> tuple[ScrubCursor, list[ReconcileResult]]:
    """Scrub the replicas of one table, or a part of them, and rebuild a damaged one.

    Args:
        placement: The failure domains.
        last: Where the last call ended.
        seconds: After this time no further piece is begun; one piece is scrubbed in any case.
        wait_seconds: Work that takes longer, because a replica is rebuilt, continues in this process; the
            first call after its end reports the result.

    Returns:
        Where the next call continues, and what to report: replicas that were rebuilt, and those that could
        not be.
    """
    names = placement.catalog.every_name()
    table = last.table if last.table in names else names[0]
    following = replace(last, table=names[(names.index(table) + 1) % len(names)], domain="", seen=None)
    try:
        work = partial(_look_over, placement, replace(last, table=table), following, seconds)
        survey, repaired = _long_work.ask((placement.sites, table), work, wait_seconds) or (last, ())
    except (MirrorError, Unanswered, DomainUnavailable):
        survey, repaired = following, ()  # reconciling the table reports the reason
    except (OSError, ValueError) as error:
        # Reported like damage of a domain without a name, until the table is scrubbed again.
        known = {**last.damaged.get(table, {}), "": unforeseen(table, error)}
        survey, repaired = _with(following, table, known), ()
    found = [
        ReconcileResult(table=name, problem="; ".join(problems.values()))
        for name, problems in survey.damaged.items()
        if problems
    ]
    return survey, ([ReconcileResult(table=table, repaired=repaired)] if repaired else []) + found


def _look_over(
    placement: Placement, at: ScrubCursor, following: ScrubCursor, seconds: float
) -> tuple[ScrubCursor, tuple[str, ...]]:
    # The leader's view of the table reads the other replicas and rebuilds damaged ones. A table without a
    # leader is skipped.
    led_by = placement.named(leader(placement, at.table) or "")
    mirrored = None if led_by is None else platform_table(at.table, led_by).replication
    standing = None if mirrored is None else mirrored.standing()
    if mirrored is None or standing is None:
        return following, ()
    until, domains = time.monotonic() + seconds, sorted(standing.roles)
    damaged = {domain: why for domain, why in at.damaged.get(at.table, {}).items() if domain in domains}
    seen = at.seen if at.domain in domains else None
    # Scrub domain by domain, from the cursor on. Return early once the time is over or a replica was rebuilt.
    for domain in domains[domains.index(at.domain) if at.domain in domains else 0 :]:
        repaired = False
        if standing.behind[domain] is not None or domain in standing.forked:
            found = _pieces(mirrored, domain, seen, until)
            if found.seen is not None:
                return _with(replace(at, domain=domain, seen=found.seen), at.table, damaged), ()
            damaged.pop(domain, None)
            if found.problem is not None:
                problem = (
                    f"{domain} {found.problem}: `etl-assets tables repair {at.table}` builds it again from"
                    " the others, once it is"
                    " known that theirs is the history that counts (docs/operations.md, A fork)"
                    if found.forked
                    else _rebuild(mirrored, domain, found.problem)
                )
                damaged |= {domain: problem} if problem else {}
                repaired = problem is None
        seen = None
        if repaired or time.monotonic() > until:
            after = domains[domains.index(domain) + 1 :]
            goes_on = replace(at, domain=after[0], seen=None) if after else following
            return _with(goes_on, at.table, damaged), (domain,) if repaired else ()
    return _with(following, at.table, damaged), ()


def _pieces(mirrored: Replication, domain: str, since: ScrubProgress | None, until: float) -> ScrubFinding:
    """Scrub one replica from a position to its end, or until the time is over."""
    while True:
        found = mirrored.look(domain, since)
        if found.problem is not None:
            # A file may have been published or removed during the comparison. Real damage shows a second
            # time.
            found = mirrored.look(domain, since)
        if found.seen is None or time.monotonic() > until:
            return found
        since = found.seen


def _rebuild(mirrored: Replication, domain: str, problem: str) -> str | None:
    """Rebuild a damaged replica.

    Returns:
        None, or the damage and the reason why it remains if the rebuild failed.
    """
    try:
        mirrored.rebuild(domain)
    except (MirrorError, Unanswered) as error:
        return f"{domain} is damaged ({problem}) and was not rebuilt: {error.message} ({error.fix})"
    return None


def _with(survey: ScrubCursor, table: str, damaged: Mapping[str, str]) -> ScrubCursor:
    others = {name: found for name, found in survey.damaged.items() if name != table}
    return replace(survey, damaged={**others, table: damaged} if damaged else others)

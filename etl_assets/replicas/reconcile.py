"""Reconcile mirrored tables between runs: update replicas, move leaders, make checkpoints, truncate logs.

Belongs here: one round over the tables, bounded in time and safe to repeat, without Spark. Does not belong
here: which replicas a table is to have (`members.py`), and when a round is due
(`sensors/failure_domains.py`).
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

from etl_assets.errors import DomainUnavailable, Leaderless, MirrorError, QuorumUnavailable, Unanswered
from etl_assets.mirroring.maintenance.log_cleanup import MOVES_PER_RETENTION
from etl_assets.mirroring.protocol.checkpoints import EVERY
from etl_assets.replicas.long_work import LongWork
from etl_assets.replicas.members import enter_degraded_mode, leave_degraded_mode, reconcile_members
from etl_assets.steps.placing import place, take_up
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.delta.replicated.replication import Replication
    from etl_assets.placement.domains import Placement

logger = logging.getLogger("etl_assets")

_long_work = LongWork()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileResult:
    """Result of a round for one table, or the reason why it failed.

    Attributes:
        table: The table.
        moved: The domain that leads now, if another one led before.
        rejoined: Domains whose lost register was replaced, and whose replica was rebuilt from nothing.
        joined: Domains that now have the role that the platform file gives them.
        repaired: Domains whose replica was damaged and has been rebuilt.
        one_copy: True if the one-copy flag was set, False if it was cleared, None if it was left as it is.
        left: Whether the table is left to a later round, or still under way.
        problem: Why something could not be done, in sentences.
    """

    table: str
    moved: str | None = None
    rejoined: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    repaired: tuple[str, ...] = ()
    one_copy: bool | None = None
    left: bool = False
    problem: str | None = None

    @property
    def told(self) -> bool:
        """Whether there is anything to report."""
        return self != ReconcileResult(table=self.table)

    def __str__(self) -> str:
        parts = [f"led by {self.moved} from now on"] if self.moved else []
        parts += [f"{domain} was rebuilt" for domain in self.rejoined]
        parts += [f"{domain} joined" for domain in self.joined]
        parts += [f"{domain} was damaged and rebuilt" for domain in self.repaired]
        if self.one_copy is not None:
            parts.append("goes on with one copy" if self.one_copy else "has two copies again")
        parts += ["looked after in a later round"] if self.left else []
        parts += [self.problem] if self.problem else []
        return f"{self.table}: {', '.join(parts) or 'nothing to do'}"


def reconcile_replicas(
    placement: Placement,
    *,
    begin: str | None = None,
    seconds: float = math.inf,
    wait_seconds: float = math.inf,
    keep_log_versions: int | None = None,
) -> list[ReconcileResult]:
    """Run one round over all tables. A table that fails is reported, and does not stop the others.

    Args:
        placement: The failure domains.
        begin: The table to begin with, so that a round continues where another one ended.
        seconds: After this time no further table is begun: the rest are `left`.
        wait_seconds: A table that takes longer, because much has to be copied, is `left` as well. Its work
            continues in this process, and the first round after its end reports the result.
        keep_log_versions: Versions that stay in each log; older ones are removed. None: all stay.
    """
    names = placement.catalog.every_name()
    first = names.index(begin) if begin in names else 0
    until, kept = time.monotonic() + seconds, []
    for number, table in enumerate((*names[first:], *names[:first])):
        if number and time.monotonic() > until:
            kept.append(ReconcileResult(table=table, left=True))
            continue
        try:
            work = partial(_keep, placement, table, keep_log_versions)
            done = _long_work.ask((placement.sites, table), work, wait_seconds)
            kept.append(ReconcileResult(table=table, left=True) if done is None else done)
        except (MirrorError, Unanswered, DomainUnavailable) as error:
            kept.append(ReconcileResult(table=table, problem=error.message))
        except (OSError, ValueError) as error:
            kept.append(ReconcileResult(table=table, problem=unforeseen(table, error)))
    return [each for each in kept if each.told]


def resume_from(kept: Sequence[ReconcileResult]) -> str | None:
    """Return the table that the next round begins with: the first for which there was no time.

    Those are the last tables of a round. A table before them that is still under way must not come first each
    time, or the tables after it would never be reconciled.
    """
    no_time = list(takewhile(lambda each: each.left, reversed(kept)))
    return no_time[-1].table if no_time else None


def unforeseen(table: str, error: Exception) -> str:
    """Log an unexpected error with its traceback, and return the sentence to report for its table."""
    logger.warning("%s could not be looked after", table, exc_info=error)
    return f"{type(error).__name__}: {error}"


def _keep(placement: Placement, table: str, keep_log_versions: int | None) -> ReconcileResult:
    seen = platform_table(table, placement.reader()).replication
    if seen is None:
        return ReconcileResult(table=table)
    # 1. Find the acknowledged state. Without a quorum enter degraded mode; without a leader complete the
    # leader change.
    one_copy, led_before = None, None
    try:
        state = seen.acknowledged()
    except QuorumUnavailable as error:
        if enter_degraded_mode(placement, seen):
            one_copy = True
        elif isinstance(error, Leaderless):
            led_before = error.leader
            take_up(placement, table)
        else:
            raise
        state = seen.acknowledged()
    # 2. A table that no domain has led needs no leader while all its replicas exist.
    if state is None or (not state.epoch.domain and _is_as_made(placement, seen)):
        return ReconcileResult(table=table)
    # 3. Lead the table from the domain that the placement chooses.
    domain = place(placement, table)
    mirrored = platform_table(table, domain).replication
    if mirrored is None:
        return ReconcileResult(table=table)
    mirrored.lead()
    led_before = state.epoch.domain if led_before is None else led_before
    # 4. Reconcile the replicas, bring them up to date, then write checkpoints and truncate logs.
    members = reconcile_members(placement, mirrored)
    mirrored.follow()
    problems = filter(None, [*members.problems, _tidy(mirrored, keep_log_versions)])
    return ReconcileResult(
        table=table,
        moved=domain.name if led_before not in ("", domain.name) else None,
        rejoined=members.rejoined,
        joined=members.joined,
        one_copy=False if leave_degraded_mode(mirrored) else one_copy,
        problem="; ".join(problems) or None,
    )


def _is_as_made(placement: Placement, seen: Replication) -> bool:
    """Whether a table that no domain has led yet has a register in every domain of the platform file.

    Such a table needs no leader.
    """
    standing = seen.standing()
    if standing is None:
        return True
    there = {domain for domain, behind in standing.behind.items() if behind is not None}
    return there == {site.name for site in placement.sites}


def _tidy(mirrored: Replication, keep_log_versions: int | None) -> str | None:
    """Write the checkpoint that is due to the replicas, and truncate their logs.

    Returns:
        The reason if that failed, else None. Readers work without either.
    """
    try:
        mirrored.checkpoint()
        if keep_log_versions is not None:
            mirrored.shorten(keep_log_versions, step=max(EVERY, keep_log_versions // MOVES_PER_RETENTION))
    except (MirrorError, Unanswered) as error:
        return error.message
    return None

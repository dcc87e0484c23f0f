"""Looking after mirrored tables between runs: replicas brought up to date, lost memories replaced, leaders moved,
checkpoints made, logs shortened.

Belongs here: one round of it, bounded and safe to repeat, without Spark. Does not belong here: when a round is due
(`sensors/failure_domains.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.contracts.tables import ALL_TABLES
from etl_assets.errors import DomainUnavailable, MembershipRefused, MirrorError, Unanswered
from etl_assets.mirroring.checkpoints import EVERY
from etl_assets.steps.placing import STAGE_OF, place
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    from etl_assets.delta.replication import Replication
    from etl_assets.placement.domains import Placement

_MOVES_A_RETENTION = 10
"""How often a log's beginning moves while the versions that stay pass by: each time costs a reading of that log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a round did to one table, or why it could not.

    `moved` is the domain that leads now where that is another one than before; `rejoined` are domains whose lost memory
    was replaced, and which were brought up to date from nothing.
    """

    table: str
    moved: str | None = None
    rejoined: tuple[str, ...] = ()
    problem: str | None = None

    def __str__(self) -> str:
        parts = [f"led by {self.moved} from now on"] if self.moved else []
        parts += [f"{domain} was rebuilt" for domain in self.rejoined]
        parts += [self.problem] if self.problem else []
        return f"{self.table}: {', '.join(parts) or 'nothing to do'}"


def keep_replicas(placement: Placement, *, keep_log_versions: int | None = None) -> list[Kept]:
    """One round over all tables. A table that cannot be helped now is named, and does not stop the others.

    Args:
        placement: The failure domains.
        keep_log_versions: So many versions of each log stay, and older ones go; None: all stay.
    """
    kept = []
    for contract in ALL_TABLES:
        try:
            kept.append(_keep(placement, contract.name, keep_log_versions))
        except (MirrorError, Unanswered, DomainUnavailable) as error:
            kept.append(Kept(table=contract.name, problem=error.message))
    return [each for each in kept if each.moved or each.rejoined or each.problem]


def _keep(placement: Placement, table: str, keep_log_versions: int | None) -> Kept:
    seen = platform_table(table, placement.reader()).replication
    state = None if seen is None else seen.acknowledged()
    if state is None or not state.epoch.domain:
        return Kept(table=table)
    domain = place(placement, STAGE_OF[table], table)
    mirrored = platform_table(table, domain).replication
    if mirrored is None:
        return Kept(table=table)
    mirrored.lead()
    rejoined = tuple(_rejoin(placement, mirrored))
    mirrored.follow()
    moved = domain.name if domain.name != state.epoch.domain else None
    return Kept(table=table, moved=moved, rejoined=rejoined, problem=_tidy(mirrored, keep_log_versions))


def _tidy(mirrored: Replication, keep_log_versions: int | None) -> str | None:
    """Give replicas the checkpoint that is due, and shorten their logs; why not, where that failed. Readers do without."""
    try:
        mirrored.checkpoint()
        if keep_log_versions is not None:
            mirrored.shorten(keep_log_versions, step=max(EVERY, keep_log_versions // _MOVES_A_RETENTION))
    except (MirrorError, Unanswered) as error:
        return error.message
    return None


def _rejoin(placement: Placement, mirrored: Replication) -> list[str]:
    """Let domains vote again whose register was lost with their root, once their root is theirs again."""
    membership = mirrored.membership
    rejoined = []
    for name in membership.forgotten():
        site = next((site for site in placement.sites if site.name == name), None)
        if site is None or placement.unusable(site) is not None:
            continue
        membership.add(name)
        try:
            membership.promote(name)
        except MembershipRefused:
            continue  # it has not caught up: the next round goes on
        rejoined.append(name)
    return rejoined

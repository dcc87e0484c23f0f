"""The rebuild of one replica from the whole ones: when it is refused, and its steps.

Does not belong here: membership changes themselves (`mirroring/protocol/membership.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import MembershipRefused
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.placement.domain_registry import MARKER, owner

if TYPE_CHECKING:
    from etl_assets.delta.replicated.replication_status import ReplicationStatus
    from etl_assets.mirroring.protocol.leadership import Leadership
    from etl_assets.mirroring.protocol.locator import Locator
    from etl_assets.mirroring.protocol.membership import Membership
    from etl_assets.mirroring.protocol.mirror import Mirror
    from etl_assets.mirroring.protocol.table import MirroredTable

_JOIN_ATTEMPTS, _JOIN_PAUSE_SECONDS = 5, 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """Rebuilds replicas of one table, from this process's domain; `standing` returns its replication
    status.
    """

    table: MirroredTable
    mirror: Mirror
    leadership: Leadership
    membership: Membership
    standing: Callable[[], ReplicationStatus | None]

    def run(self, domain: str) -> None:
        """Rebuild another domain's replica; see `Replication.rebuild`."""
        # 1. Lead, and refuse a rebuild that would not be safe.
        self.leadership.lead()
        locator = self.mirror.leading()[1].locator
        agreed = locator.replica(domain)
        self._expect_marked(domain, locator)
        self.table.replica(domain, locator).register.expect_own()
        self._expect_to_go_on_without(domain, locator)
        # 2. Remove the replica and add it again, without a vote.
        self.membership.remove(domain)
        self._add_again(domain)
        # 3. Give it its former role, or that of a voter if it had none.
        if agreed is None or agreed.role is not Role.LEARNER:
            self.membership.promote(domain, witness=agreed is not None and not agreed.has_data)
        self.mirror.follow()

    def _expect_marked(self, domain: str, locator: Locator) -> None:
        """Refuse to build a replica under a root without its domain's mark.

        The mount point of an absent disk has none.
        """
        store = self.table.replica(domain, locator).store
        marker = store.get(MARKER)
        if marker is not None and owner(marker.content) == domain:
            return
        why = "carries no mark" if marker is None else f"belongs to the domain {owner(marker.content)}"
        raise MembershipRefused(
            f"nothing is built under the root of {domain}, {store.name}: it {why}",
            fix=f"mount its disk there; if that is lost for good, `etl-assets domains heal {domain}"
            " --new-root` with an empty root in its place, then run this again",
            table=self.table.name,
            domain=domain,
        )

    def _expect_to_go_on_without(self, domain: str, locator: Locator) -> None:
        """Refuse to remove a replica, however damaged, while the table could not work without its vote.

        A membership change that is not settled stops the table until it is.
        """
        standing = self.standing()
        without = locator.next(replicas=[each for each in locator.replicas if each.domain != domain])
        answering = {
            name for name, behind in (standing.behind if standing else {}).items() if behind is not None
        }
        with_data = set(standing.whole if standing else ())
        votes = answering.intersection(with_data.union(without.domains(Role.WITNESS)))
        if not without.has_quorum(votes):
            missing = sorted(set(without.voters) - votes)
            raise MembershipRefused(
                f"the table {self.table.name} cannot go on without {domain} now:"
                f" {', '.join(missing) or 'nobody else'} does not answer, or has not caught up",
                fix="bring it back, or wait until it has caught up",
                table=self.table.name,
            )

    def _add_again(self, domain: str) -> None:
        """Add a domain that was just removed.

        Retried, because a request still on its way to the domain may change its register.
        """
        for attempt in range(1, _JOIN_ATTEMPTS + 1):
            try:
                self.membership.add(domain, remake=True)
            except MembershipRefused:
                if attempt == _JOIN_ATTEMPTS:
                    raise
                time.sleep(_JOIN_PAUSE_SECONDS)
            else:
                return

"""A mirrored table as the steps use it: where to write, which version may be read, and when a commit counts.

Belongs here: the mirroring protocol (`mirroring/`) applied to the tables of one process. Does not belong
here: the protocol, the choice of the leader (`placement/`), the creation of a table (`registration.py`), its
status (`replication_status.py`), and the rebuild of a replica (`rebuild.py`).
"""

from __future__ import annotations

import functools
import logging
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.log.checkpoint import live_files, make_checkpoint, says_the_same, sums_up
from etl_assets.delta.replicated.closing import closing_entry
from etl_assets.delta.replicated.rebuild import Rebuild
from etl_assets.delta.replicated.registration import Registration
from etl_assets.delta.replicated.replication_status import Holding, ReplicationStatus, holdings, standing
from etl_assets.errors import (
    MirrorError,
    Unanswered,
)
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.mirroring.maintenance.contents import Differing, differing, repair_files
from etl_assets.mirroring.maintenance.inspection import ScrubFinding, ScrubProgress, look
from etl_assets.mirroring.maintenance.log_cleanup import Outdated, clean, find_outdated, move_base
from etl_assets.mirroring.maintenance.verification import fork_of, problems
from etl_assets.mirroring.protocol.checkpoints import checkpoint_replicas
from etl_assets.mirroring.protocol.couriers import ThreadCouriers
from etl_assets.mirroring.protocol.first_copy import Conversion
from etl_assets.mirroring.protocol.leadership import Leadership
from etl_assets.mirroring.protocol.locator import Role
from etl_assets.mirroring.protocol.membership import Membership
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.reading import Binding, Reading
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.placement.access import opener
from etl_assets.placement.site import is_folder

if TYPE_CHECKING:
    from etl_assets.mirroring.protocol.lead import Lead
    from etl_assets.mirroring.protocol.locator import Locator
    from etl_assets.mirroring.protocol.locator import ReplicaConfig as Agreed
    from etl_assets.mirroring.protocol.record import State
    from etl_assets.placement.domains import FailureDomain

logger = logging.getLogger("etl_assets")

TABLE_PROPERTIES = {
    # Derived files that Delta writes before a commit is acknowledged outlive a tail that is dropped, and
    # readers believe them. So Delta's own checkpoints and log clean-up are off;
    # `mirroring/protocol/checkpoints.py` makes checkpoints of acknowledged versions.
    "delta.checkpointInterval": "1000000000",
    "delta.enableExpiredLogCleanup": "false",
    # Logs are copied byte by byte: a commit's time is the one in its entry, not the time of a copy.
    "delta.enableInCommitTimestamps": "true",
}
WRITE_SETTINGS = {"spark.databricks.delta.writeChecksumFile.enabled": "false"}


class Replication:
    """Replication of one table, in a process that works in one domain."""

    def __init__(self, name: str, domain: FailureDomain) -> None:
        self._table = MirroredTable(
            name=name,
            home=domain.name,
            roots={site.name: site.root for site in domain.sites},
            live_files=live_files,
            open_store=opener(domain.sites, domain.observations, domain.timeout_seconds),
            couriers=ThreadCouriers(),
        )
        self.mirror = Mirror(self._table)
        self._leadership = Leadership(self.mirror)
        self._reading = Reading(self._table, can_read=is_folder)
        conversion = Conversion(
            close=functools.partial(closing_entry, TABLE_PROPERTIES), make=make_checkpoint
        )
        self._registration = Registration(self._table, domain.sites, conversion)
        self._bound: Binding | None = None

    @property
    def name(self) -> str:
        """The table's name."""
        return self._table.name

    @property
    def home(self) -> str:
        """The domain this process works in."""
        return self._table.home

    def exists(self) -> bool:
        """Return whether the table has been created as a mirrored table.

        A table from the time with one domain becomes mirrored by this call.

        Raises:
            QuorumUnavailable: no domain that answers has its register, and too few answer to know; or it must
                be made mirrored, and a domain does not answer.
            MembershipRefused: it was created with other roots than the configured ones.
            ReplicaCorrupt: its existing data cannot be made a mirrored table.
        """
        return self._registration.exists()

    def create(self) -> None:
        """Create the mirrored table, once: its register in all domains.

        Raises:
            QuorumUnavailable: a domain does not answer, and all must.
        """
        self._registration.create()

    def acknowledged(self) -> State | None:
        """Return the newest state that may be read, None if the table does not exist."""
        return self._reading.acknowledged() if self.exists() else None

    def problem(self, locator: Locator, state: State | None = None) -> str | None:
        """Return why this process's domain cannot lead the table at present, None if it can.

        Its register is lost or does not answer, or it has no replica that may lead yet. Data that was under
        its root before that does not count. Neither does a replica that is not part of an acknowledged
        `state`.
        """
        agreed = locator.replica(self._table.home)
        if agreed is None:
            return f"it has no replica of the table {self._table.name} yet"
        if agreed.role is not Role.VOTER:
            return f"it is a {agreed.role} of the table {self._table.name}"
        answer = self._table.read(self._table.home, locator)
        if answer.problem or state is None or answer.record is None:
            return answer.problem or None
        why = self._forked(agreed, state)
        return None if why is None else f"its replica {why} (`etl-assets tables repair {self.name}`)"

    def standing(self) -> ReplicationStatus | None:
        """Return the table's replication status, None if the table does not exist.

        Raises:
            QuorumUnavailable: too few domains answer to know.
        """
        state = self.acknowledged()
        return None if state is None else standing(self._table, state)

    def bind(self) -> Binding | None:
        """Find the replica with the newest acknowledged version, None if the table does not exist.

        A generation other than the last one is logged, in the run's log if a run asks.
        """
        before = self._bound
        self._bound = self._reading.bind() if before is not None or self.exists() else None
        if before is not None and self._bound is not None and before.generation != self._bound.generation:
            logger.info(
                "%s: rebound from generation %d in %s to generation %d in %s",
                self.name,
                before.generation,
                before.domain,
                self._bound.generation,
                self._bound.domain,
            )
        return self._bound

    def bound(self) -> Binding | None:
        """Return the replica that the last `bind` found, and bind first if there was none."""
        return self._bound or self.bind()

    def folder_read_last(self) -> Path | None:
        """Return the folder that the last `bind` found, None before the first one."""
        return None if self._bound is None else Path(self._bound.uri) / self._bound.folder

    def lead(self) -> Lead:
        """Acquire or join the leadership in this process's domain, and push its entries beyond the head."""
        return self._leadership.lead()

    def acknowledge(self, lead: Lead, entry: bytes) -> None:
        """Have the version after the leader's head acknowledged, which this process has just committed."""
        self.mirror.acknowledge(lead, entry)

    def follow(self) -> None:
        """Bring every other replica up to the acknowledged head, except those that do not answer."""
        self.mirror.follow()

    def checkpoint(self) -> tuple[str, ...]:
        """Give replicas the checkpoint that is due. For the leading domain.

        Returns:
            The domains that got it.

        Raises:
            Fenced: this domain does not lead.
            ReplicaCorrupt: this domain's log is not the acknowledged one.
            QuorumUnavailable: too few domains answer.
            Unanswered: this domain's store does not answer.
        """
        return checkpoint_replicas(self._table, self.mirror.push(), make_checkpoint, says_the_same)

    def outdated(self, keep: int) -> tuple[int, tuple[Outdated, ...]]:
        """Return the version at which a truncated log would begin, and the files before it by domain.

        That version is about `keep` before the newest.

        Raises:
            QuorumUnavailable: too few domains answer to know.
        """
        state = self._reading.acknowledged()
        first = max(state.version - keep, state.base.first)
        return first, find_outdated(self._table, state, before=first)

    def shorten(self, keep: int, step: int = 1) -> tuple[int, tuple[Outdated, ...]]:
        """Truncate the log to about `keep` versions if that gains `step` of them. For the leading domain.

        Removes the files before the new beginning, as many as one round may remove.

        Returns:
            The version at which the log begins, and the removed files by domain.

        Raises:
            Fenced: this domain does not lead.
            ReplicaCorrupt: this domain's log is not the acknowledged one.
            QuorumUnavailable: too few domains answer.
            Unanswered: this domain's store does not answer.
        """
        state = move_base(self.mirror, keep=keep, make=make_checkpoint, step=step)
        failpoint(Failpoint.LOG_BEFORE_REMOVE, table=self._table.name)
        return state.base.first, clean(self._table, state)

    def holdings(self) -> list[Holding]:
        """Return the places of the table's data in every domain that must have it, this process's first.

        Raises:
            QuorumUnavailable: too few domains answer to know.
            DomainUnavailable: one of the domains does not answer, or has another history.
        """
        return holdings(self._table, self._reading.acknowledged())

    def locator(self) -> Locator | None:
        """Return the replicas by the newest register that answers, agreed on or not; None if none answers."""
        return self._reading.locator()

    def without_memory(self, locator: Locator) -> set[str]:
        """Return the domains of a locator whose root answers but whose register does not count.

        Such a register is missing, belongs to another replica or table, or cannot be read.
        """
        membership = self.membership
        return {*membership.forgotten(locator), *membership.unreadable(locator)}

    def roles(self) -> dict[str, Role]:
        """Return the domains with a replica and the role of each, as the leading domain has them.

        Raises:
            Fenced: this domain does not lead.
        """
        return {each.domain: each.role for each in self.mirror.leading()[1].locator.replicas}

    @property
    def membership(self) -> Membership:
        """The membership of the replicas, to be changed from this process's domain."""
        return Membership(self.mirror, new_incarnation=lambda: uuid.uuid4().hex)

    def broken(self) -> dict[str, list[str]]:
        """Return the problems of each replica's acknowledged part, by domain; an empty list for none.

        Raises:
            QuorumUnavailable: too few domains answer to know the acknowledged state.
        """
        state = self.acknowledged()
        if state is None:
            return {}
        return {
            agreed.domain: problems(self._table, agreed, state, sums_up) for agreed in state.locator.replicas
        }

    def forked(self) -> dict[str, str]:
        """Return the domains whose replica published entries outside the acknowledged history, with reasons.

        Creates no table.

        Raises:
            QuorumUnavailable: too few domains answer to know the acknowledged state.
        """
        state = None if self.locator() is None else self._reading.acknowledged()
        found = (
            {}
            if state is None
            else {each.domain: self._forked(each, state) for each in state.locator.replicas}
        )
        return {domain: why for domain, why in found.items() if why is not None}

    def _forked(self, agreed: Agreed, state: State) -> str | None:
        try:
            return fork_of(self._table, agreed, state)
        except Unanswered:
            return None

    def differing(self) -> list[Differing]:
        """Return the data files whose bytes are not the same in all replicas. Reads all of them.

        Raises:
            QuorumUnavailable: too few domains answer to know the acknowledged state.
            Unanswered: a domain does not answer.
        """
        state = self.acknowledged()
        return [] if state is None else list(differing(self._table, state))

    def repair_files(self, found: Differing) -> None:
        """Replace differing bytes with the bytes that most replicas have.

        Raises:
            ReplicaCorrupt: no version of the bytes is in most replicas.
            QuorumUnavailable: too few domains answer.
            Unanswered: one of the domains concerned does not answer.
        """
        repair_files(self._table, self._reading.acknowledged(), found)

    def look(self, domain: str, since: ScrubProgress | None) -> ScrubFinding:
        """Scrub the next piece of a domain's replica; the finding is empty where the domain has none.

        Raises:
            QuorumUnavailable: too few domains answer to know the acknowledged state.
            Unanswered: that domain does not answer.
        """
        state = self.acknowledged()
        agreed = None if state is None else state.locator.replica(domain)
        if state is None or agreed is None:
            return ScrubFinding()
        return look(self._table, agreed, state, since, sums_up)

    def rebuild(self, domain: str) -> None:
        """Rebuild another domain's replica from the whole ones. It does not vote until it has everything.

        A register that cannot be read is overwritten.

        Raises:
            MembershipRefused: the domain leads, or too few voters with data would be left meanwhile; or its
                root does not carry its mark.
            QuorumUnavailable: too few voters answer.
            ReplicaCorrupt: its register is that of another table.
            Unanswered: the domain does not answer.
        """
        Rebuild(
            table=self._table,
            mirror=self.mirror,
            leadership=self._leadership,
            membership=self.membership,
            standing=self.standing,
        ).run(domain)

    def folder(self, lead: Lead) -> Path:
        """Return the folder of this domain's own replica."""
        return Path(self._table.roots[self._table.home]) / self.mirror.home.folder(lead.folder)


def make_mirrored(name: str, domain: FailureDomain) -> None:
    """Create a mirrored table, and all tables of the platform with it.

    A stage must be able to write its exceptions table for the first time while a domain is down. So that
    table is created while all domains are up.

    Raises:
        QuorumUnavailable: the table is new, and a domain does not answer.
    """
    replication(name, domain).create()
    for table in domain.catalog.names:
        with suppress(MirrorError, Unanswered):
            replication(table, domain).create()


@functools.cache
def replication(name: str, domain: FailureDomain) -> Replication:
    """Return the replication of a table: one object for each table and domain in a process."""
    return Replication(name, domain)

"""The creation of a mirrored table: its register in every domain, once, and whether that has happened.

Belongs here: creating a table, and finding out whether it was created. Does not belong here: later agreement
on its state (`replication.py`).
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.errors import MembershipRefused, QuorumUnavailable, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.bootstrap import bootstrap
from etl_assets.mirroring.protocol.epochs import BEFORE_ALL
from etl_assets.mirroring.protocol.first_copy import find_first_copy
from etl_assets.mirroring.protocol.record import newest_accepted
from etl_assets.placement.domain_registry import MARKER, owner

if TYPE_CHECKING:
    from etl_assets.mirroring.protocol.first_copy import Conversion
    from etl_assets.mirroring.protocol.locator import Locator, ReplicaConfig
    from etl_assets.mirroring.protocol.register import Held
    from etl_assets.mirroring.protocol.table import MirroredTable
    from etl_assets.placement.site import Site

_BOOTSTRAP_ATTEMPTS, _BOOTSTRAP_PAUSE_SECONDS = 40, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Presence:
    """A domain's answer about a table: its register, that there is none, or why the domain is silent."""

    held: Held | None = None
    silent: str | None = None

    @property
    def is_blank(self) -> bool:
        """Whether there is no register, in a root that is known to be this domain's."""
        return self.held is None and self.silent is None


class Registration:
    """The registers of one table, as one process sees them."""

    def __init__(self, table: MirroredTable, sites: Sequence[Site], conversion: Conversion) -> None:
        self._table = table
        self._sites = sites
        self._conversion = conversion
        self._created = False

    def exists(self) -> bool:
        """Return whether the table has been created as a mirrored table.

        A table from the time when the platform had one domain becomes mirrored by this call.

        A mirrored table has its register in every domain. So it does not exist if a majority of roots that
        are known to be their domains' has no register. An emptied root, or a disk that is not mounted, counts
        as silent.

        Raises:
            QuorumUnavailable: no domain that answers has its register, and too few answer to know; or it must
                be made mirrored, and a domain does not answer.
            MembershipRefused: it was created with other roots than the configured ones; or it has no
                register, and several domains have a log of it.
            ReplicaCorrupt: its existing data cannot be made a mirrored table.
        """

        def found(answers: Mapping[str, _Presence]) -> bool:
            return any(answer.held is not None for answer in answers.values())

        # Ask all domains at once: one that hangs must not delay the others. One register is enough for a yes.
        # For a no all domains are awaited, because roots that were replaced have a marker and no register.
        errands = {site.name: functools.partial(self._presence, site) for site in self._sites}
        answers = self._table.couriers.gather(errands, found)
        if found(answers):
            if _foreign(self._table, answers) is not None:
                # It may be from a domain that was away while others moved. Domains with newer registers are
                # heard first.
                answers |= self._table.couriers.gather(errands, lambda _: False)
            elif _begun(answers) is not None:
                answers |= self._table.couriers.gather(errands, lambda _: False)
            self._expect_own_roots(answers)
            if (begun := _begun(answers)) is not None and _lacks_registers(begun, answers):
                self._make()
            return True
        # No register was found. That means no table only if a majority of the domains says so.
        silent = self._silent(answers)
        if len(silent) * 2 >= len(self._sites):
            raise QuorumUnavailable(
                f"whether the table {self._table.name} exists cannot be told: {'; '.join(silent.values())}",
                fix="bring these domains back",
                table=self._table.name,
                missing=silent,
            )
        # A table from the time with one domain has no register yet.
        if self._has_first_copy(set(answers) - set(silent)):
            self._make()
            return True
        return False

    def _silent(self, answers: Mapping[str, _Presence]) -> dict[str, str]:
        """Return the silent domains, each with the reason."""
        none_yet = _Presence(silent="did not answer in time")
        return {site.name: why for site in self._sites if (why := answers.get(site.name, none_yet).silent)}

    def _has_first_copy(self, domains: Collection[str]) -> bool:
        """Return whether one of some domains has the table from when it was the only domain.

        A domain that does not answer may have it as well: the table is created only once all of them answer.
        """
        try:
            return find_first_copy(self._table, domains) is not None
        except Unanswered as error:
            raise self._cannot_be_made(error) from error

    def _presence(self, site: Site) -> _Presence:
        replica = self._table.replica(site.name)
        try:
            if (held := replica.register.read()) is not None:
                return _Presence(held=held)
            if (marker := replica.store.get(MARKER)) is None:
                return _Presence(
                    silent=f"{site.root} was emptied, its disk or bucket is not there, or it cannot be used"
                    f" (`etl-assets domains probe {site.name}`)"
                )
            if (whose := owner(marker.content)) != site.name:
                return _Presence(silent=f"{site.root} belongs to the domain {whose}, not to {site.name}")
        except (Unanswered, ReplicaCorrupt) as error:
            # A register that cannot be read says no more than a store that does not answer.
            return _Presence(silent=error.message)
        return _Presence()

    def _expect_own_roots(self, answers: Mapping[str, _Presence]) -> None:
        """Refuse roots of another platform.

        Two platforms that share one root would fight for its tables, each with a majority of its own.
        """
        replicas = _newest_replicas(answers)
        if replicas and not any(each.domain in self._table.roots for each in replicas):
            theirs = ", ".join(f"{each.domain} ({each.uri})" for each in replicas)
            raise MembershipRefused(
                f"the table {self._table.name} was made by another platform, with the failure domains"
                f" {theirs}; the platform file names one of these roots, and none of these domains",
                fix="give each platform roots of its own; a domain that is in use keeps its name",
                table=self._table.name,
            )
        if (replica := _foreign(self._table, answers)) is not None:
            raise MembershipRefused(
                f"the table {self._table.name} has its replica of {replica.domain} under {replica.uri}, and"
                f" the platform file says {self._table.roots[replica.domain]}: another platform made it, or"
                " the root was moved",
                fix="give each platform roots of its own; mount a root that was moved where it was",
                table=self._table.name,
                domain=replica.domain,
            )

    def create(self) -> None:
        """Create the mirrored table, once: its register in all domains.

        Raises:
            QuorumUnavailable: a domain does not answer, and all must; or a root is not that of its domain.
        """
        if self._created or self.exists():
            self._created = True
            return
        self._make()
        self._created = True

    def _make(self) -> None:
        self._expect_roots()
        try:
            self._bootstrap()
        except Unanswered as error:
            raise self._cannot_be_made(error) from error

    def _cannot_be_made(self, error: Unanswered) -> QuorumUnavailable:
        return QuorumUnavailable(
            f"the table {self._table.name} cannot be made: {error.message}",
            fix="bring this domain back; a new table is made in all domains at once",
            table=self._table.name,
            missing={str(error.fields.get("store")): error.message},
        )

    def _expect_roots(self) -> None:
        """Refuse to create anything under the root of another platform, or where a disk should be mounted."""
        errands = {site.name: functools.partial(self._presence, site) for site in self._sites}
        if silent := self._silent(self._table.couriers.gather(errands, lambda _: False)):
            raise QuorumUnavailable(
                f"the table {self._table.name} cannot be made: {'; '.join(silent.values())}",
                fix="bring these domains back, each with a root of its own; a new table is made in all"
                " domains at once",
                table=self._table.name,
                missing=silent,
            )

    def _bootstrap(self) -> None:
        """Create the registers, or wait for another process that creates them at the same time."""
        roles = {site.name: site.role for site in self._sites}
        for attempt in range(1, _BOOTSTRAP_ATTEMPTS + 1):
            try:
                bootstrap(self._table, roles, lambda: uuid.uuid4().hex, self._conversion)
            except MembershipRefused:
                registers = {
                    site.name: self._table.replica(site.name).register.read() for site in self._sites
                }
                for name, held in registers.items():
                    self._expect_own_roots({name: _Presence(held=held)})
                if None not in registers.values():
                    return
                if not any(registers.values()):
                    raise  # no other process is creating them
                if attempt == _BOOTSTRAP_ATTEMPTS:
                    raise
                time.sleep(_BOOTSTRAP_PAUSE_SECONDS)
            else:
                return


def _begun(answers: Mapping[str, _Presence]) -> Locator | None:
    """Return the replicas of a table that no domain has led yet, None for any other table.

    The table may still be under construction.
    """
    records = [answer.held.record for answer in answers.values() if answer.held is not None]
    if not records or any(record.promised != BEFORE_ALL or record.accepted is None for record in records):
        return None
    return newest_accepted(records).locator


def _lacks_registers(begun: Locator, answers: Mapping[str, _Presence]) -> bool:
    """Return whether a process was killed before a majority had the table's registers.

    No domain could ever lead such a table.

    A domain that lacks its register beside a majority joins like one that has lost it
    (`replicas/members.py`).
    """
    having = [domain for domain, answer in answers.items() if answer.held is not None]
    return not begun.is_majority(having) and any(answer.is_blank for answer in answers.values())


def _foreign(table: MirroredTable, answers: Mapping[str, _Presence]) -> ReplicaConfig | None:
    """Return a replica that is elsewhere than the platform file says; None if there is none."""
    replicas = _newest_replicas(answers)
    return next((each for each in replicas if table.roots.get(each.domain, each.uri) != each.uri), None)


def _newest_replicas(answers: Mapping[str, _Presence]) -> tuple[ReplicaConfig, ...]:
    """Return the table's replicas by the newest state in any register; none if no register has a state."""
    records = [answer.held.record for answer in answers.values() if answer.held is not None]
    voted = [record for record in records if record.accepted is not None]
    return newest_accepted(voted).locator.replicas if voted else ()

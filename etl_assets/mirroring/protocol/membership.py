"""Membership changes: add, promote and remove replicas, replace a lost register, set the one-copy flag.

Each change concerns one replica and is one new state of the register. A majority of the voters before it and
a majority of the voters after it must acknowledge the state, so any two majorities overlap. A change that was
interrupted is completed or repeated by running it again. Only the leading domain changes the replicas, after
its lead was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from etl_assets.errors import MembershipRefused, QuorumUnavailable, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.ballot import quorum_unavailable
from etl_assets.mirroring.protocol.leadership import Leadership
from etl_assets.mirroring.protocol.locator import Locator, ReplicaConfig, Role
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.record import NOTHING_PUBLISHED, Record
from etl_assets.mirroring.protocol.register import Held

T = TypeVar("T")


class Membership:
    """Changes of a table's replicas, made by its leading domain."""

    def __init__(self, mirror: Mirror, *, new_incarnation: Callable[[], str]) -> None:
        self._mirror = mirror
        self._table = mirror.table
        self._new_incarnation = new_incarnation

    def add(self, domain: str, *, witness: bool = False, remake: bool = False) -> Locator:
        """Add a domain with a blank register, as a learner or as a witness.

        This also replaces a voter whose root was emptied or replaced. One change gives that voter a new
        incarnation and makes it a learner, so it stops counting. Until it is promoted the table has one voter
        less. A replica whose register is intact is left as it is.

        Args:
            domain: The domain.
            witness: Make it a witness: it is added as a learner and promoted at once.
            remake: Overwrite a register that cannot be read.

        Returns:
            The locator after the change.

        Raises:
            MembershipRefused: the change would leave one copy of the data, and the one-copy flag is not set;
                or the replicas or the register changed in the meantime.
            QuorumUnavailable: the domain does not answer, or too few voters do.
            ReplicaCorrupt: the domain's register cannot be read, or is that of another table.
            Fenced: this domain does not lead.
        """
        unreadable = False
        try:
            held = self._read(domain, self._locator())
        except ReplicaCorrupt:
            if not remake:
                raise
            held, unreadable = None, True
        # Read the locator after the register: it then names every incarnation that had voted by that time. To
        # an older locator a domain that another process has just added again would look foreign, and be
        # erased.
        locator = self._mirror.leading()[1].locator
        agreed = locator.replica(domain)
        if agreed is None or self._table.disqualified(held, domain, locator) is not None:
            uri = self._table.roots[domain] if agreed is None else agreed.uri
            joining = ReplicaConfig(
                domain=domain, uri=uri, role=Role.LEARNER, incarnation=self._new_incarnation()
            )
            others = [replica for replica in locator.replicas if replica.domain != domain]
            changed = locator.next(replicas=sorted((*others, joining), key=lambda replica: replica.domain))
            self._expect_copies(locator, changed)
            self._write_blank(joining, changed, held, unreadable=unreadable)
            locator = self._change(changed)
        return self.promote(domain, witness=True) if witness else locator

    def promote(self, domain: str, *, witness: bool = False) -> Locator:
        """Make a learner a voter, once it has caught up, or a witness.

        Args:
            domain: The learner's domain.
            witness: Make it a witness, which need not catch up.

        Returns:
            The locator after the change; the present one if the domain has that role already.

        Raises:
            MembershipRefused: the domain has not caught up, or is not a learner.
            QuorumUnavailable: too few voters answer, of those before or of those after the change.
            Fenced: this domain does not lead.
        """
        locator = self._locator()
        learner = locator.replica(domain)
        role = Role.WITNESS if witness else Role.VOTER
        if learner is not None and learner.role is role:
            return locator
        if learner is None or learner.role is not Role.LEARNER:
            raise self._refused(f"{domain} is no learner", "add it first")
        head = -1 if witness else self._mirror.follow().version
        answer = self._table.read(domain, locator)
        if answer.record is None:
            raise self._refused(f"{domain} {answer.problem}", "add it again")
        if answer.record.published.version < head:
            raise self._refused(f"{domain} has not caught up to version {head}", "try again later")
        return self._change(_with_role(locator, domain, role))

    def forgotten(self, locator: Locator | None = None) -> tuple[str, ...]:
        """Return the domains whose register is missing or has another incarnation.

        They do not count, and need to be added again. Domains that do not answer are not among them, nor are
        those whose register cannot be read.

        Args:
            locator: The locator to compare with. With it this domain need not lead.
        """
        locator = locator or self._locator()

        def lost(domain: str) -> bool:
            with suppress(QuorumUnavailable, ReplicaCorrupt):
                return self._table.disqualified(self._read(domain, locator), domain, locator) is not None
            return False

        return tuple(domain for domain, found in self._of_each(locator, lost, silent=False) if found)

    def unreadable(self, locator: Locator | None = None) -> dict[str, str]:
        """Return the domains whose register cannot be read or is another table's, each with the problem.

        They do not count. Their registers are not replaced automatically, because a newer release may be able
        to read them: `add` with `remake` does that on request.

        Args:
            locator: The locator to compare with, as for `forgotten`.
        """
        locator = locator or self._locator()

        def problem(domain: str) -> str:
            try:
                self._read(domain, locator)
            except ReplicaCorrupt as error:
                return error.message
            except QuorumUnavailable:
                return ""
            return ""

        return {domain: found for domain, found in self._of_each(locator, problem, silent="") if found}

    def _of_each(self, locator: Locator, look: Callable[[str], T], *, silent: T) -> Iterator[tuple[str, T]]:
        """Check all replicas concurrently and yield each domain with its result.

        The time is bounded: a domain that does not answer in time gets `silent`.
        """
        domains = locator.domains(*Role)
        answers = self._table.couriers.gather_from_all({each: partial(look, each) for each in domains})
        for domain in domains:
            yield domain, answers.get(domain, silent)

    def remove(self, domain: str) -> Locator:
        """Remove a replica from the table. Its files under the domain's root stay.

        Returns:
            The locator after the change; the present one if the table has no replica there.

        Raises:
            MembershipRefused: the domain leads, or the one-copy flag would have to be set first.
            QuorumUnavailable: too few voters answer.
            Fenced: this domain does not lead.
        """
        locator = self._locator()
        if locator.replica(domain) is None:
            return locator
        if domain == self._table.home:
            raise self._refused(f"{domain} leads it", "let another domain lead first")
        changed = locator.next(replicas=[r for r in locator.replicas if r.domain != domain])
        self._expect_copies(locator, changed)
        return self._change(changed)

    def set_one_copy(self, one_copy: bool) -> Locator:
        """Set the one-copy flag, which lets commits count with the data in one domain, or clear it again.

        Args:
            one_copy: The new value. True makes this domain claim a new epoch with the flag set.

        Returns:
            The locator after the change.

        Raises:
            QuorumUnavailable: too few voters answer. To clear the flag a second voter must hold all the data.
            Fenced: this domain does not lead.
        """
        if one_copy:
            Leadership(self._mirror).lead(one_copy=True)
            return self._mirror.leading()[1].locator
        locator = self._locator()
        return self._change(locator.next(one_copy=False)) if locator.one_copy else locator

    def _locator(self) -> Locator:
        """Join or acquire the lead, and return its locator."""
        Leadership(self._mirror).lead()
        return self._mirror.leading()[1].locator

    def _read(self, domain: str, locator: Locator) -> Held | None:
        try:
            return self._table.replica(domain, locator).register.read()
        except Unanswered as error:
            raise quorum_unavailable(self._table, "it cannot join", {domain: error.message}) from error

    def _change(self, locator: Locator) -> Locator:
        """Propose the acknowledged head again with another locator, and have it acknowledged.

        Raises:
            MembershipRefused: another process changed the replicas or the register in the meantime.
            QuorumUnavailable: too few voters answer. The change may still be acknowledged.
        """
        held, state = self._mirror.leading()
        changed = replace(state, locator=locator)
        if state.locator.generation + 1 != locator.generation:
            raise self._refused("its replicas were changed by another process", "look at them and try again")
        try:
            record = held.record.accept(changed)
            if record is None or not self._mirror.home.register.write(held, record):
                raise self._refused("its register moved on", "try again")
        except Unanswered as error:
            raise self._mirror.home_gone(error) from error
        self._mirror.settle(changed, held.record.published.folder, before=state.locator)
        return locator

    def _write_blank(
        self, joining: ReplicaConfig, locator: Locator, held: Held | None, *, unreadable: bool
    ) -> None:
        """Write a blank register for a domain. It does not count until the locator names its incarnation.

        The write replaces only the register that was found not to count. Another process may add the domain
        at the same time, and its register may have voted since. The folder number is one that was never used,
        so late writers reach only old folders.

        Args:
            joining: The replica with its new incarnation.
            locator: The locator that names it.
            held: The register that does not count, or None if it is missing or cannot be read.
            unreadable: Whether the register exists but cannot be read.

        Raises:
            MembershipRefused: the register changed in the meantime.
            QuorumUnavailable: the domain does not answer.
        """
        register = self._table.replica(joining.domain, locator).register
        epoch = self._mirror.leading()[1].epoch
        folder = epoch.number + 1 if held is None else max(epoch.number, held.record.published.folder) + 1
        blank = Record(
            table=self._table.name,
            incarnation=joining.incarnation,
            published=replace(NOTHING_PUBLISHED, folder=folder),
        )
        try:
            if unreadable:
                done = register.remake(blank)
            else:
                done = register.create(blank) if held is None else register.write(held, blank)
        except Unanswered as error:
            raise quorum_unavailable(
                self._table, "it cannot join", {joining.domain: error.message}
            ) from error
        if not done:
            raise self._refused(f"the register of {joining.domain} changes at this moment", "try again")

    def _expect_copies(self, before: Locator, after: Locator) -> None:
        """Refuse a change that leaves one voter with data, unless the one-copy flag is set."""
        fewer = len(after.domains(Role.VOTER)) < min(2, len(before.domains(Role.VOTER)))
        if fewer and not before.one_copy:
            raise self._refused(
                "one voter with data would be left",
                "set the one-copy flag first, knowing that one more loss would lose data",
            )

    def _refused(self, why: str, fix: str) -> MembershipRefused:
        return MembershipRefused(
            f"the replicas of the table {self._table.name} were not changed: {why}",
            fix=fix,
            table=self._table.name,
        )


def _with_role(locator: Locator, domain: str, role: Role) -> Locator:
    return locator.next(
        replicas=[
            replace(replica, role=role) if replica.domain == domain else replica
            for replica in locator.replicas
        ]
    )

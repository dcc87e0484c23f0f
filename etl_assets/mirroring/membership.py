"""Changing the replicas of a table: adding a domain, promoting, replacing a lost memory, removing, the one-copy flag.

Each change moves one replica and is one new state of the register, acknowledged by majorities of the voters before and
after it. So any two majorities overlap, and a change that was cut short is finished, or made again, by running it again.
Only the leading domain changes them, after its lead was acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from etl_assets.errors import MembershipRefused, QuorumUnavailable, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.ballot import quorum_unavailable
from etl_assets.mirroring.leadership import Leadership
from etl_assets.mirroring.locator import Locator, ReplicaConfig, Role
from etl_assets.mirroring.mirror import Mirror
from etl_assets.mirroring.record import NOTHING_PUBLISHED, Record
from etl_assets.mirroring.register import Held

T = TypeVar("T")


class Membership:
    """The replicas of a table, changed from its leading domain."""

    def __init__(self, mirror: Mirror, *, new_incarnation: Callable[[], str]) -> None:
        self._mirror = mirror
        self._table = mirror.table
        self._new_incarnation = new_incarnation

    def add(self, domain: str, *, witness: bool = False, remake: bool = False) -> Locator:
        """Let a domain join with a blank memory: a learner, or the first step of a witness.

        A voter whose root was emptied or replaced goes this way too: it stops counting, in the same change in which it
        gets a new incarnation. Until it is promoted the table has a voter less. A replica whose memory is intact is left
        as it is.

        Args:
            domain: The domain.
            witness: Let it be a witness.
            remake: Write over a register that cannot be read.

        Raises:
            MembershipRefused: it would leave one copy of the data, and the one-copy flag is not set.
            QuorumUnavailable: the domain, or too few voters, answer.
            ReplicaCorrupt: its register cannot be read, or is that of another table.
        """
        unreadable = False
        try:
            held = self._read(domain, self._locator())
        except ReplicaCorrupt:
            if not remake:
                raise
            held, unreadable = None, True
        # Read afterwards: it knows every memory that had voted by then. One that somebody else has just let rejoin would
        # look foreign to an older one, and be wiped out.
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
        """Let a learner vote, once it has caught up.

        Raises:
            MembershipRefused: it has not caught up, or is no learner.
            QuorumUnavailable: too few voters answer, of those before or of those after the change.
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
        """Domains whose register is gone or is another one's: they do not count, and are to be added again.

        Domains that do not answer are not among them, nor those whose register cannot be read.

        Args:
            locator: Compare with this one, and do not ask whether the domain leads.
        """
        locator = locator or self._locator()

        def lost(domain: str) -> bool:
            with suppress(QuorumUnavailable, ReplicaCorrupt):
                return self._table.disqualified(self._read(domain, locator), domain, locator) is not None
            return False

        return tuple(domain for domain, found in self._of_each(locator, lost, silent=False) if found)

    def unreadable(self, locator: Locator | None = None) -> dict[str, str]:
        """Domains whose register cannot be read or is another table's, and what is wrong with it.

        They do not count, and are not made anew by themselves: what cannot be read may be a newer release's.

        Args:
            locator: As of `forgotten`.
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
        """Look at all replicas at once, and not for ever: one that hangs is one that does not answer."""
        domains = locator.domains(*Role)
        answers = self._table.couriers.gather_from_all({each: partial(look, each) for each in domains})
        for domain in domains:
            yield domain, answers.get(domain, silent)

    def remove(self, domain: str) -> Locator:
        """Take a replica out. What lies under its root stays.

        Raises:
            MembershipRefused: it leads, or the one-copy flag would have to be set first.
            QuorumUnavailable: too few voters answer.
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
        """Go on with the data in one domain, or, back to normal, ask for two again.

        Raises:
            QuorumUnavailable: too few voters answer; for going back, among them one more with all the data.
        """
        if one_copy:
            Leadership(self._mirror).lead(one_copy=True)
            return self._mirror.leading()[1].locator
        locator = self._locator()
        return self._change(locator.next(one_copy=False)) if locator.one_copy else locator

    def _locator(self) -> Locator:
        Leadership(self._mirror).lead()
        return self._mirror.leading()[1].locator

    def _read(self, domain: str, locator: Locator) -> Held | None:
        try:
            return self._table.replica(domain, locator).register.read()
        except Unanswered as error:
            raise quorum_unavailable(self._table, "it cannot join", {domain: error.message}) from error

    def _change(self, locator: Locator) -> Locator:
        """Put the acknowledged head forward again, with another locator."""
        held, state = self._mirror.leading()
        changed = replace(state, locator=locator)
        if state.locator.generation + 1 != locator.generation:
            raise self._refused("its replicas were changed by somebody else", "look at them and try again")
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
        """Give a domain a register that remembers nothing and counts for nothing until the locator names it.

        Only over what was found not to count: somebody else may let the domain rejoin at the same time, and it may have
        voted since. Its folder is one that was never used, whatever late writers may still do to the old ones.
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

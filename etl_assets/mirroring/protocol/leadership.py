"""Leader election of a table: join the domain's leadership or claim a new epoch, then push the home log.

Leadership belongs to a domain. Its processes share it, and it ends when another domain claims a higher epoch,
not when a process ends. Which domain should lead is decided by the placement (`placement/domains.py`), not
here.

A change of leader has these phases (docs/mirroring.md, "A new leader"):

```
claim     promise (n+1, home) in the home register, then in the other voters' until a majority granted it
adopt     take the newest state that the voters which granted the claim have accepted
catch up  make the home log the adopted history
write     accept the adopted state under the new epoch in the home register: from here on the domain leads
settle    have a majority vote for that state
push      have what the home log holds beyond the head acknowledged
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial

from etl_assets.errors import MembershipRefused, QuorumUnavailable, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.ballot import fenced, quorum_unavailable
from etl_assets.mirroring.protocol.epochs import BEFORE_ALL, Epoch
from etl_assets.mirroring.protocol.first_copy import find_first_copy
from etl_assets.mirroring.protocol.fork import contradiction, expect_no_fork, without_forked
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.mirroring.protocol.locator import Locator, Role
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.record import Published, Record, State, newest_accepted
from etl_assets.mirroring.protocol.register import Held
from etl_assets.mirroring.protocol.replica import ForeignEntry
from etl_assets.mirroring.protocol.table import Answer
from etl_assets.mirroring.protocol.voter import Sources, Voter

ATTEMPTS = 5
NOT_ASKED = Answer(None, "was not asked")


class Leadership:
    """Leadership of a table by the home domain of a mirror."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._table = mirror.table

    def lead(self, *, one_copy: bool = False, rebuild: bool = False) -> Lead:
        """Join the domain's leadership or acquire it, then push what the home log holds beyond the head.

        The home replica is rebuilt under a new epoch if its log differs from the published one, or if the log
        ends in a commit with an incomplete data file.

        Args:
            one_copy: Set the one-copy flag in the same change. The caller has decided to continue with the
                data in one domain, because the other voters with data are lost.
            rebuild: Claim a new epoch even if the domain leads already, so that its replica is rebuilt.

        Raises:
            Fenced: other processes or domains claim at the same time; try again later.
            QuorumUnavailable: too few voters answer.
            MembershipRefused: the home replica may not lead.
            ReplicaCorrupt: the home replica cannot be brought to the agreed head, or has another history.
        """
        held = self._mirror.held()
        state = self._mirror.joined(held)
        try:
            if rebuild or state is None or (one_copy and not state.locator.one_copy):
                self._take_up(held, one_copy=one_copy)
            if not self._pushed_whole():
                self._take_up(self._mirror.held(), one_copy=False)
                self._mirror.push()
        except Unanswered as error:
            # The home store does not answer, or no replica has some of the data.
            raise QuorumUnavailable(
                f"{self._table.home} cannot lead the table {self._table.name}: {error.message}",
                fix=error.fix,
                table=self._table.name,
                missing={self._table.home: error.message},
            ) from error
        return self.current()

    def _pushed_whole(self) -> bool:
        """Push what the home log holds beyond the head; return False if the log is not fit to lead from."""
        try:
            self._mirror.push()
        except ReplicaCorrupt:
            return False
        held, state = self._mirror.leading()
        self._expect_no_fork(held, state)
        return self._mirror.has_published(held.record.published, state.base)

    def current(self) -> Lead:
        """Return the lead as recorded in the home register, with one read.

        Call it again under the writer lock before a commit: the lead may have changed since the commit was
        planned.

        Raises:
            Fenced: this domain does not lead now.
        """
        held, state = self._mirror.leading()
        return Lead(
            epoch=state.epoch,
            version=state.version,
            chain=state.chain,
            folder=held.record.published.folder,
            generation=state.locator.generation,
        )

    def _take_up(self, held: Held, *, one_copy: bool) -> None:
        """Acquire the leadership: claim a new epoch, and write the adopted state to the home register.

        Raises:
            Fenced, QuorumUnavailable, MembershipRefused, ReplicaCorrupt: as for `lead`.
        """
        # 1. Claim: the home register first, then the other voters until a majority granted the claim.
        epoch, held = self._claim_home(held)
        answers = self._claim_elsewhere(epoch, held.record)
        granted = _granted(answers, epoch)
        # 2. Adopt the newest state that those voters accepted, if this domain may lead it.
        adopted = newest_accepted(granted.values())
        self._expect_majority(epoch, adopted, answers)
        self._expect_leader(adopted.locator)
        self._expect_no_fork(held, adopted)
        if adopted.epoch == BEFORE_ALL and adopted.version < 0:
            self._expect_no_first_copy(adopted.locator)
        # 3. Catch up the home log, and write the adopted state under the new epoch.
        state = replace(adopted, epoch=epoch, locator=self._locator(adopted, one_copy=one_copy))
        self._write_home(state, adopted, granted)

    def _claim_home(self, held: Held) -> tuple[Epoch, Held]:
        """Claim a new epoch in the home register, where one process of the domain wins each number.

        A claim whose reply did not arrive counts as lost: the next number is unambiguous.

        Returns:
            The epoch, and the home register that promises it.

        Raises:
            Fenced: other processes of the domain won every attempt.
            MembershipRefused: the home replica is not a voter, or has never voted.
        """
        register = self._mirror.home.register
        for _ in range(ATTEMPTS):
            self._expect_voter(held.record)
            epoch = self._next_epoch(held.record)
            promised = held.record.promise(epoch)
            try:
                won = promised is not None and register.swap(held, promised)
            except Unanswered:
                won = False
            held = self._mirror.held()
            if won and held.record.promised == epoch:
                return epoch, held
        raise fenced(
            self._table, held.record.accepted, "other processes of the domain claim at the same time"
        )

    def _next_epoch(self, record: Record) -> Epoch:
        return Epoch(record.promised.number + 1, self._table.home)

    def _claim_elsewhere(self, epoch: Epoch, home: Record) -> dict[str, Answer]:
        """Send the claim to the voters until a majority granted it, or every known voter was asked.

        The replies may carry a newer locator. Voters that only the newer locator names are asked as well.

        Args:
            epoch: The claimed epoch.
            home: The home record, which promises the epoch already.

        Returns:
            The answer of every domain that was asked, the home domain included.
        """
        answers: dict[str, Answer] = {self._table.home: Answer(home)}

        def majority(more: Mapping[str, Answer]) -> bool:
            granted = _granted({**answers, **more}, epoch)
            return newest_accepted(granted.values()).locator.is_majority(without_forked(granted))

        looked_around = False
        while not majority({}):
            locator = newest_accepted(_granted(answers, epoch).values()).locator
            unasked = [domain for domain in locator.voters if domain not in answers]
            if not unasked and not looked_around:
                # This domain may have missed so many changes that none of the voters it knows is a voter now.
                looked_around, locator = True, self._newest_in_sight(locator)
                unasked = [each for each in locator.voters if answers.get(each, NOT_ASKED).record is None]
            if not unasked:
                break
            claims = {domain: partial(Voter(self._table, domain, locator).claim, epoch) for domain in unasked}
            silence = dict.fromkeys(unasked, Answer(None, "did not answer in time"))
            answers |= silence | self._table.couriers.gather(claims, majority)
        return answers

    def _newest_in_sight(self, known: Locator) -> Locator:
        """Return the newest locator in any register: it says which domains to ask, not yet which count."""
        found = self._read(self._table.roots).values()
        voted = [record for record in found if record.accepted is not None]
        return newest_accepted(voted).locator if voted else known

    def _expect_majority(self, epoch: Epoch, adopted: State, answers: Mapping[str, Answer]) -> None:
        locator, granted = adopted.locator, _granted(answers, epoch)
        counted = {
            domain
            for domain, record in without_forked(granted).items()
            if (agreed := locator.replica(domain)) is not None and agreed.incarnation == record.incarnation
        }
        if locator.is_majority(counted):
            return
        promised = max(answer.record.promised for answer in answers.values() if answer.record is not None)
        if promised > epoch:
            self._mirror.give_way(promised)
            raise fenced(self._table, adopted, by=promised)
        missing = {
            domain: (contradiction(granted[domain], adopted) if domain in granted else None)
            or answers.get(domain, NOT_ASKED).problem
            for domain in locator.voters
            if domain not in counted
        }
        raise quorum_unavailable(self._table, f"{self._table.home} cannot lead it", missing)

    def _expect_voter(self, record: Record) -> None:
        if record.accepted is None:
            raise self._may_not_lead("has never voted")
        self._expect_leader(record.accepted.locator)

    def _expect_leader(self, locator: Locator) -> None:
        agreed = locator.replica(self._table.home)
        if agreed is None or agreed.role is not Role.VOTER:
            raise self._may_not_lead("is no voter" if agreed is None else f"is a {agreed.role}")

    def _expect_no_first_copy(self, locator: Locator) -> None:
        """Refuse to begin a table empty while a domain has a copy of it from before it was mirrored.

        `bootstrap` searches every domain when it creates the registers. A copy may have been added since, or
        an older release without that search created the registers. So a domain that does not answer does not
        block the lead, but a domain that answers and cannot be searched does.

        Raises:
            MembershipRefused: a domain has such a copy.
            QuorumUnavailable: a domain answers, but its first folder cannot be listed.
        """
        looks = {domain: partial(self._first_copy_in, domain) for domain in locator.voters}
        found = self._table.couriers.gather(looks, lambda _: False)
        if hidden := {domain: each for domain, each in found.items() if isinstance(each, str)}:
            raise quorum_unavailable(
                self._table, "it cannot begin before it is known that no domain has a log of it", hidden
            )
        if domains := ", ".join(sorted(domain for domain in found if found[domain])):
            raise MembershipRefused(
                f"the table {self._table.name} would begin empty, and {domains} has a log of it from before"
                " it was mirrored",
                fix="nobody has led it yet, so nothing is in its registers: remove"
                f" register/{self._table.name}.json under every root, and it begins with that log; or move"
                f" tables/{self._table.name} away there to do without it",
                table=self._table.name,
                domain=domains,
            )

    def _first_copy_in(self, domain: str) -> bool | str:
        """Return whether a domain has a first copy, or why a domain that answers cannot be searched."""
        try:
            return find_first_copy(self._table, [domain]) is not None
        except Unanswered as error:
            return error.message if self._table.read(domain).record is not None else False

    def _expect_no_fork(self, held: Held, state: State) -> None:
        problem = contradiction(held.record, state)
        expect_no_fork(problem, table=self._table.name, domain=self._table.home)

    def _may_not_lead(self, why: str) -> MembershipRefused:
        return MembershipRefused(
            f"{self._table.home} cannot lead the table {self._table.name}: it {why}",
            fix="lead from a domain whose replica is a voter, or promote this one first",
            table=self._table.name,
            domain=self._table.home,
        )

    def _locator(self, adopted: State, *, one_copy: bool) -> Locator:
        locator = adopted.locator
        moved = adopted.epoch.domain != self._table.home
        if moved or one_copy > locator.one_copy:
            return locator.next(one_copy=locator.one_copy or one_copy)
        return locator

    def _write_home(self, state: State, adopted: State, granted: Mapping[str, Record]) -> None:
        """Make the home log equal to the adopted history, then write the adopted state under the new epoch.

        Args:
            state: The adopted state under the new epoch, with the locator that this lead begins with.
            adopted: The state as the voters accepted it.
            granted: The records of the voters that granted the claim.

        Raises:
            Fenced: the home register promised another epoch, or changed at every attempt.
            ReplicaCorrupt: the home replica cannot be brought to the adopted head.
        """
        sources = self._sources(adopted, granted)
        for _ in range(ATTEMPTS):
            held = self._mirror.held()
            if held.record.promised != state.epoch:
                raise fenced(self._table, state, by=held.record.promised)
            if self._mirror.joined(held) is not None:
                return
            published = self._catch_up(held, adopted, state, sources)
            record = held.record.accept(state, published)
            if record is not None and self._mirror.home.register.write(held, record):
                return
        raise fenced(self._table, state, "its register changed at every attempt to write it")

    def _sources(self, adopted: State, granted: Mapping[str, Record]) -> Sources:
        """Return the replicas to copy the adopted history and its data from, best first.

        Replicas that hold the adopted history come first, led by the home replica if it is one of them. A
        witness may have voted before all replicas with data. If no other replica with data granted the claim
        and holds the history, the remaining replicas with data are added at the end.
        """
        has_data = adopted.locator.domains(Role.VOTER, Role.LEARNER)
        elsewhere = [domain for domain in has_data if domain != self._table.home]

        def whole(domain: str) -> bool:
            return domain in granted and granted[domain].accepted == adopted

        def rank(domain: str) -> tuple[bool, bool, bool]:
            return domain not in granted, not whole(domain), domain != self._table.home

        records = dict(granted)
        if not any(whole(domain) for domain in elsewhere):
            records |= self._read([each for each in elsewhere if each not in granted], adopted.locator)
        return [
            (self._table.replica(domain, adopted.locator), records[domain].published.folder)
            for domain in sorted(records, key=rank)
        ]

    def _read(self, domains: Iterable[str], locator: Locator | None = None) -> dict[str, Record]:
        """Return the records of the domains that answer, except those that the locator disqualifies."""
        reads = {domain: partial(self._table.read, domain, locator) for domain in domains}
        answers = self._table.couriers.gather(reads, lambda _: False)
        return {domain: answer.record for domain, answer in answers.items() if answer.record is not None}

    def _catch_up(self, held: Held, adopted: State, state: State, sources: Sources) -> Published:
        """Make the home log the adopted history; a complete tail that follows on it stays in the log.

        Returns:
            What the register may name as published. The adopted head itself may not be acknowledged yet.

        Raises:
            ReplicaCorrupt: no source has the history or the base's checkpoint, or the replica has forked.
            Unanswered: the home store does not answer, or no source that answers has a data file.
        """
        home = Voter(self._table, self._table.home, adopted.locator)
        at = held.record.published
        # 1. Bring the log to the adopted head; in a new folder if another entry is in its place.
        if at.version < adopted.version:
            before_head, head = home.bring(at, state, sources)
            try:
                reached = home.replica.publish(before_head, head)
            except ForeignEntry:
                before_head, _ = home.rebuild(at, state, sources, with_head=True)
                reached = state.published_in(before_head.folder)
        else:
            before_head = reached = at
        # 2. Rebuild the replica if its log was changed, ends in an incomplete commit, or lacks the base's
        # checkpoint.
        another_base = held.record.accepted is None or held.record.accepted.base != state.base
        if (
            not self._mirror.has_published(reached, state.base)
            or self._has_broken_tail(reached)
            or (another_base and not home.holds(reached, state.base, sources))
        ):
            before_head, _ = home.rebuild(reached, state, sources, with_head=True)
            reached = state.published_in(before_head.folder)
        # 3. The head counts as published only if it was published before: this lead has yet to settle it.
        return reached if at.version >= reached.version else before_head

    def _has_broken_tail(self, at: Published) -> bool:
        """Return whether an entry beyond `at` names a missing or cut-off file; make the others durable."""
        version = at.version + 1
        while (entry := self._mirror.home.entry(at.folder, version)) is not None:
            try:
                self._mirror.home.persist(at.folder, version, entry)
            except ReplicaCorrupt:
                return True
            version += 1
        return False


def _granted(answers: Mapping[str, Answer], epoch: Epoch) -> dict[str, Record]:
    """Return the records that promise this epoch."""
    return {
        domain: answer.record
        for domain, answer in answers.items()
        if answer.record is not None and answer.record.promised == epoch
    }

"""Pushing what the leading domain's own log holds beyond the agreed head, one version at a time.

Any process of the leading domain may push, whoever wrote the entry. The next version is put forward by one conditional
write on the home register, and only after the last one was acknowledged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from etl_assets.errors import Fenced, QuorumUnavailable, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.ballot import Ballot, fenced, quorum_unavailable
from etl_assets.mirroring.chain import extend
from etl_assets.mirroring.epochs import Epoch
from etl_assets.mirroring.lead import Lead
from etl_assets.mirroring.locator import Locator
from etl_assets.mirroring.proof import Proof
from etl_assets.mirroring.record import Base, Published, State
from etl_assets.mirroring.register import Held
from etl_assets.mirroring.replica import ReplicaStore
from etl_assets.mirroring.table import MirroredTable
from etl_assets.mirroring.voter import Voter


class Mirror:
    """One process's view of a table that its domain leads, or may lead."""

    def __init__(self, table: MirroredTable) -> None:
        self.table = table
        self._acknowledged: State | None = None
        self._proof = Proof()

    @property
    def home(self) -> ReplicaStore:
        return self.table.replica(self.table.home)

    def held(self) -> Held:
        """The home register.

        Raises:
            QuorumUnavailable: the home store does not answer.
            ReplicaCorrupt: it was emptied or replaced; it must not vote from a blank memory.
        """
        try:
            held = self.home.register.read()
        except Unanswered as error:
            raise self.home_gone(error) from error
        locator = None if held is None or held.record.accepted is None else held.record.accepted.locator
        problem = self.table.disqualified(held, self.table.home, locator)
        if held is None or problem is not None:
            raise ReplicaCorrupt(
                f"{self.table.home} {problem} (table {self.table.name})",
                fix=f"let another domain lead, `etl-assets tables relocate {self.table.name} --to` it; this one then rejoins as a"
                " learner: `etl-assets tables repair`",
                table=self.table.name,
                domain=self.table.home,
            )
        return held

    def has_published(self, published: Published, base: Base) -> bool:
        """Whether the home log is what was published of it, given where it is agreed to begin.

        Raises:
            Unanswered: the home store does not answer.
        """
        return self._proof.holds(self.home, published, base)

    def joined(self, held: Held) -> State | None:
        """The state this domain leads with; None if it does not lead.

        A domain leads once the head it adopted stands in its own register under the epoch it was promised: from then on
        the local log is that head's history, and what is beyond it may be pushed.
        """
        record = held.record
        if record.accepted is None or not record.leads or record.promised.domain != self.table.home:
            return None
        return record.accepted

    def leading(self) -> tuple[Held, State]:
        """The home register and the state this domain leads with.

        Raises:
            Fenced: it does not lead.
        """
        held = self.held()
        state = self.joined(held)
        if state is None:
            raise fenced(self.table, held.record.accepted, by=held.record.promised)
        return held, state

    def push(self, upto: int | None = None) -> State:
        """Have the home log acknowledged, up to a version or to its end.

        Returns:
            The acknowledged state; its version is at least `upto` where the log reaches so far.

        Raises:
            Fenced: another domain leads, or this one leads under an epoch that it has not taken up.
            QuorumUnavailable: too few voters answered. The entry may still be acknowledged; push again.
            ReplicaCorrupt: the home replica is not what it should be.
        """
        while True:
            held, state = self.leading()
            try:
                self.settle(state, held.record.published.folder)
                if upto is not None and state.version >= upto:
                    return state
                entry = self.home.entry(held.record.published.folder, state.version + 1)
                if entry is None:
                    return state
                self._put_forward(held, state, entry)
            except Unanswered as error:
                raise self.home_gone(error) from error

    def acknowledge(self, lead: Lead, entry: bytes) -> State:
        """Have the commit acknowledged that this process has just made to the home log, as the version after its lead's.

        Args:
            lead: The lead the commit was planned under.
            entry: Its log entry, as it stands in the home log.

        Raises:
            Fenced: the domain's lead changed since. Whether the commit lives on is for the next plan to find out.
            QuorumUnavailable: too few voters answered, or the home root does not show the commit. It stands in the home
                log and is pushed first, later.
            ReplicaCorrupt: the home replica is not what it should be.
        """
        version = lead.version + 1
        state = self.push(version)
        folder = self.held().record.published.folder
        if (state.epoch, folder) != (lead.epoch, lead.folder):
            raise fenced(self.table, state, f"it leads under epoch {state.epoch} now, not {lead.epoch}")
        if state.version < version:
            raise self._hidden(version)
        # The chain says what was acknowledged; the home root is asked only where later versions follow.
        if state.version == version:
            is_this_one = state.chain == extend(lead.chain, entry)
        elif (there := self.home.entry(folder, version)) is None:
            raise self._hidden(version)
        else:
            is_this_one = there == entry
        if not is_this_one:
            raise fenced(self.table, state, "another process of the domain made this version")
        return state

    def _hidden(self, version: int) -> QuorumUnavailable:
        """The error of a home root that does not show what was committed there a moment ago."""
        return quorum_unavailable(
            self.table,
            f"version {version} is not acknowledged",
            {self.table.home: f"its root does not show version {version}, which was committed there"},
        )

    def follow(self) -> State:
        """Bring every replica, learners above all, to the acknowledged head, and sweep what is left of old votes.

        Whoever does not answer is left behind; nothing depends on it.
        """
        state = self.push()
        folder = self.held().record.published.folder
        errands = {
            replica.domain: partial(self._follow, replica.domain, state, folder)
            for replica in state.locator.replicas
        }
        self.table.couriers.gather(errands, lambda _: False)
        return state

    def _follow(self, domain: str, state: State, folder: int) -> None:
        voter = Voter(self.table, domain, state.locator)
        answer = voter.publish(state, [(self.home, folder)])
        if answer.record is not None:
            with suppress(Unanswered):
                voter.replica.sweep(answer.record.published)

    def rebase(self, state: State, base: Base) -> State | None:
        """Have a later base acknowledged for an acknowledged state; its checkpoint is durable in the home folder.

        Returns:
            The state with it, None if the home register moved on.

        Raises:
            Fenced, QuorumUnavailable: as of `push`; the base may still come to be agreed on.
        """
        held, now = self.leading()
        if now != state:
            return None
        changed = replace(state, base=base)
        try:
            record = held.record.accept(changed)
            if record is None or not self.home.register.write(held, record):
                return None
        except Unanswered as error:
            raise self.home_gone(error) from error
        self.settle(changed, held.record.published.folder)
        return changed

    def settle(self, state: State, folder: int, *, before: Locator | None = None) -> None:
        """Have a state acknowledged and published that stands in the home register.

        Raises:
            ReplicaCorrupt: the home register has forgotten what it voted for.
        """
        if self._acknowledged is not None and self._acknowledged.covers(state):
            self._expect_not_forgotten(state, self._acknowledged)
            return
        ballot = Ballot(self.table, state, [(self.home, folder)], before=before)
        try:
            ballot.settle()
        except Fenced as error:
            if isinstance(error.by, Epoch):
                self.give_way(error.by)
            raise
        if (ahead := ballot.newest_vote()) is not None:
            self._expect_not_forgotten(state, ahead)
        self._acknowledged = state
        ballot.publish()

    def _expect_not_forgotten(self, state: State, ahead: State) -> None:
        """Refuse to lead with a home register that is behind what was voted for at its word.

        Within an epoch a state is accepted at home before anywhere else. One that others have and the home register has not is no
        later one, but one that it had before its root was put back from a backup: who votes for an older state of the epoch says
        only that it has a newer one, of which what is put forward now may be no part.

        Args:
            state: What was just read at home.
            ahead: What was voted for elsewhere, or acknowledged before.
        """
        if state.epoch != ahead.epoch or state.order >= ahead.order:
            return
        accepted = self.held().record.accepted  # another process may have put it forward since
        if accepted is not None and (accepted.epoch != ahead.epoch or accepted.order >= ahead.order):
            return
        raise ReplicaCorrupt(
            f"{self.table.home} has forgotten what it led the table {self.table.name} to: its register stands at version"
            f" {state.version}, and others voted for version {ahead.version} at its word; its root was put back from a backup",
            fix="run the step again: the domain claims the lead again and begins from what the others have",
            table=self.table.name,
            domain=self.table.home,
        )

    def give_way(self, epoch: Epoch) -> None:
        """Let the home register know of a higher epoch met elsewhere.

        The domain then no longer counts as leading, and the next claim it makes goes beyond that epoch.
        """
        held = self.held()
        promised = held.record.promise(epoch)
        if promised is not None:
            self.home.register.write(held, promised)

    def home_gone(self, error: Unanswered) -> QuorumUnavailable:
        """The error of a leader without its own store."""
        return quorum_unavailable(
            self.table, "its own domain does not answer", {self.table.home: error.message}
        )

    def _put_forward(self, held: Held, state: State, entry: bytes) -> None:
        """Vote at home for one more entry. If the register moved on, the caller looks again."""
        folder = held.record.published.folder
        self.home.persist(folder, state.version + 1, entry)
        acknowledged = Published(version=state.version, chain=state.chain, folder=folder)
        record = held.record.accept(state.with_entry(entry), acknowledged)
        if record is not None:
            self.home.register.write(held, record)

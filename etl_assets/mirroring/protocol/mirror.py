"""Replication by the leading domain: have what its own log holds beyond the agreed head acknowledged.

Any process of the leading domain may push, whichever process wrote the entry. Versions are pushed one at a
time. One conditional write on the home register proposes the next version, and only after the last one was
acknowledged.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

from etl_assets.errors import Fenced, QuorumUnavailable, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.ballot import Ballot, fenced, quorum_unavailable
from etl_assets.mirroring.protocol.chain import extend
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.mirroring.protocol.locator import Locator
from etl_assets.mirroring.protocol.proof import Proof
from etl_assets.mirroring.protocol.record import Base, Published, State
from etl_assets.mirroring.protocol.register import Held
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.protocol.voter import Voter


class Mirror:
    """A mirrored table, as seen by one process whose domain leads it or may lead it."""

    def __init__(self, table: MirroredTable) -> None:
        self.table = table
        self._acknowledged: State | None = None
        self._proof = Proof()

    @property
    def home(self) -> ReplicaStore:
        return self.table.replica(self.table.home)

    def held(self) -> Held:
        """Read the home register.

        Raises:
            QuorumUnavailable: the home store does not answer.
            ReplicaCorrupt: the register is missing, belongs to another incarnation or cannot be read. A
                domain that lost its promises must not vote.
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
                fix=f"let another domain lead, `etl-assets tables relocate {self.table.name} --to` it; this"
                " one then rejoins as a learner: `etl-assets tables repair`",
                table=self.table.name,
                domain=self.table.home,
            )
        return held

    def has_published(self, published: Published, base: Base) -> bool:
        """Return whether the home log is the published history.

        Args:
            published: What the home register says is published.
            base: Where the log is agreed to begin.

        Raises:
            Unanswered: the home store does not answer.
        """
        return self._proof.holds(self.home, published, base)

    def joined(self, held: Held) -> State | None:
        """Return the state this domain leads with, or None if it does not lead.

        A domain leads once its own register holds the adopted head under the epoch that was promised last,
        and that epoch is its own. From then on the local log is the history of that head, and entries beyond
        it may be pushed.
        """
        record = held.record
        if record.accepted is None or not record.leads or record.promised.domain != self.table.home:
            return None
        return record.accepted

    def leading(self) -> tuple[Held, State]:
        """Return the home register and the state this domain leads with.

        Raises:
            Fenced: the domain does not lead.
            QuorumUnavailable, ReplicaCorrupt: as for `held`.
        """
        held = self.held()
        state = self.joined(held)
        if state is None:
            raise fenced(self.table, held.record.accepted, by=held.record.promised)
        return held, state

    def push(self, upto: int | None = None) -> State:
        """Have the home log acknowledged, up to a version or to its end.

        Args:
            upto: The version to stop at; None for the end of the log.

        Returns:
            The acknowledged state. Its version is at least `upto` if the log reaches that version.

        Raises:
            Fenced: another domain leads, or has claimed a higher epoch, or this domain has claimed an epoch
                and does not lead under it yet.
            QuorumUnavailable: too few voters answered. The entry may still be acknowledged; push again.
            ReplicaCorrupt: the home replica is damaged, or its register was lost or restored from a backup.
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
        """Have a commit acknowledged that this process has just made to the home log.

        The commit has the version after that of its lead.

        Args:
            lead: The lead the commit was planned under.
            entry: The bytes of the commit's log entry, as in the home log.

        Returns:
            The acknowledged state, which contains the commit.

        Raises:
            Fenced: the domain's lead changed since the commit was planned, or another process made this
                version. The commit may still be part of the history: the next plan finds out.
            QuorumUnavailable: too few voters answered, or the home root does not show the commit. If it is in
                the home log, the next push begins with it.
            ReplicaCorrupt: the home replica is damaged, or its register was lost or restored from a backup.
        """
        version = lead.version + 1
        state = self.push(version)
        folder = self.held().record.published.folder
        if (state.epoch, folder) != (lead.epoch, lead.folder):
            raise fenced(self.table, state, f"it leads under epoch {state.epoch} now, not {lead.epoch}")
        if state.version < version:
            raise self._hidden(version)
        # The chain identifies the acknowledged entry; the home log is read only if later versions follow on
        # it.
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
        """Return the error for a home root that does not show what was just committed there."""
        return quorum_unavailable(
            self.table,
            f"version {version} is not acknowledged",
            {self.table.home: f"its root does not show version {version}, which was committed there"},
        )

    def follow(self) -> State:
        """Bring every replica to the acknowledged head, and remove outdated staged entries.

        Replicas that do not answer are skipped: nothing depends on this.

        Returns:
            The acknowledged state.

        Raises:
            Fenced, QuorumUnavailable, ReplicaCorrupt: as for `push`.
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
        """Have a later base acknowledged for an acknowledged state.

        Args:
            state: The acknowledged state.
            base: The new base. Its checkpoint must be durable in the home folder.

        Returns:
            The state with the new base, or None if the home register changed since `state` was read.

        Raises:
            Fenced, QuorumUnavailable, ReplicaCorrupt: as for `push`. The base may still be acknowledged
                later.
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
        """Have a state that the home register has accepted acknowledged and published.

        Args:
            state: The state.
            folder: Number of the home replica's content generation, which holds the state's history.
            before: The previous locator, if the state changes it: a majority of its voters must agree as
                well.

        Raises:
            Fenced: a voter that is needed promised a higher epoch. The home register then promises that epoch
                as well.
            QuorumUnavailable: too few voters answered. The state may still be acknowledged.
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
        """Refuse to lead with a home register that is behind states which other voters accepted from it.

        Within an epoch the home register accepts a state before any other voter. If a voter has a newer state
        of the epoch than the home register, then the home root was restored from a backup. A voter that
        grants an older state of the epoch says only that it has a newer one, and the state proposed now may
        be no part of that history.

        Args:
            state: The state just read from the home register.
            ahead: A state that another voter accepted, or that was acknowledged before.

        Raises:
            ReplicaCorrupt: the home register has forgotten what it voted for.
        """
        if state.epoch != ahead.epoch or state.order >= ahead.order:
            return
        accepted = self.held().record.accepted  # another process may have proposed `ahead` since
        if accepted is not None and (accepted.epoch != ahead.epoch or accepted.order >= ahead.order):
            return
        raise ReplicaCorrupt(
            f"{self.table.home} has forgotten what it led the table {self.table.name} to: its register stands"
            f" at version {state.version}, and others voted for version {ahead.version} at its word; its root"
            " was put back from a backup",
            fix="run the step again: the domain claims the lead again and begins from what the others have",
            table=self.table.name,
            domain=self.table.home,
        )

    def give_way(self, epoch: Epoch) -> None:
        """Promise in the home register a higher epoch that was met elsewhere.

        The domain then no longer counts as leading, and its next claim is higher than that epoch.
        """
        held = self.held()
        promised = held.record.promise(epoch)
        if promised is not None:
            self.home.register.write(held, promised)

    def home_gone(self, error: Unanswered) -> QuorumUnavailable:
        """Return the error for a leader whose own store does not answer."""
        return quorum_unavailable(
            self.table, "its own domain does not answer", {self.table.home: error.message}
        )

    def _put_forward(self, held: Held, state: State, entry: bytes) -> None:
        """Propose one more entry: make it durable, then vote for it in the home register.

        If the register changed in the meantime nothing is written: the caller reads it again.
        """
        folder = held.record.published.folder
        self.home.persist(folder, state.version + 1, entry)
        acknowledged = Published(version=state.version, chain=state.chain, folder=folder)
        record = held.record.accept(state.with_entry(entry), acknowledged)
        if record is not None:
            self.home.register.write(held, record)

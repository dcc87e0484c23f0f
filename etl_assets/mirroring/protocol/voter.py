"""One voter's part in the protocol: grant a claim, vote for a state, publish what was acknowledged.

Each operation first brings the replica as far as its answer requires. Then it makes one conditional write
against the record it has read. If the write is refused, it starts over from reading. Every operation is safe
to run late, twice or concurrently in several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.checkpoints import Checkpoints
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.fork import chain_at, contradiction, expect_no_fork, other_history
from etl_assets.mirroring.protocol.locator import Locator
from etl_assets.mirroring.protocol.record import NOTHING_PUBLISHED, Base, Published, Record, State
from etl_assets.mirroring.protocol.register import Held
from etl_assets.mirroring.protocol.replica import ForeignEntry, ReplicaStore
from etl_assets.mirroring.protocol.table import Answer, MirroredTable

ATTEMPTS = 8
Sources = Sequence[tuple[ReplicaStore, int]]
"""Replicas that hold a state's history, each with the number of the folder that holds it; tried in order."""


class Voter:
    """The replica of one domain as a voter; used by processes of any domain."""

    def __init__(self, table: MirroredTable, domain: str, locator: Locator) -> None:
        self.replica = table.replica(domain, locator)
        self._table = table
        self._domain = domain
        self._locator = locator

    def claim(self, epoch: Epoch) -> Answer:
        """Promise an epoch.

        Returns:
            The record with the promise. If it was refused, the record holds the higher promise that refused
            it.
        """
        return self._change(lambda held: held.record.promise(epoch))

    def vote(self, state: State, sources: Sources) -> Answer:
        """Accept a state, after making its data and its log durable in this replica.

        A record that promised a higher epoch refuses the vote.

        Args:
            state: The state to vote for.
            sources: Replicas that hold its history.

        Returns:
            The record that accepted the state or refused it; no record if the domain does not count or cannot
            vote, with the reason in `problem`.
        """

        def voted(held: Held) -> Record | None:
            record = held.record
            if record.promised > state.epoch:
                return record.accept(state)
            self._expect_no_fork(contradiction(record, state))
            if _covers(record, state):
                return record.accept(state)
            published = record.published
            if published.version < state.version:
                published, head = self.bring(published, state, sources)
                self.replica.stage(state, *head)
            if record.accepted is None or record.accepted.base != state.base:
                published = self._hold(published, state, sources)
            return record.accept(state, published)

        return self._change(voted)

    def publish(self, state: State, sources: Sources) -> Answer:
        """Publish an *acknowledged* state: write its history into the log, and its version into the register.

        A replica that has published this version or a later one is left as it is. The staged entry of the
        state is removed.
        """

        def published(held: Held) -> Record | None:
            at = held.record.published
            if at.version == state.version:
                self._expect_no_fork(contradiction(held.record, state))
            if at.version >= state.version:
                return held.record
            return held.record.publish(
                self._write_head(
                    at, _with_base_of(held.record, state), sources, voted=_covers(held.record, state)
                )
            )

        answer = self._change(published)
        if answer.record is not None:
            try:
                self.replica.unstage(state)
            except Unanswered:
                return answer  # the staged entry is left; `ReplicaStore.sweep` removes it
        return answer

    def install(self, state: State, sources: Sources) -> Published:
        """Write the history of a table's first state, head included, before the domain has a register.

        Creating the register with this state is the domain's vote for it.
        """
        return self._write_head(NOTHING_PUBLISHED, state, sources, voted=False)

    def _write_head(self, at: Published, state: State, sources: Sources, *, voted: bool) -> Published:
        """Bring the log to a state's head, in a new folder if another entry is in its place."""
        try:
            reached, head = self.bring(at, state, sources, voted=voted)
            return self.replica.publish(reached, head)
        except ForeignEntry:
            before_head, _ = self.rebuild(at, state, sources, with_head=True)
            return state.published_in(before_head.folder)

    def bring(
        self, at: Published, state: State, sources: Sources, *, voted: bool = False
    ) -> tuple[Published, list[bytes]]:
        """Bring the replica to a state: the data of all versions, and the log up to the one before the head.

        The version before the head is acknowledged: no voter votes for a version before the previous one is.

        Args:
            at: The published part of this replica.
            state: The state to reach.
            sources: Replicas that hold its history.
            voted: Whether the replica has voted for the state. Then the head's data is durable here already.

        Returns:
            The published part that the log now holds, and the head's entry (none for a table without
            versions).

        Raises:
            ReplicaCorrupt: this replica has published another history, or no source has the history.
            Unanswered: a store does not answer, or no source that answers has a data file.
        """
        history = None if at.version + 1 < state.base.first else _history(sources, at, state)
        if history is None:
            if chain_at(at, state, sources) not in (None, at.chain):
                self._expect_no_fork(other_history(at.version, "published", state))
            return self.rebuild(at, state, sources)
        if self._has_data and not (voted and len(history) == 1):
            self.replica.fetch(at.folder, history, sources)
        try:
            return self.replica.publish(at, history[:-1]), history[-1:]
        except ForeignEntry:
            return self.rebuild(at, state, sources)

    def rebuild(
        self, at: Published, state: State, sources: Sources, *, with_head: bool = False
    ) -> tuple[Published, list[bytes]]:
        """Rebuild the replica in a new folder.

        The old folder is not touched again, so late writers do not reach the new one.

        The new folder begins at the state's base: with the checkpoint of that version, the data files in use
        at it, and the log from there on. The chain of the log must be the agreed one.

        Args:
            at: The published part of this replica.
            state: The state to reach.
            sources: Replicas that hold its history.
            with_head: Write the head into the log as well. A folder with another entry in its place is
                skipped.

        Returns:
            As for `bring`.

        Raises:
            ReplicaCorrupt: no source has the history from the base on, or the base's checkpoint.
            Unanswered: a store does not answer, or no source that answers has a data file.
        """
        base = state.base
        history = _history(sources, base.start(at.folder), state)
        if history is None:
            raise ReplicaCorrupt(
                f"no replica that answers can prove version {state.version} of the table {self._table.name}",
                fix="bring back another domain, or restore the log entries that `etl-assets tables verify`"
                " names",
                table=self._table.name,
                domain=self._domain,
            )
        own_first = [(self.replica, at.folder), *sources]
        snapshot = self._checkpoint(base, own_first) if self._has_data and base.first else None
        live = () if snapshot is None else self._table.live_files(snapshot)
        folder = max(state.epoch.number, at.folder + 1)
        while True:
            try:
                if self._has_data:
                    self.replica.fetch(folder, history, own_first, live=live)
                if snapshot is not None and not Checkpoints(self.replica, folder).keep(base, snapshot):
                    raise ForeignEntry(f"checkpoint {base.first} in {self.replica.folder(folder)}")
                before_head, head = self.replica.publish(base.start(folder), history[:-1]), history[-1:]
                if with_head:
                    self.replica.publish(before_head, head)
            except ForeignEntry:
                folder += 1
            else:
                return before_head, head

    def holds(self, at: Published, base: Base, sources: Sources) -> bool:
        """Return whether the published part has the log from a base on and the base's checkpoint.

        A missing checkpoint is copied from a source. The replica must be rebuilt if the answer is False: its
        log lacks the base's entry, or it has another checkpoint of that version.

        Raises:
            ReplicaCorrupt: no source has the base's checkpoint.
            Unanswered: a store does not answer.
        """
        if at.version >= base.first and self.replica.entry(at.folder, base.first) is None:
            return False
        if not base.first or not self._has_data:
            return True
        content = self._checkpoint(base, [(self.replica, at.folder), *sources])
        return Checkpoints(self.replica, at.folder).keep(base, content)

    def _hold(self, at: Published, state: State, sources: Sources) -> Published:
        """Make the replica hold the log from the state's base on, in a new folder if necessary."""
        if self.holds(at, state.base, sources):
            return at
        published = at.version >= state.version
        before_head, _ = self.rebuild(at, state, sources, with_head=published)
        return state.published_in(before_head.folder) if published else before_head

    def _checkpoint(self, base: Base, sources: Sources) -> bytes:
        """Return the agreed checkpoint of a base, from the first source that has it.

        Raises:
            ReplicaCorrupt: no source has it, and all of them answered.
            Unanswered: no source that answered has it.
        """
        unanswered: Unanswered | None = None
        for replica, folder in sources:
            try:
                content = Checkpoints(replica, folder).of(base)
            except Unanswered as error:
                unanswered = error
                continue
            if content is not None:
                return content
        raise unanswered or ReplicaCorrupt(
            f"no replica that answers has the checkpoint of version {base.first} of the table"
            f" {self._table.name}, with which its log begins",
            fix="bring back another domain, or restore the checkpoint that `etl-assets tables verify` names",
            table=self._table.name,
            domain=self._domain,
        )

    def _expect_no_fork(self, problem: str | None) -> None:
        expect_no_fork(problem, table=self._table.name, domain=self._domain)

    @property
    def _has_data(self) -> bool:
        agreed = self._locator.replica(self._domain)
        return agreed is None or agreed.has_data

    def _change(self, decide: Callable[[Held], Record | None]) -> Answer:
        """Read the register, decide, and write; start over if another process wrote in between.

        Args:
            decide: Returns the record to write, or None to refuse.

        Returns:
            The written record, or the record that led to a refusal; no record if the domain does not count,
            its store does not answer or its replica is corrupt, with the reason in `problem`.
        """
        try:
            for _ in range(ATTEMPTS):
                held = self.replica.register.read()
                problem = self._table.disqualified(held, self._domain, self._locator)
                if held is None or problem is not None:
                    return Answer(None, problem or "")
                record = decide(held)
                if record is None:
                    return Answer(held.record, "promised a higher epoch")
                if self.replica.register.write(held, record):
                    return Answer(record)
        except (Unanswered, ReplicaCorrupt) as error:
            return Answer(None, error.message)
        return Answer(None, "its register changed at every attempt to write it")


def _covers(record: Record, state: State) -> bool:
    return record.accepted is not None and record.accepted.covers(state)


def _with_base_of(record: Record, state: State) -> State:
    """Return a state with the later base that a voter has accepted: a new folder must begin there as well."""
    accepted = record.accepted
    if accepted is None or accepted.base.first <= state.base.first:
        return state
    return replace(state, base=accepted.base)


def _history(sources: Sources, after: Published, state: State) -> list[bytes] | None:
    """Return the entries after `after` up to a state's head, from the first source that has them.

    None if no source has them, and all of them answered.

    Raises:
        Unanswered: no source that answered has them.
    """
    unanswered: Unanswered | None = None
    for replica, folder in sources:
        try:
            history = replica.history(folder, after, state)
        except Unanswered as error:
            unanswered = error
            continue
        if history is not None:
            return history
    if unanswered is not None:
        raise unanswered
    return None

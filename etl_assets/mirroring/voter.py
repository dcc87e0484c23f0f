"""One voter's part: granting a claim, voting for a state, publishing what was acknowledged.

Each brings the replica as far as its answer needs, then makes one conditional write against the record it has read. A
write that is refused starts over from reading. All of it may be done late, twice or by several processes at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.checkpoints import Checkpoints
from etl_assets.mirroring.epochs import Epoch
from etl_assets.mirroring.fork import chain_at, contradiction, expect_no_fork, other_history
from etl_assets.mirroring.locator import Locator
from etl_assets.mirroring.record import NOTHING_PUBLISHED, Base, Published, Record, State
from etl_assets.mirroring.register import Held
from etl_assets.mirroring.replica import ForeignEntry, ReplicaStore
from etl_assets.mirroring.table import Answer, MirroredTable

ATTEMPTS = 8
Sources = Sequence[tuple[ReplicaStore, int]]
"""Replicas that hold a state's history, with the folder each has it in; tried in order."""


class Voter:
    """The replica of one domain, asked by a process of any domain."""

    def __init__(self, table: MirroredTable, domain: str, locator: Locator) -> None:
        self.replica = table.replica(domain, locator)
        self._table = table
        self._domain = domain
        self._locator = locator

    def claim(self, epoch: Epoch) -> Answer:
        """Promise an epoch; the answer's record then holds the promise, or a higher one that refuses it."""
        return self._change(lambda held: held.record.promise(epoch))

    def vote(self, state: State, sources: Sources) -> Answer:
        """Accept a state once its data and log are durable here; refused by a record that promised a higher epoch."""

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
        """Put the history of an *acknowledged* state into the log and note how far it reaches."""

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
                return answer  # a leftover; `ReplicaStore.sweep` takes it
        return answer

    def install(self, state: State, sources: Sources) -> Published:
        """Have the history of a first state, its head too, before there is a register that votes for it."""
        return self._write_head(NOTHING_PUBLISHED, state, sources, voted=False)

    def _write_head(self, at: Published, state: State, sources: Sources, *, voted: bool) -> Published:
        """Bring the log to a state's head, in a new folder where another entry is in the way."""
        try:
            reached, head = self.bring(at, state, sources, voted=voted)
            return self.replica.publish(reached, head)
        except ForeignEntry:
            before_head, _ = self.rebuild(at, state, sources, with_head=True)
            return state.published_in(before_head.folder)

    def bring(
        self, at: Published, state: State, sources: Sources, *, voted: bool = False
    ) -> tuple[Published, list[bytes]]:
        """Bring the replica to a state: data of all versions, log up to the one before the head.

        The one before the head is acknowledged: nobody votes for a version before the last one is.

        Args:
            at: What is published here.
            state: Where to bring it.
            sources: Who has the history.
            voted: The replica has voted for the state, so that the head's data is here and durable.

        Returns:
            How far the log reaches, and the head's entry (none for a table without versions).

        Raises:
            ReplicaCorrupt: what is published here is of another history.
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
        """Build the replica anew beside its folder, which is not touched again: late writers only reach the old one.

        It begins at the state's base: with the checkpoint of that version, the data files that are live there, and the
        log from there on, whose chain must come out as agreed.

        Args:
            at: What is published here.
            state: Where to bring it.
            sources: Who has the history.
            with_head: Put the head into the log as well, in a folder where nothing else is in its place.

        Raises:
            ReplicaCorrupt: no source can show the history from the base on, or has the base's checkpoint.
        """
        base = state.base
        history = _history(sources, base.start(at.folder), state)
        if history is None:
            raise ReplicaCorrupt(
                f"no replica that answers can prove version {state.version} of the table {self._table.name}",
                fix="bring back another domain, or restore the log entries that `etl-assets tables verify` names",
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
        """Whether what is published here has the log from a base on, and its checkpoint, which is copied if it is missing.

        No: the folder begins later, or has another checkpoint of that version; it is to be rebuilt.

        Raises:
            ReplicaCorrupt: no source has the base's checkpoint.
        """
        if at.version >= base.first and self.replica.entry(at.folder, base.first) is None:
            return False
        if not base.first or not self._has_data:
            return True
        content = self._checkpoint(base, [(self.replica, at.folder), *sources])
        return Checkpoints(self.replica, at.folder).keep(base, content)

    def _hold(self, at: Published, state: State, sources: Sources) -> Published:
        """Have the log from the state's base on, in a new folder if need be."""
        if self.holds(at, state.base, sources):
            return at
        published = at.version >= state.version
        before_head, _ = self.rebuild(at, state, sources, with_head=published)
        return state.published_in(before_head.folder) if published else before_head

    def _checkpoint(self, base: Base, sources: Sources) -> bytes:
        """The checkpoint of a base, from the first source that has the one that was agreed on."""
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
            f"no replica that answers has the checkpoint of version {base.first} of the table {self._table.name}, "
            f"with which its log begins",
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
        """Read, decide, write; again when somebody else wrote in between.

        The answer holds the record as it is then. Where the decision was a refusal it is the one that refused.
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
    """A state with the base that a voter has voted for since: its folder must not lose that again."""
    accepted = record.accepted
    if accepted is None or accepted.base.first <= state.base.first:
        return state
    return replace(state, base=accepted.base)


def _history(sources: Sources, after: Published, state: State) -> list[bytes] | None:
    """The entries after `after` up to a state's head, from the first source that has them."""
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

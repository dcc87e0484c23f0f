"""The record of one voter for one table, and the rules for changing it. Pure: no storage.

In Paxos it is the state of an acceptor.

A record only moves forward: `promised` grows, `accepted` grows by (epoch, version, generation, base),
`published` grows by version. So no content ever recurs, and a tag computed from the content is as good as a
counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from etl_assets.mirroring.protocol.chain import GENESIS, extend
from etl_assets.mirroring.protocol.epochs import BEFORE_ALL, Epoch
from etl_assets.mirroring.protocol.locator import Locator

FIRST_FOLDER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The beginning of the log that every replica holds; no replica needs an older entry.

    The base is agreed on like the head. So a replica trusts no peer for the chain or the checkpoint that it
    begins with.

    Attributes:
        first: The version of the first entry.
        before: The chain up to the version before the first entry.
        checkpoint: SHA-256 of the checkpoint of version `first`, in hexadecimal; empty if the log begins with
            version 0.
    """

    first: int = 0
    before: str = GENESIS
    checkpoint: str = ""

    def start(self, folder: int) -> Published:
        """Return the published part of an empty folder that is to hold the log from this base on."""
        return Published(version=self.first - 1, chain=self.before, folder=folder)


WHOLE_LOG = Base()
"""The log from version 0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The value that the voters agree on: the head of the log, the base, and the locator.

    The states of one epoch form a sequence. Each is first accepted in the leader's own domain, by a
    conditional write on the state before. So a voter that accepted a later state of an epoch has thereby
    accepted every earlier one.

    Attributes:
        epoch: The epoch of the leader that proposed the state.
        version: Version of the head; -1 for a table without versions.
        chain: Chain of the head.
        locator: The replicas.
        base: The beginning of the log.
    """

    epoch: Epoch
    version: int
    chain: str
    locator: Locator
    base: Base = WHOLE_LOG

    @property
    def order(self) -> tuple[Epoch, int, int, int]:
        return self.epoch, self.version, self.locator.generation, self.base.first

    def with_entry(self, entry: bytes) -> State:
        """Return the state after one more log entry."""
        return replace(self, version=self.version + 1, chain=extend(self.chain, entry))

    def published_in(self, folder: int) -> Published:
        """Return the published part of a folder whose log ends with the head."""
        return Published(version=self.version, chain=self.chain, folder=folder)

    def covers(self, other: State) -> bool:
        """Return whether accepting this state includes accepting `other`: same epoch, and not older."""
        return self.epoch == other.epoch and self.order >= other.order


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The part of a replica's own log that is the acknowledged history.

    Attributes:
        version: The last published version; -1 for none.
        chain: The chain up to that version.
        folder: Number of the content generation that holds the log: `tables/<table>/g000001`. It grows when
            the replica is rebuilt.
    """

    version: int
    chain: str
    folder: int


def folder_name(folder: int) -> str:
    """Return the name of a content generation's folder."""
    return f"g{folder:06d}"


NOTHING_PUBLISHED = Published(version=-1, chain=GENESIS, folder=FIRST_FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """Content of one domain's register of one table.

    Attributes:
        table: The table.
        incarnation: Name of the register, new whenever it is created from nothing.
        promised: The highest epoch promised: claims and votes of lower ones are refused.
        accepted: The state accepted last; None in a replica that has never voted.
        published: The part of the replica's log that is acknowledged history.
    """

    table: str
    incarnation: str
    promised: Epoch = BEFORE_ALL
    accepted: State | None = None
    published: Published = NOTHING_PUBLISHED

    @property
    def leads(self) -> bool:
        """Whether the last state was accepted under the epoch that was promised last."""
        return self.accepted is not None and self.accepted.epoch == self.promised

    def promise(self, epoch: Epoch) -> Record | None:
        """Return the record after promising an epoch, or None if a higher epoch was promised before.

        The same epoch is promised again, because the first answer may not have arrived.
        """
        return replace(self, promised=epoch) if epoch >= self.promised else None

    def accept(self, state: State, published: Published | None = None) -> Record | None:
        """Return the record after a vote, or None if a higher epoch was promised.

        A vote for a state that is covered already changes `accepted` no further.

        Args:
            state: The state to accept.
            published: The published part to record with the vote, if any.
        """
        if state.epoch < self.promised:
            return None
        voted = (
            self
            if self.accepted is not None and self.accepted.covers(state)
            else replace(self, promised=state.epoch, accepted=state)
        )
        return voted if published is None else voted.publish(published)

    def publish(self, published: Published) -> Record:
        """Return the record with a new published part; unchanged if that has a lower version or folder."""
        if published.folder < self.published.folder or published.version < self.published.version:
            return self
        return replace(self, published=published)


def newest_accepted(records: Iterable[Record]) -> State:
    """Return the newest accepted state in these records; at least one of them must have voted."""
    states = (record.accepted for record in records if record.accepted is not None)
    return max(states, key=lambda state: state.order)

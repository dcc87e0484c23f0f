"""What one voter remembers of one table, and the rules by which that may change. Pure: no storage here.

A record only ever moves forward: `promised` grows, `accepted` grows by (epoch, version, generation, base), `published`
grows by version. So no content ever comes back, and a tag computed from the content is as good as a counter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from etl_assets.mirroring.chain import GENESIS, extend
from etl_assets.mirroring.epochs import BEFORE_ALL, Epoch
from etl_assets.mirroring.locator import Locator

FIRST_FOLDER = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """Where the log begins that every replica holds: an older entry is nobody's need.

    Agreed on like the head, so that neither the chain nor the checkpoint that a replica begins with is taken on a peer's
    word.

    Attributes:
        first: The version of the first entry.
        before: The chain up to the version before it.
        checkpoint: SHA-256 of the checkpoint of that version, in hexadecimal; empty where the log begins with version 0.
    """

    first: int = 0
    before: str = GENESIS
    checkpoint: str = ""

    def start(self, folder: int) -> Published:
        """What is published in a folder that is to get the log from here on, and has nothing yet."""
        return Published(version=self.first - 1, chain=self.before, folder=folder)


WHOLE_LOG = Base()
"""The log from version 0 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is agreed on: the head of the log, where the log begins, and the locator.

    The states of one epoch follow one another: each is first accepted in the leader's own domain, by a conditional
    write on the one before. So a voter that accepted a later state of an epoch has accepted every earlier one.
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
        """The state after one more log entry."""
        return replace(self, version=self.version + 1, chain=extend(self.chain, entry))

    def published_in(self, folder: int) -> Published:
        """What is published in a folder whose log ends with the head."""
        return Published(version=self.version, chain=self.chain, folder=folder)

    def covers(self, other: State) -> bool:
        """Whether accepting this one includes accepting `other`."""
        return self.epoch == other.epoch and self.order >= other.order


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Up to where a replica's own log is the acknowledged history, and the folder it lies in.

    `folder` is the number of the content generation: `tables/<table>/g000001`. It grows when the replica is rebuilt.
    """

    version: int
    chain: str
    folder: int


def folder_name(folder: int) -> str:
    """Name of a content generation's folder."""
    return f"g{folder:06d}"


NOTHING_PUBLISHED = Published(version=-1, chain=GENESIS, folder=FIRST_FOLDER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One domain's register of one table. `accepted` is None in a replica that has never voted."""

    table: str
    incarnation: str
    promised: Epoch = BEFORE_ALL
    accepted: State | None = None
    published: Published = NOTHING_PUBLISHED

    @property
    def leads(self) -> bool:
        """Whether what was accepted last was accepted under the epoch promised last."""
        return self.accepted is not None and self.accepted.epoch == self.promised

    def promise(self, epoch: Epoch) -> Record | None:
        """The record after granting a claim; None: refused, a claim at least as high was granted before.

        A claim that was granted to the same epoch before is granted again: its answer may not have arrived.
        """
        return replace(self, promised=epoch) if epoch >= self.promised else None

    def accept(self, state: State, published: Published | None = None) -> Record | None:
        """The record after a vote; None: refused, a higher epoch was promised.

        Voting for a state that is covered already changes nothing. `published` is raised with it.
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
        """The record after a part of the acknowledged history was published; never goes back."""
        if published.folder < self.published.folder or published.version < self.published.version:
            return self
        return replace(self, published=published)


def newest_accepted(records: Iterable[Record]) -> State:
    """The state that was accepted last of all that these records hold; at least one of them has voted."""
    states = (record.accepted for record in records if record.accepted is not None)
    return max(states, key=lambda state: state.order)

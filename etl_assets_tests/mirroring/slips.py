"""Ways to get the protocol wrong, each put back on purpose for the simulator to catch (tests of the test).

The first five are those of the design; the others are mistakes that the simulator found in this code, or that
it would be easy to make.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from etl_assets.mirroring.maintenance import log_cleanup as clean_up
from etl_assets.mirroring.protocol import reading
from etl_assets.mirroring.protocol.ballot import fenced
from etl_assets.mirroring.protocol.checkpoints import Checkpoint
from etl_assets.mirroring.protocol.epochs import Epoch
from etl_assets.mirroring.protocol.lead import Lead
from etl_assets.mirroring.protocol.leadership import Leadership
from etl_assets.mirroring.protocol.locator import Locator
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.reading import Reading
from etl_assets.mirroring.protocol.record import Base, Published, Record, State
from etl_assets.mirroring.protocol.record_codec import encode
from etl_assets.mirroring.protocol.register import Held, Register
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.protocol.voter import Voter


@contextmanager
def epochs_without_owner() -> Generator[None]:
    """Two domains can claim the same number, and each takes it for its own."""

    def next_epoch(self: Leadership, record: Record) -> Epoch:
        return Epoch(record.promised.number + 1, "anyone")

    def joined(self: Mirror, held: Held) -> State | None:
        return held.record.accepted if held.record.leads else None

    with patch.object(Leadership, "_next_epoch", next_epoch), patch.object(Mirror, "joined", joined):
        yield


@contextmanager
def joining_before_write_back() -> Generator[None]:
    """A process takes its domain for the leader as soon as the claim stands in the home register."""

    def joined(self: Mirror, held: Held) -> State | None:
        record = held.record
        if record.accepted is None or record.promised.domain != self.table.home:
            return None
        return replace(record.accepted, epoch=record.promised)

    with patch.object(Mirror, "joined", joined):
        yield


@contextmanager
def dropping_a_tail_while_leading() -> Generator[None]:
    """A process that joins first removes what the home log has beyond the head."""
    lead = Leadership.lead

    def lead_after_dropping(self: Leadership, **options: Any) -> Any:
        mirror = self._mirror
        held = mirror.held()
        state = mirror.joined(held)
        if state is not None:
            mirror.home.store.delete(mirror.home.entry_key(held.record.published.folder, state.version + 1))
        return lead(self, **options)

    with patch.object(Leadership, "lead", lead_after_dropping):
        yield


@contextmanager
def checking_before_moving() -> Generator[None]:
    """The epoch is checked in one operation, and the head is moved in another."""

    def swap(self: Register, held: Held, record: Record) -> bool:
        now = self.read()
        if now is None or now.record.promised > record.promised:
            return False
        self._store.put(self.key, [encode(record)])
        return True

    with patch.object(Register, "swap", swap):
        yield


@contextmanager
def replacing_a_foreign_entry() -> Generator[None]:
    """An entry in the way is looked at in one operation, removed in the next, and written in a third."""

    def put_if_absent(self: ReplicaStore, folder: int, version: int, entry: bytes) -> bool:
        key = self.entry_key(folder, version)
        if self.store.create(key, entry):
            return True
        found = self.store.get(key)
        if found is None or found.content != entry:
            self.store.delete(key)
            self.store.create(key, entry)
        return True

    with patch.object(ReplicaStore, "_put_if_absent", put_if_absent):
        yield


@contextmanager
def voting_from_a_blank_memory() -> Generator[None]:
    """A voter whose root was emptied gets a fresh register, and votes on."""
    read = Register.read

    def read_or_create(self: Register) -> Held | None:
        held = read(self)
        if held is None:
            self.create(Record(table=self._table, incarnation="blank"))
            held = read(self)
        return held

    def disqualified(*_: object) -> None:
        return None

    def incarnation_is_ignored(self: Locator, domain: str) -> Any:
        agreed = next((replica for replica in self.replicas if replica.domain == domain), None)
        return None if agreed is None else _AnyIncarnation(agreed)

    with (
        patch.object(Register, "read", read_or_create),
        patch.object(MirroredTable, "disqualified", disqualified),
        patch.object(Locator, "replica", incarnation_is_ignored),
    ):
        yield


class _AnyIncarnation:
    """A replica whose incarnation equals any other."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self.incarnation = _Anything()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._replica, name)


class _Anything(str):
    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0


@contextmanager
def reading_what_some_majority_holds() -> Generator[None]:
    """A reader takes the newest state that a majority supports, though it has seen a newer one."""

    def always(*_: object) -> bool:
        return True

    with patch.object(Reading, "_is_the_newest", always):
        yield


@contextmanager
def a_leader_that_never_gives_way() -> Generator[None]:
    """A leader that meets a higher promise keeps its own, and meets it again for ever."""

    def keep(*_: object) -> None:
        return None

    with patch.object(Mirror, "give_way", keep):
        yield


@contextmanager
def shortening_before_agreement() -> Generator[None]:
    """Entries go as soon as the leader has a checkpoint in their place, whether or not the others agree on
    it.
    """
    rebase = Mirror.rebase

    def hasty(self: Mirror, state: State, base: Base) -> State | None:
        held = self.held()
        record = held.record.accept(replace(state, base=base))
        if record is not None and self.home.register.write(held, record):
            folder = record.published.folder
            for version in range(base.first):
                self.home.store.delete(self.home.entry_key(folder, version))
        return rebase(self, state, base)

    with patch.object(Mirror, "rebase", hasty):
        yield


@contextmanager
def shortening_beyond_what_a_replica_holds() -> Generator[None]:
    """Every replica loses the entries before the base, those too that have not voted for it and lack its
    checkpoint.
    """

    def everyone(*_: object) -> bool:
        return True

    with (
        patch.object(clean_up, "_begins_at_base", everyone),
        patch.object(clean_up, "_points_beyond", everyone),
    ):
        yield


@contextmanager
def voting_without_the_checkpoint() -> Generator[None]:
    """A base is voted for like a head: by who has the entries."""

    def hold(self: Voter, at: Published, *_: object) -> Published:
        return at

    with patch.object(Voter, "_hold", hold):
        yield


@contextmanager
def trusting_a_peer_for_the_chain() -> Generator[None]:
    """What a peer has from the base on is taken for the history; its chain is not compared with the agreed
    one.
    """

    def history(self: ReplicaStore, folder: int, after: Published, upto: State) -> list[bytes] | None:
        entries = [self.entry(folder, version) for version in range(after.version + 1, upto.version + 1)]
        return None if None in entries else [entry for entry in entries if entry is not None]

    with patch.object(ReplicaStore, "history", history):
        yield


@contextmanager
def bases_that_do_not_count_in_the_order() -> Generator[None]:
    """A state with a later base counts as accepted by who has accepted the one without."""

    def order(self: State) -> tuple[Any, ...]:
        return self.epoch, self.version, self.locator.generation

    with patch.object(State, "order", property(order)):
        yield


@contextmanager
def acknowledging_what_was_not_reached() -> Generator[None]:
    """A commit counts as soon as everything that the home root showed was acknowledged, and the commit stands
    there.
    """

    def acknowledge(self: Mirror, lead: Lead, entry: bytes) -> State:
        state = self.push(lead.version + 1)
        folder = self.held().record.published.folder
        if (state.epoch, folder) != (lead.epoch, lead.folder):
            raise fenced(self.table, state)
        if self.home.entry(folder, lead.version + 1) != entry:
            raise fenced(self.table, state)
        return state

    with patch.object(Mirror, "acknowledge", acknowledge):
        yield


@contextmanager
def counting_the_vote_of_a_fork() -> Generator[None]:
    """A replica votes whatever it has published; what is beyond the state is taken for more of the same
    history.
    """

    def expect_nothing(*_: object) -> None:
        return None

    with patch.object(Voter, "_expect_no_fork", expect_nothing):
        yield


@contextmanager
def reading_a_fork() -> Generator[None]:
    """A reader is bound to whatever replica has published the version, or a later one, and is whole."""

    def nothing(*_: object) -> None:
        return None

    with patch.object(reading, "forked", nothing):
        yield


SLIPS = (
    epochs_without_owner,
    joining_before_write_back,
    dropping_a_tail_while_leading,
    checking_before_moving,
    replacing_a_foreign_entry,
)
MORE_SLIPS = (
    voting_from_a_blank_memory,
    reading_what_some_majority_holds,
    a_leader_that_never_gives_way,
)


@contextmanager
def naming_a_checkpoint_without_the_mark() -> Generator[None]:
    """`_last_checkpoint` is written as Delta writes it: nobody could tell it from one that was edited."""
    pointer = Checkpoint.pointer

    def unmarked(self: Checkpoint, placed: bytes) -> bytes:
        return json.dumps({**json.loads(pointer(self, placed)), "tags": {}}).encode()

    with patch.object(Checkpoint, "pointer", unmarked):
        yield


SLIPS_OF_SHORTER_LOGS = (
    shortening_before_agreement,
    shortening_beyond_what_a_replica_holds,
    voting_without_the_checkpoint,
    trusting_a_peer_for_the_chain,
    bases_that_do_not_count_in_the_order,
    naming_a_checkpoint_without_the_mark,
)

"""Shorter logs: agreeing on a later base, and removing what lies before it, in every replica.

Belongs here: from which version on every replica keeps the log, and that nobody ever needs what goes. Does not belong
here: what a checkpoint holds, which is Delta's (`delta/checkpoint.py`).

The base moves like the head: put forward by one conditional write in the leader's domain, voted for by whoever holds its
checkpoint. Only what a majority has agreed on makes entries unneeded. So a replica that was away, or is new, finds the
checkpoint and the log after it wherever it finds the head.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from etl_assets.errors import MirrorError, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.chain import extend, extend_all
from etl_assets.mirroring.checkpoints import Checkpoints, Make, checkpoint_of_base, digest, due
from etl_assets.mirroring.locator import ReplicaConfig
from etl_assets.mirroring.mirror import Mirror
from etl_assets.mirroring.record import WHOLE_LOG, Base, Record, State
from etl_assets.mirroring.replica import ReplicaStore
from etl_assets.mirroring.table import MirroredTable
from etl_assets.mirroring.voter import Voter

AT_ONCE = 2_000
"""Files that one round removes from one replica at most."""
MOVES_PER_RETENTION = 10
"""How often a log's beginning moves while the versions that stay pass by: each time costs a reading of that log."""
_OF_A_VERSION = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\.parquet)(\.crc)?")
"""A file of the log that belongs to one version: its entry, Delta's checksum of the table, a checkpoint; hidden ones are
checksums that Hadoop keeps beside others."""


def move_base(mirror: Mirror, *, keep: int, make: Make, step: int = 1) -> State:
    """Have the log begin later, so that about `keep` versions before the head stay readable.

    How long entries stay is counted in versions: the clocks of the domains need not agree. A replica that is further
    behind than that gets a snapshot in place of what it missed.

    Args:
        mirror: The table, as its leading domain sees it.
        keep: Versions before the head that stay, at least 1.
        make: Makes the checkpoint that the log will begin with.
        step: By how many versions it pays to move.

    Returns:
        The acknowledged state, with the old base if there is nothing to gain.

    Raises:
        Fenced: this domain does not lead.
        QuorumUnavailable: too few voters answered.
        ReplicaCorrupt: the home log is not the acknowledged history.
        Unanswered: this domain's store does not answer.
    """
    state = mirror.push()
    first = state.version - keep
    if first < state.base.first + step:
        return state
    folder = mirror.held().record.published.folder
    there = Checkpoints(mirror.home, folder)
    # The first checkpoint of a version stays. One that nobody agreed on may have rotted, or be another's: a version
    # that has none yet gets one that is made now, of entries whose chain is the agreed one. A version at which readers
    # get theirs may have one in a peer only, of other bytes; that peer would have to be built anew.
    while due(first) == first or there.exists(first):
        first -= 1
    if first <= state.base.first:
        return state
    base, content = _later_base(mirror.home, folder, state, first, make)
    if not there.keep(base, content):
        return state  # somebody else makes one of that version at the same time
    return mirror.rebase(state, base) or state


def _later_base(home: ReplicaStore, folder: int, state: State, first: int, make: Make) -> tuple[Base, bytes]:
    """A base and its checkpoint, from the one before it and the home log."""
    begins, chain = state.base, state.base.before
    entries: list[bytes] = []
    # One by one: what is kept may be much, and only what is older goes into the checkpoint.
    for version in range(begins.first, state.version + 1):
        if (entry := home.entry(folder, version)) is None:
            break
        chain = extend(chain, entry)
        if version <= first:
            entries.append(entry)
    built_on = None if begins == WHOLE_LOG else checkpoint_of_base(home, folder, begins)
    if chain == state.chain and (begins == WHOLE_LOG or built_on is not None):
        made = make(built_on, entries if built_on is None else entries[1:])
        if made.version == first and made.chain == extend_all(begins.before, entries):
            before = extend_all(begins.before, entries[:-1])
            return Base(first=first, before=before, checkpoint=digest(made.content)), made.content
    raise ReplicaCorrupt(
        f"the log in {home.domain} is not the acknowledged one from version {begins.first} on; it was not shortened",
        fix="`etl-assets tables verify` names what is wrong; relocate the table, then `tables repair` it",
        domain=home.domain,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """What can go from the log in one domain: keys, in the order in which they may."""

    domain: str
    keys: tuple[str, ...]


def find_outdated(
    table: MirroredTable, state: State, *, before: int, limit: int = AT_ONCE
) -> tuple[Outdated, ...]:
    """For each replica that answers the files of its log that belong to versions before one."""

    def look(agreed: ReplicaConfig) -> Outdated:
        record = table.read(agreed.domain, state.locator).record
        if record is None:
            return Outdated(domain=agreed.domain, keys=())
        replica = table.replica(agreed.domain, state.locator)
        return Outdated(domain=agreed.domain, keys=_before(replica, record, before)[:limit])

    return _in_each(table, state, look)


def clean(table: MirroredTable, state: State, *, limit: int = AT_ONCE) -> tuple[Outdated, ...]:
    """Remove what lies before an *acknowledged* state's base from every replica that holds that base.

    Old checkpoints go first, then entries from the oldest on: whatever is left at any moment is read by the base's
    checkpoint, or not at all. May be done late, twice, or by several at once. A replica that does not answer, or has not
    voted for the base yet, keeps what it has until another time.

    Returns:
        What was removed.
    """

    def remove(agreed: ReplicaConfig) -> Outdated:
        nothing = Outdated(domain=agreed.domain, keys=())
        record = table.read(agreed.domain, state.locator).record
        if record is None:
            return nothing
        replica, folder = table.replica(agreed.domain, state.locator), record.published.folder
        if replica.entry(folder, state.base.first - 1) is None:
            return nothing  # the last one to go went
        if not _begins_at_base(table, agreed, record, state):
            return nothing
        if agreed.has_data and not _points_beyond(replica, folder, state.base):
            return nothing
        keys = _before(replica, record, state.base.first)[:limit]
        for key in keys:
            replica.store.delete(key)
        return Outdated(domain=agreed.domain, keys=keys)

    return () if state.base == WHOLE_LOG else _in_each(table, state, remove)


def _begins_at_base(table: MirroredTable, agreed: ReplicaConfig, record: Record, state: State) -> bool:
    """Whether a replica holds the log from the base on, and its checkpoint: it voted for it, or is a learner so far."""
    voted = record.accepted is not None and record.accepted.base == state.base
    if (not voted and agreed.domain in state.locator.voters) or record.published.version < state.base.first:
        return False
    home = table.read(table.home, state.locator).record
    sources = [] if home is None else [(table.replica(table.home, state.locator), home.published.folder)]
    return Voter(table, agreed.domain, state.locator).holds(record.published, state.base, sources)


def _points_beyond(replica: ReplicaStore, folder: int, base: Base) -> bool:
    """Whether `_last_checkpoint` names the base's checkpoint or a newer one; it is moved on if need be."""
    there = Checkpoints(replica, folder)
    if there.newest_version() >= base.first:
        return True
    checkpoint = checkpoint_of_base(replica, folder, base)
    # Its bytes are those that were agreed on.
    return checkpoint is not None and there.put(checkpoint, operator.eq)


def _before(replica: ReplicaStore, record: Record, first: int) -> tuple[str, ...]:
    log = f"{replica.folder(record.published.folder)}/_delta_log/"
    names = (key.removeprefix(log) for key in replica.store.list(log))
    return tuple(f"{log}{name}" for name in names_before(names, first))


def version_of(name: str) -> int | None:
    """The version that a file of a log belongs to, None for one that belongs to none."""
    of = _OF_A_VERSION.fullmatch(name)
    return None if of is None else int(of[1])


def names_before(names: Iterable[str], first: int) -> list[str]:
    """Of the files of a log those of versions before one: those that readers begin at before those that follow on them."""
    found = []
    for name in names:
        of = _OF_A_VERSION.fullmatch(name)
        if of is not None and int(of[1]) < first:
            found.append((of[2] != "checkpoint.parquet", int(of[1]), name))
    return [name for *_, name in sorted(found)]


def _in_each(
    table: MirroredTable, state: State, act: Callable[[ReplicaConfig], Outdated]
) -> tuple[Outdated, ...]:
    def tried(agreed: ReplicaConfig) -> Outdated:
        try:
            return act(agreed)
        except (MirrorError, Unanswered):
            return Outdated(domain=agreed.domain, keys=())

    errands = {agreed.domain: partial(tried, agreed) for agreed in state.locator.replicas}
    answers = table.couriers.gather(errands, lambda _: False)
    return tuple(answers[domain] for domain in errands if domain in answers)

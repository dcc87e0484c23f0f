"""Truncation of the log: agree on a later base, and remove the log before it in every replica.

Belongs here: from which version on every replica keeps the log, and the guarantee that no reader or replica
needs what is removed. Does not belong here: the content of a checkpoint, which is Delta's
(`delta/log/checkpoint.py`).

The base moves like the head. One conditional write in the leader's domain proposes it, and replicas that hold
its checkpoint vote for it. Entries become unneeded only when a majority has agreed on the base. So a new
replica, or one that was unavailable, finds the checkpoint and the log after it wherever it finds the head.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from etl_assets.errors import MirrorError, ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.chain import extend, extend_all
from etl_assets.mirroring.protocol.checkpoints import Checkpoints, Make, checkpoint_of_base, digest, due
from etl_assets.mirroring.protocol.locator import ReplicaConfig
from etl_assets.mirroring.protocol.mirror import Mirror
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Record, State
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.protocol.voter import Voter

AT_ONCE = 2_000
"""Maximum number of files that one round removes from one replica."""
MOVES_PER_RETENTION = 10
"""Moves of the base while as many versions are committed as the log keeps; each move reads the whole log."""
_OF_A_VERSION = re.compile(r"\.?(\d{20})\.(json|crc|checkpoint\.parquet)(\.crc)?")
"""Matches a file of the log that belongs to one version: an entry, Delta's checksum, or a checkpoint.

Hidden files are checksums that Hadoop keeps beside other files.
"""


def move_base(mirror: Mirror, *, keep: int, make: Make, step: int = 1) -> State:
    """Move the base of the log forward, so that about `keep` versions before the head stay readable.

    The retention is counted in versions, as the clocks of the domains need not agree. A replica that is
    further behind than that gets a checkpoint instead of the entries it missed.

    Args:
        mirror: The table, as its leading domain sees it.
        keep: Number of versions before the head that stay, at least 1.
        make: Makes the checkpoint that the log will begin with.
        step: Minimum number of versions to move by.

    Returns:
        The acknowledged state. Its base is the old one if it was not worth moving, or if another process was
        quicker.

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
    # The first checkpoint of a version stays. An existing one that was not agreed on may be damaged or
    # foreign. So take a version without a checkpoint, and make one from entries whose chain is the agreed
    # one. Not a version that is due for a readers' checkpoint: a peer may have one with other bytes, and
    # would have to be rebuilt.
    while due(first) == first or there.exists(first):
        first -= 1
    if first <= state.base.first:
        return state
    base, content = _later_base(mirror.home, folder, state, first, make)
    if not there.keep(base, content):
        return state  # another process makes one of that version at the same time
    return mirror.rebase(state, base) or state


def _later_base(home: ReplicaStore, folder: int, state: State, first: int, make: Make) -> tuple[Base, bytes]:
    """Make the base that begins at version `first`, and its checkpoint, from the old base and the home log.

    Raises:
        ReplicaCorrupt: the home log is not the acknowledged history, or its base's checkpoint is missing.
    """
    begins, chain = state.base, state.base.before
    entries: list[bytes] = []
    # Read one by one: many versions may be kept, and only older entries go into the checkpoint.
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
        f"the log in {home.domain} is not the acknowledged one from version {begins.first} on; it was not"
        " shortened",
        fix="`etl-assets tables verify` names what is wrong; relocate the table, then `tables repair` it",
        domain=home.domain,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Outdated:
    """Files of one domain's log that may be removed: their keys, in the order in which to remove them."""

    domain: str
    keys: tuple[str, ...]


def find_outdated(
    table: MirroredTable, state: State, *, before: int, limit: int = AT_ONCE
) -> tuple[Outdated, ...]:
    """Return for each replica the files of its log that belong to versions before `before`.

    A replica without a record that counts has no keys; one that does not answer in time is left out.
    """

    def look(agreed: ReplicaConfig) -> Outdated:
        record = table.read(agreed.domain, state.locator).record
        if record is None:
            return Outdated(domain=agreed.domain, keys=())
        replica = table.replica(agreed.domain, state.locator)
        return Outdated(domain=agreed.domain, keys=_before(replica, record, before)[:limit])

    return _in_each(table, state, look)


def clean(table: MirroredTable, state: State, *, limit: int = AT_ONCE) -> tuple[Outdated, ...]:
    """Remove the log before an *acknowledged* state's base from every replica that holds that base.

    Old checkpoints are removed first, then the entries, the oldest first. So at any moment the remaining log
    is readable from the base's checkpoint. Safe to run late, twice, or concurrently. A replica that does not
    answer, or has not voted for the base yet, keeps its files until a later round.

    Returns:
        The removed files of each replica that answered in time.
    """

    def remove(agreed: ReplicaConfig) -> Outdated:
        nothing = Outdated(domain=agreed.domain, keys=())
        record = table.read(agreed.domain, state.locator).record
        if record is None:
            return nothing
        replica, folder = table.replica(agreed.domain, state.locator), record.published.folder
        if replica.entry(folder, state.base.first - 1) is None:
            return nothing  # the last entry to remove is missing already
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
    """Return whether a replica holds the log from the base on, and the base's checkpoint.

    The replica must have published the base's version, and a voter must have voted for the base. A missing
    checkpoint is copied.
    """
    voted = record.accepted is not None and record.accepted.base == state.base
    if (not voted and agreed.domain in state.locator.voters) or record.published.version < state.base.first:
        return False
    home = table.read(table.home, state.locator).record
    sources = [] if home is None else [(table.replica(table.home, state.locator), home.published.folder)]
    return Voter(table, agreed.domain, state.locator).holds(record.published, state.base, sources)


def _points_beyond(replica: ReplicaStore, folder: int, base: Base) -> bool:
    """Return whether `_last_checkpoint` names the base's checkpoint or a newer one; update it if needed."""
    there = Checkpoints(replica, folder)
    if there.newest_version() >= base.first:
        return True
    checkpoint = checkpoint_of_base(replica, folder, base)
    # The bytes were agreed on, so the checkpoint must be equal to an existing file.
    return checkpoint is not None and there.put(checkpoint, operator.eq)


def _before(replica: ReplicaStore, record: Record, first: int) -> tuple[str, ...]:
    log = f"{replica.folder(record.published.folder)}/_delta_log/"
    names = (key.removeprefix(log) for key in replica.store.list(log))
    return tuple(f"{log}{name}" for name in names_before(names, first))


def version_of(name: str) -> int | None:
    """Return the version that a file of the log belongs to, or None if it belongs to no version."""
    of = _OF_A_VERSION.fullmatch(name)
    return None if of is None else int(of[1])


def names_before(names: Iterable[str], first: int) -> list[str]:
    """Return the files of a log of versions before `first`: checkpoints first, then the others by version."""
    found = []
    for name in names:
        of = _OF_A_VERSION.fullmatch(name)
        if of is not None and int(of[1]) < first:
            found.append((of[2] != "checkpoint.parquet", int(of[1]), name))
    return [name for *_, name in sorted(found)]


def _in_each(
    table: MirroredTable, state: State, act: Callable[[ReplicaConfig], Outdated]
) -> tuple[Outdated, ...]:
    """Act on all replicas concurrently; one that fails has no keys, one that is late is left out."""

    def tried(agreed: ReplicaConfig) -> Outdated:
        try:
            return act(agreed)
        except (MirrorError, Unanswered):
            return Outdated(domain=agreed.domain, keys=())

    errands = {agreed.domain: partial(tried, agreed) for agreed in state.locator.replicas}
    answers = table.couriers.gather(errands, lambda _: False)
    return tuple(answers[domain] for domain in errands if domain in answers)

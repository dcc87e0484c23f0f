"""Comparison of data files between replicas by bytes. It finds edits and bit rot that keep the size.

Belongs here: reading all data files, which takes as long as copying the table. Does not belong here: checks
of logs and sizes (`verification.py`).

A Delta log records the size of a file, but nothing of its bytes. So the replicas can only be compared with
each other: the content that most of them hold is right. If there is no majority, for example with two
replicas, it cannot be decided which is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.maintenance.inspection import live_now
from etl_assets.mirroring.maintenance.verification import begins_at
from etl_assets.mirroring.protocol.fork import forked
from etl_assets.mirroring.protocol.named_files import NamedFile
from etl_assets.mirroring.protocol.record import Published, State
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A data file whose bytes differ between replicas.

    Attributes:
        file: The file.
        right: Domains that hold the content of the majority; empty without a majority.
        wrong: Domains that hold other content; without a majority all domains that hold the file.
    """

    file: NamedFile
    right: tuple[str, ...]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        if self.right:
            return f"{self.file.path} has other bytes than in {' and '.join(self.right)}"
        return (
            f"{self.file.path} has other bytes in each of {', '.join(self.wrong)}; which are right cannot be"
            " told"
        )


def differing(table: MirroredTable, state: State) -> Iterator[Differing]:
    """Yield the data files of an acknowledged state that differ between replicas.

    Every data file is read in every replica that has published the state. Files are compared in order of
    their paths. A replica whose file is missing or has the wrong size is not compared: `verification.py`
    reports it.

    Raises:
        Unanswered: a store does not answer.
        ReplicaCorrupt: no replica has a readable log.
    """
    replicas = _that_have(table, state)
    for file in _files(table, replicas, state):
        digests = {
            domain: digest
            for domain, (replica, at) in replicas.items()
            if (digest := _digest(replica, at, file)) is not None
        }
        if len(set(digests.values())) > 1:
            ((most, holders),) = Counter(digests.values()).most_common(1)
            right = sorted(domain for domain, digest in digests.items() if digest == most)
            if holders * 2 <= len(digests):
                right = []
            yield Differing(file=file, right=tuple(right), wrong=tuple(sorted(digests.keys() - set(right))))


def repair_files(table: MirroredTable, state: State, found: Differing) -> None:
    """Replace wrong bytes of a data file by those of a replica that is right, atomically and durably.

    A concurrent reader gets either the old or the new content, never a mixture.

    Args:
        table: The table.
        state: The acknowledged state.
        found: The file that differs.

    Raises:
        ReplicaCorrupt: there is no majority that says which bytes are right.
        Unanswered: a store does not answer.
    """
    if not found.right:
        raise ReplicaCorrupt(
            f"{found} (table {table.name})",
            fix="look at both, empty the root of the domain that is wrong, and `etl-assets domains heal NAME"
            " --new-root`",
            table=table.name,
        )
    replicas = _that_have(table, state)
    good, there = replicas[found.right[0]]
    for domain in found.wrong:
        replica, at = replicas[domain]
        chunks = good.store.read(f"{good.folder(there.folder)}/{found.file.path}")
        if chunks is None:
            raise Unanswered(
                f"{found.file.path} is gone in {good.domain}",
                fix="run it again",
                store=good.store.name,
                key=found.file.path,
            )
        key = f"{replica.folder(at.folder)}/{found.file.path}"
        replica.store.put(key, chunks)
        replica.store.persist([key])


def _that_have(table: MirroredTable, state: State) -> dict[str, tuple[ReplicaStore, Published]]:
    """Return the replicas with data that have published a state, by domain, each with its published part."""
    found = {}
    for agreed in state.locator.replicas:
        record = table.read(agreed.domain, state.locator).record
        if not agreed.has_data or record is None or record.published.version < state.version:
            continue
        replica = table.replica(agreed.domain, state.locator)
        if forked(replica, record, state, ()) is None:
            found[agreed.domain] = replica, record.published
    return found


def _files(
    table: MirroredTable, replicas: dict[str, tuple[ReplicaStore, Published]], state: State
) -> list[NamedFile]:
    """Return the data files in use, from the first replica whose log can be read.

    Raises:
        ReplicaCorrupt: no replica has a readable log.
    """
    corrupt: ReplicaCorrupt | None = None
    for domain, (replica, at) in replicas.items():
        record = table.read(domain, state.locator).record
        if record is None:
            continue
        try:
            return live_now(table, replica, at, begins_at(replica, record, state))
        except ReplicaCorrupt as error:
            corrupt = error
    if corrupt is not None:
        raise corrupt
    return []


def _digest(replica: ReplicaStore, at: Published, file: NamedFile) -> bytes | None:
    key = f"{replica.folder(at.folder)}/{file.path}"
    if not file.fits(replica.store.size(key)) or (chunks := replica.store.read(key)) is None:
        return None
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.digest()

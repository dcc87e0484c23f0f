"""The bytes of data files, compared between replicas: what no size tells, an edit by hand or a rotten block.

Belongs here: reading all of them, which takes as long as copying the table. Does not belong here: what logs and sizes tell
(`verification.py`). An entry of a Delta log says how long its files are and nothing of their bytes, so that the replicas have
only each other: what most of them hold is right, and two that differ cannot tell which of them is.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.fork import forked
from etl_assets.mirroring.inspection import live_now
from etl_assets.mirroring.named_files import NamedFile
from etl_assets.mirroring.record import Published, State
from etl_assets.mirroring.replica import ReplicaStore
from etl_assets.mirroring.table import MirroredTable
from etl_assets.mirroring.verification import begins_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Differing:
    """A data file that is not the same everywhere.

    Attributes:
        file: The file, by its path in the table's folder.
        right: Domains that hold what most hold; empty: there are no most.
        wrong: Domains that hold something else; without a majority all that hold the file.
    """

    file: NamedFile
    right: tuple[str, ...]
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        if self.right:
            return f"{self.file.path} has other bytes than in {' and '.join(self.right)}"
        return f"{self.file.path} has other bytes in each of {', '.join(self.wrong)}; which are right cannot be told"


def differing(table: MirroredTable, state: State) -> Iterator[Differing]:
    """Read the data files of an acknowledged state in every replica that has published it; those that differ, by path.

    A file that is missing or not of its size is left out: sizes tell that.

    Raises:
        Unanswered: a store does not answer.
        ReplicaCorrupt: the files cannot be told by any replica's log.
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


def mend(table: MirroredTable, state: State, found: Differing) -> None:
    """Put the bytes of a replica that is right in the place of those that are not, as a whole and durably.

    A data file has a name of its own and one content for ever, so that whoever reads it meanwhile has the one or the other.

    Raises:
        ReplicaCorrupt: which bytes are right cannot be told.
        Unanswered: a store does not answer.
    """
    if not found.right:
        raise ReplicaCorrupt(
            f"{found} (table {table.name})",
            fix="look at both, empty the root of the domain that is wrong, and `etl-assets domains heal NAME --new-root`",
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
    """The replicas with data that have published a state, and what they have."""
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
    """The data files in use, by the first replica whose log can be read."""
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

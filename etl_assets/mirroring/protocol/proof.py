"""Proof that the log of a replica is the published history, as far as readers of the table trust it.

Belongs here: the check before a replica is led from or read. Does not belong here: the check of the whole
replica with its data files (`ReplicaStore.broken`).

The register says which history was published, but the folder may have changed since: by an edit, a restore, a
bad disk. A writer that plans on a log with a lost entry commits wrong content, and mirroring copies that
content everywhere. Readers trust the newest checkpoint and the entries after it. So these are hashed once per
process, and later only the entries published since.
"""

from __future__ import annotations

from etl_assets.mirroring.protocol.chain import extend
from etl_assets.mirroring.protocol.checkpoints import Checkpoints
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Published
from etl_assets.mirroring.protocol.replica import ReplicaStore


class Proof:
    """The logs of one table that this process has verified, and up to which version."""

    def __init__(self) -> None:
        self._proven: dict[tuple[str, int], Published] = {}

    def holds(self, replica: ReplicaStore, published: Published, base: Base) -> bool:
        """Return whether a replica's log is the published history.

        The log is compared from its newest checkpoint on, or from its beginning if it has none.

        Args:
            replica: The replica.
            published: What its register says is published.
            base: Where the log is agreed to begin.

        Raises:
            Unanswered: the store does not answer.
        """
        place = replica.store.name, published.folder
        proven = self._proven.get(place)
        # Continue from the verified part only while the log still contains it, and has not been set back.
        if proven is None or not base.first - 1 <= proven.version <= published.version:
            proven = _start(replica, published, base)
        if proven is None:
            return False
        chain = proven.chain
        for version in range(proven.version + 1, published.version + 1):
            if (entry := replica.entry(published.folder, version)) is None:
                return False
            chain = extend(chain, entry)
        if chain != published.chain:
            return False
        self._proven[place] = published
        return True


def _start(replica: ReplicaStore, published: Published, base: Base) -> Published | None:
    """Return where a reader starts: at the newest checkpoint, else at the beginning of the log.

    None if the newest checkpoint is wrong, because a reader would trust it.
    """
    checkpoints = Checkpoints(replica, published.folder)
    newest = checkpoints.newest()
    if newest is None and checkpoints.problem() is not None:
        return None
    if newest is not None and newest.version <= published.version:
        return newest.at(published.folder)
    # A log that begins with a checkpoint cannot be read without it. A replica that has not reached the base,
    # or does not hold its checkpoint yet, has the log before the base.
    begins = base if checkpoints.of(base) is not None else WHOLE_LOG
    return begins.start(published.folder)

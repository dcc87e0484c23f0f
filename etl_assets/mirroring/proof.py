"""Whether a replica's own log is what was published, as far as a reader of the table believes it.

Belongs here: the look before a replica is led from or read. Not here: the look at everything, its data files too
(`ReplicaStore.broken`).

The register says which history was published; the folder says what is there now. Between them anything may have happened: an
edit, a restore, a bad disk. Whoever plans on a log that lost a line commits what was never meant, and mirroring copies that
perfectly. A reader believes the newest checkpoint and the entries after it; so these are hashed, once in a process, and later
only what was published since.
"""

from __future__ import annotations

from etl_assets.mirroring.chain import extend
from etl_assets.mirroring.checkpoints import Checkpoints
from etl_assets.mirroring.record import WHOLE_LOG, Base, Published
from etl_assets.mirroring.replica import ReplicaStore


class Proof:
    """What one process has seen of the logs of one table."""

    def __init__(self) -> None:
        self._proven: dict[tuple[str, int], Published] = {}

    def holds(self, replica: ReplicaStore, published: Published, base: Base) -> bool:
        """Whether a replica's log is the published history, from its newest checkpoint on, or from where the log begins.

        Raises:
            Unanswered: the store does not answer.
        """
        place = replica.store.name, published.folder
        proven = self._proven.get(place)
        # What was seen goes on only from where the log still begins, and while it is not set back.
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
    """Where a reader starts: at the newest checkpoint, else at the beginning. None: it would believe a wrong checkpoint."""
    checkpoints = Checkpoints(replica, published.folder)
    newest = checkpoints.newest()
    if newest is None and checkpoints.problem() is not None:
        return None
    if newest is not None and newest.version <= published.version:
        return newest.at(published.folder)
    # A log that begins with a checkpoint is not to be had without it. A replica that has not come as far as the base, or
    # not made it its own yet, has the log of before it.
    begins = base if checkpoints.of(base) is not None else WHOLE_LOG
    return begins.start(published.folder)

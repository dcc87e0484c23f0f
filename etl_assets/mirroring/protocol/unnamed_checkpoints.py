"""Unnamed checkpoints: readers find them in a log's listing, though `_last_checkpoint` does not name them.

Belongs here: whether readers would trust one that contradicts the log. Does not belong here: whether the
named one fits its mark (`checkpoints.py`).

Readers list the log from the named checkpoint on, and take the newest checkpoint they find. The platform
itself leaves unnamed ones: a process may be killed between writing a file and naming it, and a base's
checkpoint is in place before the base is agreed on. So the platform's own checkpoints are recognized by their
content, at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from etl_assets.mirroring.protocol.checkpoints import Checkpoint, Checkpoints, checkpoint_of_base
from etl_assets.mirroring.protocol.proof import Proof
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Published
from etl_assets.mirroring.protocol.replica import ReplicaStore

SumsUp = Callable[[bytes, Checkpoint | None, Sequence[bytes]], bool]
"""Whether a checkpoint sums up some entries, which follow on the other checkpoint or are the first."""
_BELIEVED = re.compile(r"(\d{20})\.(?:checkpoint\..+|\d{20}\.compacted\.json)")
"""Matches files that sum up entries: checkpoints in one or several files, and compacted entries.

The platform makes checkpoints in one file only.
"""


def foreign_checkpoint(
    replica: ReplicaStore, at: Published, base: Base, head: int, sums_up: SumsUp
) -> str | None:
    """Return what is wrong with the checkpoints that a reader of the published version may use, or None.

    Files of versions up to the named one are not checked: only readers of such an old version use them.

    Args:
        replica: The replica. Its log must have been compared with the agreed chain.
        at: The published part of the replica.
        base: Where the replica's log begins.
        head: The acknowledged version. The platform makes no checkpoint of a later one.
        sums_up: Compares a checkpoint with log entries.

    Raises:
        ReplicaCorrupt: delta-rs cannot read the log.
        Unanswered: the store does not answer.
    """
    log = f"{replica.folder(at.folder)}/_delta_log/"
    if not Proof().holds(replica, at, base):
        return f"{log} is not what was published, as it is read from its newest checkpoint on"
    newest = Checkpoints(replica, at.folder).newest()
    named = -1 if newest is None else newest.version
    after = max(named, -1 if base == WHOLE_LOG else base.first)
    for key in sorted(replica.store.list(log)):
        name = key.removeprefix(log)
        of = _BELIEVED.fullmatch(name)
        if of is None or (version := int(of[1])) <= after:
            continue
        if name != f"{version:020d}.checkpoint.parquet" or version > max(head, at.version):
            return f"{key} is a checkpoint that the platform did not make"
        if version > at.version:
            continue  # of a base that the replica has not reached
        built_on = newest if named == after else checkpoint_of_base(replica, at.folder, base)
        entries = [replica.entry(at.folder, each) for each in range(after + 1, version + 1)]
        there = [entry for entry in entries if entry is not None]
        found = replica.store.get(key)
        if found is None or len(there) < len(entries) or (built_on is None and after >= 0):
            continue  # removed in the meantime, or damage of another kind
        if not sums_up(found.content, built_on, there):
            return f"{key} is a checkpoint that says something else than the log"
    return None

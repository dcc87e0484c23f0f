"""Checkpoint files that readers find in a log's listing, though `_last_checkpoint` does not name them.

Belongs here: whether one of them would be believed and says something else than the log. Does not belong here: whether the one that
is named is what was marked (`checkpoints.py`).

Whoever opens a table lists its log from the checkpoint that is named on, and takes the newest that it finds. Between a file and
its name processes are killed, and a base's checkpoint lies in its place before it is agreed on: those of the platform's making
are known by what they say, whatever the moment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from etl_assets.mirroring.checkpoints import Checkpoint, Checkpoints, checkpoint_of_base
from etl_assets.mirroring.proof import Proof
from etl_assets.mirroring.record import WHOLE_LOG, Base, Published
from etl_assets.mirroring.replica import ReplicaStore

SumsUp = Callable[[bytes, Checkpoint | None, Sequence[bytes]], bool]
"""Whether a checkpoint's content says what some entries say, which follow on another checkpoint, or are the first."""
_BELIEVED = re.compile(r"(\d{20})\.(?:checkpoint\..+|\d{20}\.compacted\.json)")
"""What sums up entries: checkpoints in one file or in several, and compacted entries. The platform makes the first kind only."""


def foreign_checkpoint(
    replica: ReplicaStore, at: Published, base: Base, head: int, sums_up: SumsUp
) -> str | None:
    """What is wrong with what a reader of the published version takes for its checkpoint; None if nothing is.

    Files of versions up to the one that is named are left aside: only who goes back to such a version reads them.

    Args:
        replica: The replica, whose log has been compared with the agreed chain.
        at: What is published in it.
        base: Where its log begins.
        head: The acknowledged version; none is made of a later one.
        sums_up: Compares content with entries.

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
            continue  # of a base that the replica has not come up to
        built_on = newest if named == after else checkpoint_of_base(replica, at.folder, base)
        entries = [replica.entry(at.folder, each) for each in range(after + 1, version + 1)]
        there = [entry for entry in entries if entry is not None]
        found = replica.store.get(key)
        if found is None or len(there) < len(entries) or (built_on is None and after >= 0):
            continue  # removed since, or damage of another kind
        if not sums_up(found.content, built_on, there):
            return f"{key} is a checkpoint that says something else than the log"
    return None

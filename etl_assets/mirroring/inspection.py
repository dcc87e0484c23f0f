"""A replica looked over piece by piece: its log against the agreed chain, then its files by their sizes.

`verification.py` does it at one go, whatever that takes. Here each look has an end, and says where the next one goes on; so a
replica that is neither led from nor read does not rot unseen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.chain import extend
from etl_assets.mirroring.checkpoints import Checkpoints
from etl_assets.mirroring.fork import forked
from etl_assets.mirroring.locator import ReplicaConfig
from etl_assets.mirroring.named_files import NamedFile, files_named, files_removed
from etl_assets.mirroring.record import Base, Published, State
from etl_assets.mirroring.replica import ReplicaStore
from etl_assets.mirroring.table import MirroredTable
from etl_assets.mirroring.unnamed_checkpoints import SumsUp, foreign_checkpoint
from etl_assets.mirroring.verification import begins_at, holders

AT_ONCE = 250
"""Entries, or files, of one look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubProgress:
    """How far a replica has been looked over.

    Attributes:
        folder: The content generation.
        version: Up to which version its log was read, and
        chain: the chain there.
        path: Up to which one its files were looked at, in order; None: the log has not been read to its end.
    """

    folder: int
    version: int
    chain: str
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubFinding:
    """What a look found: where the next one goes on, None at the end, or what is wrong.

    Of a replica that has `forked` nothing is broken, and it may be the only one with what was acknowledged: which history counts
    is not decided by building it again.
    """

    seen: ScrubProgress | None = None
    problem: str | None = None
    forked: bool = False


def look(
    table: MirroredTable,
    agreed: ReplicaConfig,
    state: State,
    since: ScrubProgress | None,
    sums_up: SumsUp,
    at_once: int = AT_ONCE,
) -> ScrubFinding:
    """Look over the next piece of a replica of an acknowledged state.

    What is published or removed meanwhile may be taken for damage: whoever acts on a problem looks again first, with the state as
    it is then.

    Args:
        table: The table.
        agreed: The replica.
        state: The acknowledged state.
        since: Where the last look ended; None: at the beginning. Of another folder, or before the log begins, it is nothing.
        sums_up: Compares a checkpoint with entries.
        at_once: Entries or files to look at.

    Raises:
        Unanswered: the store does not answer.
    """
    record = table.read(agreed.domain, state.locator).record
    if record is None:
        return ScrubFinding()  # that it does not answer, or has lost its register, is seen elsewhere
    replica, at = table.replica(agreed.domain, state.locator), record.published
    base = begins_at(replica, record, state)
    if at.version < base.first:
        return ScrubFinding()  # it begins anew there
    try:
        if since is None or since.folder != at.folder or not base.first - 1 <= since.version <= at.version:
            if agreed.has_data and base.first and Checkpoints(replica, at.folder).of(base) is None:
                return ScrubFinding(
                    problem=f"the checkpoint of version {base.first}, with which the log begins, is gone or wrong"
                )
            since = ScrubProgress(folder=at.folder, version=base.first - 1, chain=base.before)
            if (fork := forked(replica, record, state, holders(table, agreed, state))) is not None:
                return ScrubFinding(problem=fork, forked=True)
        if since.path is None:
            return _look_at_log(replica, at, since, at_once, has_data=agreed.has_data)
        live = live_now(table, replica, at, base)
        # Once, between the log and the files.
        if not since.path and (problem := foreign_checkpoint(replica, at, base, state.version, sums_up)):
            return ScrubFinding(problem=problem)
        return _look_at_files(replica, at, since, live, at_once)
    except ReplicaCorrupt as error:
        return ScrubFinding(problem=error.message)


def _look_at_log(
    replica: ReplicaStore, at: Published, since: ScrubProgress, at_once: int, *, has_data: bool
) -> ScrubFinding:
    chain, last = since.chain, min(at.version, since.version + at_once)
    for version in range(since.version + 1, last + 1):
        if (entry := replica.entry(at.folder, version)) is None:
            return ScrubFinding(problem=f"version {version} is missing in {replica.folder(at.folder)}")
        chain = extend(chain, entry)
    if last == at.version and chain != at.chain:
        return ScrubFinding(
            problem=f"the log in {replica.folder(at.folder)} is not the one that was published"
        )
    if last == at.version and not has_data:
        return ScrubFinding()
    path = "" if last == at.version else None
    return ScrubFinding(seen=ScrubProgress(folder=at.folder, version=last, chain=chain, path=path))


def _look_at_files(
    replica: ReplicaStore, at: Published, since: ScrubProgress, live: Sequence[NamedFile], at_once: int
) -> ScrubFinding:
    left = [file for file in live if file.path > (since.path or "")]
    for file in left[:at_once]:
        if not file.fits(replica.store.size(f"{replica.folder(at.folder)}/{file.path}")):
            return ScrubFinding(
                problem=f"{file.path} is missing in {replica.folder(at.folder)}, or not of its size"
            )
    if len(left) <= at_once:
        return ScrubFinding()
    return ScrubFinding(seen=replace(since, path=left[at_once - 1].path))


def live_now(table: MirroredTable, replica: ReplicaStore, at: Published, base: Base) -> list[NamedFile]:
    """The files of the version that is published, in order, as whoever opens the replica finds them.

    Raises:
        ReplicaCorrupt: they cannot be told, because of a checkpoint or an entry that is not what it was.
    """
    there = Checkpoints(replica, at.folder)
    newest = there.newest()
    if newest is None and (problem := there.problem()) is not None:
        raise ReplicaCorrupt(
            problem, fix="`etl-assets tables repair` builds the replica anew", domain=replica.domain
        )
    content = there.of(base) if newest is None else newest.content
    first = (base.first if newest is None else newest.version) if content is not None else -1
    files = {file.path: file for file in (() if content is None else table.live_files(content))}
    for version in range(first + 1, at.version + 1):
        if (entry := replica.entry(at.folder, version)) is None:
            raise ReplicaCorrupt(
                f"version {version} is missing in {replica.folder(at.folder)}",
                fix="`etl-assets tables repair` builds the replica anew",
                domain=replica.domain,
            )
        for path in files_removed(entry):
            files.pop(path, None)
        files |= {file.path: file for file in files_named(entry)}
    return [files[path] for path in sorted(files) if files[path].exact]

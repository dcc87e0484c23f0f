"""Scrub of a replica in bounded steps: compare its log with the agreed chain, then its files by their sizes.

`verification.py` checks a whole replica at once, however long that takes. Here each step is bounded and
returns where the next one continues. So damage is found also in a replica that is neither led from nor read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.maintenance.verification import begins_at, holders
from etl_assets.mirroring.protocol.chain import extend
from etl_assets.mirroring.protocol.checkpoints import Checkpoints
from etl_assets.mirroring.protocol.fork import forked
from etl_assets.mirroring.protocol.locator import ReplicaConfig
from etl_assets.mirroring.protocol.named_files import NamedFile, files_named, files_removed
from etl_assets.mirroring.protocol.record import Base, Published, State
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.protocol.unnamed_checkpoints import SumsUp, foreign_checkpoint

AT_ONCE = 250
"""Log entries, or files, that one step checks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubProgress:
    """Position of the scrub in a replica.

    Attributes:
        folder: Number of the content generation.
        version: The last version of the log that was read.
        chain: The chain up to that version.
        path: The last file that was checked, in order of paths; empty before the first one, None while the
            log has not been read to its end.
    """

    folder: int
    version: int
    chain: str
    path: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubFinding:
    """Result of one step of the scrub.

    Attributes:
        seen: Where the next step continues; None if the replica is done or has a problem.
        problem: What is wrong with the replica; None if nothing was found.
        forked: The problem is a fork. The replica is not damaged and may be the only one with what was
            acknowledged, so it must not be rebuilt before an operator has decided which history counts.
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
    """Check the next part of a replica against an acknowledged state.

    Concurrent publishing or clean-up may look like damage. So check again with the then current state before
    acting on a problem.

    Args:
        table: The table.
        agreed: The replica.
        state: The acknowledged state.
        since: Where the last step ended; None to start at the beginning. A position in another folder, or
            outside of the published log, also starts at the beginning.
        sums_up: Compares a checkpoint with log entries.
        at_once: Number of log entries or files to check.

    Raises:
        Unanswered: the store does not answer.
    """
    record = table.read(agreed.domain, state.locator).record
    if record is None:
        return ScrubFinding()  # no answer or no register: reported elsewhere
    replica, at = table.replica(agreed.domain, state.locator), record.published
    base = begins_at(replica, record, state)
    if at.version < base.first:
        return ScrubFinding()  # too far behind to catch up: it is rebuilt from the base
    try:
        # 1. At the beginning: the base's checkpoint, and whether the replica has forked.
        if since is None or since.folder != at.folder or not base.first - 1 <= since.version <= at.version:
            if agreed.has_data and base.first and Checkpoints(replica, at.folder).of(base) is None:
                return ScrubFinding(
                    problem=f"the checkpoint of version {base.first}, with which the log begins, is gone or"
                    " wrong"
                )
            since = ScrubProgress(folder=at.folder, version=base.first - 1, chain=base.before)
            if (fork := forked(replica, record, state, holders(table, agreed, state))) is not None:
                return ScrubFinding(problem=fork, forked=True)
        # 2. The log, up to its end.
        if since.path is None:
            return _look_at_log(replica, at, since, at_once, has_data=agreed.has_data)
        live = live_now(table, replica, at, base)
        # 3. Once, between the log and the files: checkpoints that `_last_checkpoint` does not name.
        if not since.path and (problem := foreign_checkpoint(replica, at, base, state.version, sums_up)):
            return ScrubFinding(problem=problem)
        # 4. The files in use, by their sizes.
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
    """Return the files of the published version, as a reader of the replica finds them, ordered by path.

    Files of deletion vectors are left out, as the log does not say their exact size.

    Raises:
        ReplicaCorrupt: the newest checkpoint is not the platform's, or a log entry is missing or cannot be
            read.
        Unanswered: the store does not answer.
    """
    there = Checkpoints(replica, at.folder)
    newest = there.newest()
    if newest is None and (problem := there.problem()) is not None:
        raise ReplicaCorrupt(
            problem, fix="`etl-assets tables repair` rebuilds the replica", domain=replica.domain
        )
    content = there.of(base) if newest is None else newest.content
    first = (base.first if newest is None else newest.version) if content is not None else -1
    files = {file.path: file for file in (() if content is None else table.live_files(content))}
    for version in range(first + 1, at.version + 1):
        if (entry := replica.entry(at.folder, version)) is None:
            raise ReplicaCorrupt(
                f"version {version} is missing in {replica.folder(at.folder)}",
                fix="`etl-assets tables repair` rebuilds the replica",
                domain=replica.domain,
            )
        for path in files_removed(entry):
            files.pop(path, None)
        files |= {file.path: file for file in files_named(entry)}
    return [files[path] for path in sorted(files) if files[path].exact]

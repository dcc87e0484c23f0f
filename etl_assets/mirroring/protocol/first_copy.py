"""The first copy: a table's log and data from before it was mirrored, when its platform had one domain.

Belongs here: finding the domain that has it, closing it, and making the state that every replica begins with.
Does not belong here: the registers (`bootstrap.py`), and the content of Delta's files
(`delta/replicated/closing.py`).

A first copy is in the first folder of one root. Its entries carry no fence epoch, unlike those of mirrored
leaders. A *closing entry* ends it. Until that entry is in the log, a process that still works with one domain
may commit there, and its commits are part of the copy. Afterwards nothing in that folder counts. Two
processes that close it concurrently find the same entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from etl_assets.errors import MembershipRefused, ReplicaCorrupt
from etl_assets.mirroring.protocol.chain import GENESIS, extend_all
from etl_assets.mirroring.protocol.checkpoints import Checkpoint, Checkpoints, Make, digest
from etl_assets.mirroring.protocol.epochs import BEFORE_ALL
from etl_assets.mirroring.protocol.locator import Locator
from etl_assets.mirroring.protocol.record import FIRST_FOLDER, WHOLE_LOG, Base, Published, State
from etl_assets.mirroring.protocol.replica import ForeignEntry, ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable

CLOSES = "closes_first_copy"
"""Key in the user metadata that marks an entry as a closing entry."""
_ATTEMPTS = 8
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")

Close = Callable[[int, bytes | None, Sequence[bytes]], bytes]
"""Makes the closing entry from its version, the checkpoint that the log follows on (or None), and the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The parts of making a table mirrored that need knowledge of Delta's format.

    Attributes:
        close: Makes the closing entry.
        make: Makes a checkpoint.
    """

    close: Close
    make: Make


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """The log of a first copy.

    Attributes:
        first: Version of the first entry.
        entries: The entries, without a gap.
        checkpoint: Version and content of the oldest checkpoint that the entries follow on; None if the log
            is whole.
    """

    first: int
    entries: tuple[bytes, ...]
    checkpoint: tuple[int, bytes] | None

    @property
    def is_closed(self) -> bool:
        return CLOSES in _user_metadata(self.entries[-1])


def find_first_copy(table: MirroredTable, domains: Iterable[str]) -> str | None:
    """Return the domain with a log in its first folder, or None if no domain has one.

    Raises:
        MembershipRefused: several domains have one.
        Unanswered: a domain does not answer.
    """
    found = [domain for domain in sorted(domains) if any(_versions(table.replica(domain)))]
    if len(found) > 1:
        raise MembershipRefused(
            f"the table {table.name} has no register, and a log in each of {', '.join(found)}: which one"
            " counts cannot be told",
            fix=f"keep the right one; under the other roots move the folder tables/{table.name} away",
            table=table.name,
        )
    return found[0] if found else None


def begin_with(
    table: MirroredTable, domain: str, locator: Locator, conversion: Conversion
) -> tuple[State, Published]:
    """Close a domain's first copy, and build the replica there that the table begins with.

    The replica gets a new folder, so that it has no files derived by Delta's writer, such as Delta's
    checkpoints. Safe to run late, twice, or concurrently.

    Args:
        table: The table.
        domain: The domain with the copy.
        locator: The first locator.
        conversion: Makes the closing entry and the base's checkpoint.

    Returns:
        The first state, and the published part in that domain, which is all of it.

    Raises:
        ReplicaCorrupt: the log cannot be taken over.
        Unanswered: the domain does not answer, or lacks a data file.
    """
    replica = table.replica(domain)
    log = _close(table, replica, conversion.close)
    base, entries, content = _base_of(log, conversion.make)
    chain = extend_all(base.before, entries)
    version = base.first + len(entries) - 1
    state = State(epoch=BEFORE_ALL, version=version, chain=chain, locator=locator, base=base)
    live = () if content is None else table.live_files(content)
    folder = FIRST_FOLDER
    while True:
        folder += 1
        # A folder begun by a killed process has the same content. One with anything else is left alone.
        replica.fetch(folder, entries, [(replica, FIRST_FOLDER)], live=live)
        if content is not None and not Checkpoints(replica, folder).keep(base, content):
            continue
        with suppress(ForeignEntry):
            return state, replica.publish(base.start(folder), entries)


def _close(table: MirroredTable, replica: ReplicaStore, close: Close) -> _Log:
    for _ in range(_ATTEMPTS):
        log = _read(table, replica)
        if log.is_closed:
            return log
        version = log.first + len(log.entries)
        entry = close(version, None if log.checkpoint is None else log.checkpoint[1], log.entries)
        # If another process committed an entry first, the next attempt reads it as part of the copy.
        replica.store.create(replica.entry_key(FIRST_FOLDER, version), entry)
    raise _refused(
        table,
        replica,
        "goes on growing",
        "end the processes that still work with one domain, then run it again",
    )


def _read(table: MirroredTable, replica: ReplicaStore) -> _Log:
    versions, checkpoints = _versions(replica)
    if not versions or max(checkpoints, default=-1) > max(versions):
        raise _refused(table, replica, "has no entry after its newest checkpoint", "restore it from a backup")
    first = newest = max(versions)
    while first - 1 in versions:
        first -= 1
    # The oldest usable one: the more of the log is kept, the more versions can be restored.
    begin = min((each for each in checkpoints if first - 1 <= each <= newest), default=None)
    if first and begin is None:
        why = f"begins with version {first}, and has no checkpoint in one file that it follows on"
        raise _refused(
            table, replica, why, "restore the log, or have Delta write a checkpoint of the newest version"
        )
    entries = tuple(replica.entry(FIRST_FOLDER, version) or b"" for version in range(first, newest + 1))
    content = None
    if first and begin is not None:
        found = replica.store.get(f"{_log_of(replica)}{begin:020d}.checkpoint.parquet")
        content = b"" if found is None else found.content
    if b"" in (*entries, content):
        why = "has a file that is empty, or was removed while it was read"
        raise _refused(table, replica, why, "run it again; if it stays, restore the log from a backup")
    if any("epoch" in _user_metadata(entry) for entry in entries):
        why = "was written while the table was mirrored, and its register is gone in every domain"
        fix = (
            f"restore register/{table.name}.json under the roots from a backup, then `etl-assets tables"
            " repair`"
        )
        raise _refused(table, replica, why, fix)
    return _Log(first=first, entries=entries, checkpoint=None if content is None else (begin or 0, content))


def _base_of(log: _Log, make: Make) -> tuple[Base, tuple[bytes, ...], bytes | None]:
    """Return the base of the table's log, its entries, and the base's checkpoint.

    The checkpoint is made from Delta's oldest one and the entry that follows on it. A whole log has none.
    """
    if log.checkpoint is None:
        return WHOLE_LOG, log.entries, None
    version, content = log.checkpoint
    summed_up = version + 1 - log.first
    before = extend_all(GENESIS, log.entries[:summed_up])
    entries = log.entries[summed_up:]
    made = make(Checkpoint(version=version, chain=before, content=content, hint={}), entries[:1])
    return Base(first=made.version, before=before, checkpoint=digest(made.content)), entries, made.content


def _log_of(replica: ReplicaStore) -> str:
    return f"{replica.folder(FIRST_FOLDER)}/_delta_log/"


def _versions(replica: ReplicaStore) -> tuple[set[int], set[int]]:
    """Return the versions with a log entry in the first folder, and those with a checkpoint."""
    log = _log_of(replica)
    names = [key.removeprefix(log) for key in replica.store.list(log)]
    entries = {int(found[1]) for name in names if (found := _ENTRY.fullmatch(name))}
    return entries, {int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))}


def _user_metadata(entry: bytes) -> Mapping[str, Any]:
    """Return the user metadata that the platform wrote with a commit; empty for commits of other programs."""
    try:
        for line in entry.splitlines():
            info = json.loads(line).get("commitInfo") if line.strip() else None
            if info is not None:
                found = json.loads(info.get("userMetadata") or "{}")
                return found if isinstance(found, dict) else {}
    except (ValueError, AttributeError, TypeError):
        return {}
    return {}


def _refused(table: MirroredTable, replica: ReplicaStore, why: str, fix: str) -> ReplicaCorrupt:
    return ReplicaCorrupt(
        f"the table {table.name} cannot be made of what {replica.domain} has of it: the log in "
        f"{replica.folder(FIRST_FOLDER)} {why}",
        fix=fix,
        table=table.name,
        domain=replica.domain,
    )

"""The copy that a table has before it is mirrored, made while its platform had one domain: found, closed, made a first state.

Belongs here: which domain has it, and what of it every replica is to begin with. Does not belong here: the registers
(`bootstrap.py`), and what Delta's files say (`delta/closing.py`).

Such a copy lies in the first folder of one root. Its entries carry no fence epoch, which those of mirrored leaders do. A *closing
entry* ends it: until that is in its log, a process that still works with one domain may commit there, and whatever it commits is
part of the copy; afterwards nothing in that folder counts. Two processes that close it at once find the same entry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from etl_assets.errors import MembershipRefused, ReplicaCorrupt
from etl_assets.mirroring.chain import GENESIS, extend_all
from etl_assets.mirroring.checkpoints import Checkpoint, Checkpoints, Make, digest
from etl_assets.mirroring.epochs import BEFORE_ALL
from etl_assets.mirroring.locator import Locator
from etl_assets.mirroring.record import FIRST_FOLDER, WHOLE_LOG, Base, Published, State
from etl_assets.mirroring.replica import ForeignEntry, ReplicaStore
from etl_assets.mirroring.table import MirroredTable

CLOSES = "closes_first_copy"
"""The key of a closing entry's user metadata that says that it is one."""
_ATTEMPTS = 8
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")

Close = Callable[[int, bytes | None, Sequence[bytes]], bytes]
"""Makes the entry that closes a copy, given its version, the checkpoint that its log follows on, if any, and its entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """What only Delta knows of making a table mirrored."""

    close: Close
    make: Make


@dataclass(frozen=True, slots=True, kw_only=True)
class _Log:
    """A copy's log: its entries without a gap, and the oldest checkpoint that they follow on (None if they are all there are)."""

    first: int
    entries: tuple[bytes, ...]
    checkpoint: tuple[int, bytes] | None

    @property
    def is_closed(self) -> bool:
        return CLOSES in _user_metadata(self.entries[-1])


def find_first_copy(table: MirroredTable, domains: Iterable[str]) -> str | None:
    """The domain with a log in its first folder, None if none has one.

    Raises:
        MembershipRefused: several have one.
        Unanswered: a domain does not answer.
    """
    found = [domain for domain in sorted(domains) if any(_versions(table.replica(domain)))]
    if len(found) > 1:
        raise MembershipRefused(
            f"the table {table.name} has no register, and a log in each of {', '.join(found)}: which one counts cannot be told",
            fix=f"keep the right one; under the other roots move the folder tables/{table.name} away",
            table=table.name,
        )
    return found[0] if found else None


def begin_with(
    table: MirroredTable, domain: str, locator: Locator, conversion: Conversion
) -> tuple[State, Published]:
    """Close a domain's copy, and build the replica there that the table begins with: in a folder of its own, so that nothing
    that Delta's writer derived, its checkpoints above all, is in it.

    May be done late, twice, or by several at once.

    Returns:
        The first state, and what is published of it in that domain: all.

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
        # One that a killed process began holds the same; where something else is in the way it is left alone.
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
        # If another entry was quicker it is read, and counts.
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
    # The oldest that will do: the more of the log is kept, the more versions can be gone back to.
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
        fix = f"restore register/{table.name}.json under the roots from a backup, then `etl-assets tables repair`"
        raise _refused(table, replica, why, fix)
    return _Log(first=first, entries=entries, checkpoint=None if content is None else (begin or 0, content))


def _base_of(log: _Log, make: Make) -> tuple[Base, tuple[bytes, ...], bytes | None]:
    """Where the table's log is to begin, its entries, and the base's checkpoint: made here, of Delta's oldest and one entry."""
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
    """The versions of which the first folder has an entry, and a checkpoint."""
    log = _log_of(replica)
    names = [key.removeprefix(log) for key in replica.store.list(log)]
    entries = {int(found[1]) for name in names if (found := _ENTRY.fullmatch(name))}
    return entries, {int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name))}


def _user_metadata(entry: bytes) -> Mapping[str, Any]:
    """What the platform notes with a commit; empty for those of other programs."""
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

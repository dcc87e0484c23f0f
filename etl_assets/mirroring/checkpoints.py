"""Checkpoints beside published logs: which one is due, what may be built on, and how one gets to its place.

Belongs here: everything but what a checkpoint holds, which is Delta's (`delta/checkpoint.py`).

Whoever opens a table believes a checkpoint and reads the log after it only. So one is made of acknowledged versions alone,
apart from the folder, from entries whose chain is the acknowledged one; it appears whole and durable under its name, and
only then does `_last_checkpoint` name it. It holds no truth of its own: a table without it is the same, and slower.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.chain import extend, extend_all
from etl_assets.mirroring.record import WHOLE_LOG, Base, Published, State
from etl_assets.mirroring.replica import ReplicaStore
from etl_assets.mirroring.stores import Found
from etl_assets.mirroring.table import MirroredTable

EVERY = 20
"""Versions from one checkpoint to the next: a reader opens one file and at most this many entries, and some."""
_UNKNOWN_SIZE = -1
"""Of a checkpoint whose number of actions nobody knows; what Delta writes there itself."""
_CHAIN, _DIGEST = "etlAssets.chain", "etlAssets.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A version's checkpoint.

    Attributes:
        version: The version.
        chain: Its chain: the history that the content sums up.
        content: The Parquet file.
        hint: What `_last_checkpoint` says of it, as Delta wrote it.
    """

    version: int
    chain: str
    content: bytes
    hint: Mapping[str, Any]

    def at(self, folder: int) -> Published:
        """What is published in a folder where it is the newest version."""
        return Published(version=self.version, chain=self.chain, folder=folder)

    def pointer(self, placed: bytes) -> bytes:
        """`_last_checkpoint` for the file that is in place, which says the same; with the mark of this platform's making."""
        mark = {_CHAIN: self.chain, _DIGEST: digest(placed)}
        return json.dumps({**self.hint, "sizeInBytes": len(placed), "tags": mark}).encode()


Make = Callable[[Checkpoint | None, Sequence[bytes]], Checkpoint]
"""Makes the checkpoint of the last of some entries, which follow on a checkpoint, or are the first."""
Same = Callable[[bytes, bytes], bool]
"""Whether the contents of two checkpoints of a version say the same."""


class Checkpoints:
    """Those of one content generation of a replica."""

    def __init__(self, replica: ReplicaStore, folder: int) -> None:
        self._store = replica.store
        self._log = f"{replica.folder(folder)}/_delta_log"

    def newest_version(self) -> int:
        """The version that `_last_checkpoint` names, -1 for none."""
        return _version(_hint(self._pointer()))

    def newest(self) -> Checkpoint | None:
        """The newest one, if `_last_checkpoint` names it with this platform's mark and it is what was marked."""
        return self._named_by(self._pointer())

    def _named_by(self, pointer: Found | None) -> Checkpoint | None:
        hint = _hint(pointer)
        version, mark = _version(hint), hint.get("tags")
        chain = mark.get(_CHAIN) if isinstance(mark, dict) else None
        if version < 0 or not isinstance(mark, dict) or not isinstance(chain, str):
            return None
        found = self._store.get(self._key(version))
        if found is None or digest(found.content) != mark.get(_DIGEST):
            return None
        return Checkpoint(version=version, chain=chain, content=found.content, hint=hint)

    def exists(self, version: int) -> bool:
        """Whether there is any of a version."""
        return self._store.size(self._key(version)) is not None

    def of(self, base: Base) -> bytes | None:
        """The checkpoint that a log begins with, if it is here and is what was agreed on."""
        found = self._store.get(self._key(base.first))
        return found.content if found is not None and digest(found.content) == base.checkpoint else None

    def keep(self, base: Base, content: bytes) -> bool:
        """Have the checkpoint that a log begins with here, durable; False: another file is in its place, which stays.

        Raises:
            Unanswered: the store does not answer, or did not and does not have it.
        """
        key = self._key(base.first)
        try:
            self._store.create(key, content)
        except Unanswered:
            if not self.exists(base.first):  # it may be there all the same
                raise
        if self.of(base) is None:
            return False
        self._store.persist([key])
        return True

    def put(self, checkpoint: Checkpoint, same: Same) -> bool:
        """Put a checkpoint of a version that is published here into its place, then let `_last_checkpoint` name it.

        May be done late, twice, or by several at once: the first file of a version stays, and the pointer only moves on. A
        file of other bytes is another process's if it says the same; one that does not is somebody's, and is never named.

        Returns:
            Whether the pointer names this version now.
        """
        key = self._key(checkpoint.version)
        self._store.create(key, checkpoint.content)
        placed = self._store.get(key)
        if placed is None or not (
            placed.content == checkpoint.content or same(placed.content, checkpoint.content)
        ):
            return False
        self._store.persist([key])
        before = self._pointer()
        if before is None:
            return self._store.create(self._pointer_key, checkpoint.pointer(placed.content))
        if _version(_hint(before)) >= checkpoint.version:
            return False
        return self._store.replace(self._pointer_key, checkpoint.pointer(placed.content), before.etag)

    def problem(self) -> str | None:
        """What is wrong with the newest one, None if nothing is or there is none.

        One without this platform's mark may say anything, and whoever opens the table believes it. There is no moment at which
        `_last_checkpoint` names one of the platform's making without it.
        """
        pointer = self._pointer()
        if pointer is None or self._named_by(pointer) is not None:
            return None
        version = _version(_hint(pointer))
        if version < 0:
            return f"_last_checkpoint in {self._log} cannot be read"
        return f"the checkpoint of version {version} in {self._log} is gone, or not what the platform has written"

    def _pointer(self) -> Found | None:
        return self._store.get(self._pointer_key)

    @property
    def _pointer_key(self) -> str:
        return f"{self._log}/_last_checkpoint"

    def _key(self, version: int) -> str:
        return f"{self._log}/{version:020d}.checkpoint.parquet"


def due(version: int) -> int:
    """The newest version up to this one that is to have a checkpoint, -1 for none yet."""
    newest = version - version % EVERY
    return newest if newest >= EVERY else -1


def checkpoint_replicas(table: MirroredTable, state: State, make: Make, same: Same) -> tuple[str, ...]:
    """Give each replica with data the checkpoint that is due, made once from the home replica.

    Replicas that are not so far, or do not answer, are left for another time.

    Args:
        table: The table, as its leading domain sees it.
        state: The acknowledged state.
        make: Makes the content.
        same: Compares it with what lies in its place already.

    Returns:
        The domains that got it.

    Raises:
        ReplicaCorrupt: the home log is not the acknowledged history, or nothing that Delta can read.
        Unanswered: the home store does not answer.
    """
    version = due(state.version)
    if version <= max(0, state.base.first):
        return ()  # the log begins there or later, with one
    domains = [replica.domain for replica in state.locator.replicas if replica.has_data]
    looks = {domain: partial(_lacking, table, domain, state, version) for domain in domains}
    lacking = {
        domain: there for domain, there in table.couriers.gather_from_all(looks).items() if there is not None
    }
    if not lacking:
        return ()
    checkpoint = _of_home(table, state, version, make)
    puts = {domain: partial(_put, there, checkpoint, same) for domain, there in lacking.items()}
    return tuple(domain for domain, done in table.couriers.gather(puts, lambda _: False).items() if done)


def _lacking(table: MirroredTable, domain: str, state: State, version: int) -> Checkpoints | None:
    """A replica's checkpoints, if it has published the version and has no checkpoint of it."""
    record = table.read(domain, state.locator).record
    if record is None or record.published.version < version:
        return None
    there = Checkpoints(table.replica(domain, state.locator), record.published.folder)
    try:
        return there if there.newest_version() < version else None
    except Unanswered:
        return None


def _put(there: Checkpoints, checkpoint: Checkpoint, same: Same) -> bool:
    try:
        return there.put(checkpoint, same)
    except Unanswered:
        return False


def _of_home(table: MirroredTable, state: State, version: int, make: Make) -> Checkpoint:
    """The checkpoint of a version, from the home replica: the one it has, or one made of its log."""
    replica, record = table.replica(table.home, state.locator), table.read(table.home, state.locator).record
    if record is not None:
        folder = record.published.folder
        newest = Checkpoints(replica, folder).newest()
        # Without a newer one, or if the log does not follow on it, from where the log begins.
        first = None if state.base == WHOLE_LOG else checkpoint_of_base(replica, folder, state.base)
        for built_on in (newest, first) if newest is not None and newest.version <= version else (first,):
            after = WHOLE_LOG.start(folder) if built_on is None else built_on.at(folder)
            entries = replica.history(folder, after, state)
            if entries is None:
                continue
            if built_on is not None and built_on.version == version:
                return built_on
            entries = entries[: version - after.version]
            made = make(built_on, entries)
            if made.chain == extend_all(after.chain, entries) and made.version == version:
                return made
    raise ReplicaCorrupt(
        f"the log of the table {table.name} in {table.home} is not the acknowledged one; no checkpoint was made of it",
        fix="`etl-assets tables verify` names what is wrong; relocate the table, then `tables repair` it",
        table=table.name,
        domain=table.home,
    )


def checkpoint_of_base(replica: ReplicaStore, folder: int, base: Base) -> Checkpoint | None:
    """The checkpoint that a folder's log begins with, to build on; None if it is not what was agreed on."""
    content, entry = Checkpoints(replica, folder).of(base), replica.entry(folder, base.first)
    if content is None or entry is None:
        return None
    chain = extend(base.before, entry)
    hint = {"version": base.first, "size": _UNKNOWN_SIZE}
    return Checkpoint(version=base.first, chain=chain, content=content, hint=hint)


def _hint(pointer: Found | None) -> dict[str, Any]:
    """What a pointer says; nothing where there is none, or where it makes no sense."""
    if pointer is None:
        return {}
    try:
        hint = json.loads(pointer.content)
    except ValueError:
        return {}
    return hint if isinstance(hint, dict) else {}


def _version(hint: Mapping[str, Any]) -> int:
    version = hint.get("version")
    return version if isinstance(version, int) else -1


def digest(content: bytes) -> str:
    """What a checkpoint's content is known by."""
    return hashlib.sha256(content).hexdigest()

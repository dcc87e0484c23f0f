"""Checkpoints of published logs: when one is due, which one may be built on, and how it is put into place.

Belongs here: everything except the content of a checkpoint, which is Delta's (`delta/log/checkpoint.py`).

Readers trust a checkpoint and read only the log after it. So a checkpoint is made of acknowledged versions
only, outside of the folder, from entries whose chain is the acknowledged one. It appears whole and durable
under its name, and only then does `_last_checkpoint` name it. It adds no information: a table without it has
the same content, and opens more slowly.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.chain import extend, extend_all
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Published, State
from etl_assets.mirroring.protocol.replica import ReplicaStore
from etl_assets.mirroring.protocol.table import MirroredTable
from etl_assets.mirroring.stores.store import Found

EVERY = 20
"""Versions from one checkpoint to the next; a reader opens one file and about this many entries at most."""
_UNKNOWN_SIZE = -1
"""Size of a checkpoint whose number of actions is not known; Delta itself writes this value."""
_CHAIN, _DIGEST = "etlAssets.chain", "etlAssets.sha256"


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Checkpoint of a version.

    Attributes:
        version: The version.
        chain: The chain of the history that the content sums up.
        content: The bytes of the Parquet file.
        hint: The content of `_last_checkpoint` for it, as Delta wrote it.
    """

    version: int
    chain: str
    content: bytes
    hint: Mapping[str, Any]

    def at(self, folder: int) -> Published:
        """Return the published part of a folder in which this is the newest version."""
        return Published(version=self.version, chain=self.chain, folder=folder)

    def pointer(self, placed: bytes) -> bytes:
        """Return the content of `_last_checkpoint` for a file in place, with the platform's mark.

        Args:
            placed: The bytes of the file, which must say the same as this checkpoint.
        """
        mark = {_CHAIN: self.chain, _DIGEST: digest(placed)}
        return json.dumps({**self.hint, "sizeInBytes": len(placed), "tags": mark}).encode()


Make = Callable[[Checkpoint | None, Sequence[bytes]], Checkpoint]
"""Makes the checkpoint of the last of some entries, which follow on the given checkpoint or are the first."""
Same = Callable[[bytes, bytes], bool]
"""Whether the contents of two checkpoints of one version are equivalent."""


class Checkpoints:
    """The checkpoints in one content generation of a replica."""

    def __init__(self, replica: ReplicaStore, folder: int) -> None:
        self._store = replica.store
        self._log = f"{replica.folder(folder)}/_delta_log"

    def newest_version(self) -> int:
        """Return the version that `_last_checkpoint` names, or -1 if it names none."""
        return _version(_hint(self._pointer()))

    def newest(self) -> Checkpoint | None:
        """Return the newest checkpoint, or None without one.

        `_last_checkpoint` must name it with the platform's mark, and the file must fit the mark.
        """
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
        """Return whether the folder has a checkpoint of a version, of whatever content."""
        return self._store.size(self._key(version)) is not None

    def of(self, base: Base) -> bytes | None:
        """Return the checkpoint that a log begins with, if the folder has it with the agreed hash."""
        found = self._store.get(self._key(base.first))
        return found.content if found is not None and digest(found.content) == base.checkpoint else None

    def keep(self, base: Base, content: bytes) -> bool:
        """Write the checkpoint that a log begins with, if it is missing, and make it durable.

        Returns:
            False if another file is in its place, which stays.

        Raises:
            Unanswered: the store did not answer, and does not have the file.
        """
        key = self._key(base.first)
        try:
            self._store.create(key, content)
        except Unanswered:
            if not self.exists(base.first):  # the write may have succeeded all the same
                raise
        if self.of(base) is None:
            return False
        self._store.persist([key])
        return True

    def put(self, checkpoint: Checkpoint, same: Same) -> bool:
        """Write a checkpoint of a published version, then let `_last_checkpoint` name it.

        Safe to run late, twice, or concurrently: the first file of a version stays, and the pointer only
        moves forward. An existing file with other bytes is taken if it is equivalent, as another process may
        have made it. Any other file is foreign, and is never named.

        Args:
            checkpoint: The checkpoint. Its version must be published in this folder.
            same: Compares it with an existing file.

        Returns:
            Whether this call made the pointer name this version.

        Raises:
            Unanswered: the store does not answer.
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
        """Return what is wrong with the newest checkpoint, or None if nothing is or there is none.

        Readers trust a checkpoint without the platform's mark as well, whatever it says. The platform never
        lets `_last_checkpoint` name one of its own checkpoints without the mark.
        """
        pointer = self._pointer()
        if pointer is None or self._named_by(pointer) is not None:
            return None
        version = _version(_hint(pointer))
        if version < 0:
            return f"_last_checkpoint in {self._log} cannot be read"
        return (
            f"the checkpoint of version {version} in {self._log} is gone, or not what the platform has"
            " written"
        )

    def _pointer(self) -> Found | None:
        return self._store.get(self._pointer_key)

    @property
    def _pointer_key(self) -> str:
        return f"{self._log}/_last_checkpoint"

    def _key(self, version: int) -> str:
        return f"{self._log}/{version:020d}.checkpoint.parquet"


def due(version: int) -> int:
    """Return the newest version up to this one that should have a checkpoint, or -1 if none should yet."""
    newest = version - version % EVERY
    return newest if newest >= EVERY else -1


def checkpoint_replicas(table: MirroredTable, state: State, make: Make, same: Same) -> tuple[str, ...]:
    """Write the checkpoint that is due to each replica with data, made once from the home replica.

    Replicas that have not published the version yet, or do not answer, are left for a later call.

    Args:
        table: The table, as its leading domain sees it.
        state: The acknowledged state.
        make: Makes the checkpoint.
        same: Compares the checkpoint with an existing file.

    Returns:
        The domains that got the checkpoint.

    Raises:
        ReplicaCorrupt: the home log is not the acknowledged history, or Delta cannot read it.
        Unanswered: the home store does not answer.
    """
    version = due(state.version)
    if version <= max(0, state.base.first):
        return ()  # none is due yet, or the log begins there or later, with a checkpoint
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
    """Return a replica's checkpoints if it has published the version and lacks its checkpoint, else None."""
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
    """Return the checkpoint of a version from the home replica: its newest one, or one made of its log.

    Raises:
        ReplicaCorrupt: the home log is not the acknowledged history.
    """
    replica, record = table.replica(table.home, state.locator), table.read(table.home, state.locator).record
    if record is not None:
        folder = record.published.folder
        newest = Checkpoints(replica, folder).newest()
        # Build on the newest checkpoint; without one, or if the log does not follow on it, on the base's.
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
        f"the log of the table {table.name} in {table.home} is not the acknowledged one; no checkpoint was"
        " made of it",
        fix="`etl-assets tables verify` names what is wrong; relocate the table, then `tables repair` it",
        table=table.name,
        domain=table.home,
    )


def checkpoint_of_base(replica: ReplicaStore, folder: int, base: Base) -> Checkpoint | None:
    """Return the checkpoint of a folder's base, to build on; None if it is not the agreed one."""
    content, entry = Checkpoints(replica, folder).of(base), replica.entry(folder, base.first)
    if content is None or entry is None:
        return None
    chain = extend(base.before, entry)
    hint = {"version": base.first, "size": _UNKNOWN_SIZE}
    return Checkpoint(version=base.first, chain=chain, content=content, hint=hint)


def _hint(pointer: Found | None) -> dict[str, Any]:
    """Return the content of `_last_checkpoint`; empty if there is none, or if it cannot be parsed."""
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
    """Return the SHA-256 of a checkpoint's content, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()

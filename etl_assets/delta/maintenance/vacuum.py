"""Data files that no version within a retention needs: found from the log, removed from every replica.

Delta's own VACUUM is not used: it writes log entries of its own, which would fork a replica's log, and it
knows one folder only. Here every replica keeps the same files: those of the oldest version that is still
needed, and all files that a later version names. Other files older than the retention are removed, including
those of killed writers.

Folders of replicas that have been rebuilt are removed too, one retention after they were first seen here:
readers bound to them have long ended by then. Nothing else records when a folder was given up, so a mark is
left in it. Temporary files of processes that were killed while they copied or voted are removed as well.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etl_assets.delta.log.entries import checkpoints
from etl_assets.delta.log.gate import Access, expect
from etl_assets.delta.replicated.replication_status import Holding
from etl_assets.delta.write.append import STAGING
from etl_assets.errors import InputError
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.mirroring.protocol.named_files import files_named
from etl_assets.mirroring.protocol.record import FIRST_FOLDER, folder_name
from etl_assets.mirroring.stores.local_store import LocalStore

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

_GENERATION = re.compile(r"g\d{6}")
_SHARED = ("register/", "health/")
"""Other prefixes under the root of a domain among several, written by processes that may be killed."""
MARK = ".given-up"
"""File in a folder that no replica uses any more; its age says how long that has been known."""
DEFAULT_RETENTION = dt.timedelta(days=7)
"""Delta's default: longer than any reader or writer works on one version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unneeded:
    """The files that can be removed from one replica.

    Attributes:
        holding: The replica.
        files: Bytes by path within the table's folder.
        given_up: Bytes by key of the files in folders that no replica uses any more.
        marks: Keys of the marks to leave in folders that were not known to be given up.
        unfinished: Bytes by key of the remains of killed writes.
        may_be_empty: Prefixes of folders that no replica uses any more.
    """

    holding: Holding
    files: Mapping[str, int]
    given_up: Mapping[str, int]
    marks: tuple[str, ...]
    unfinished: Mapping[str, int]
    may_be_empty: tuple[str, ...]

    @property
    def bytes(self) -> int:
        return sum(map(sum, (each.values() for each in (self.files, self.given_up, self.unfinished))))

    def __len__(self) -> int:
        """Return the number of files."""
        return sum(map(len, (self.files, self.given_up, self.unfinished)))

    def remove(self) -> None:
        """Remove the files. Doing it twice, or by several processes at once, changes nothing."""
        for key in self.marks:
            self.holding.store.create(key, b"")
        for number, key in enumerate(self._keys()):
            if number == 1:
                failpoint(Failpoint.VACUUM_DURING_REMOVE)
            self.holding.store.delete(key)
        for prefix in self.may_be_empty:
            self.holding.store.prune(prefix)

    def _keys(self) -> Iterator[str]:
        """Return the keys to remove: unused folders, remains of killed writes, files and their checksums."""
        yield from self.given_up
        yield from self.unfinished
        for path in self.files:
            folder, slash, name = path.rpartition("/")
            yield f"{self.holding.folder}/{path}"
            # Hadoop keeps a checksum beside each file that it writes to a folder.
            yield f"{self.holding.folder}/{folder}{slash}.{name}.crc"


def find_unneeded(table: Table, retention: dt.timedelta, now: dt.datetime) -> list[Unneeded]:
    """Find, for each replica with data, the files that no version still needs.

    A version is needed if it was the newest at any time of the retention, as far back as the log reaches. A
    replica that is behind still has to receive the files of the versions it lacks, so those are needed as
    well. For a mirrored table the leadership is acquired first, which pushes the commits of a dead process.

    Args:
        table: The table, in the domain that leads it.
        retention: How long files stay after the last version that has them.
        now: The time by this machine's clock.

    Raises:
        DomainUnavailable: a domain does not answer, so that its needs are unknown.
        QuorumUnavailable: too few domains answer.
        FeatureUnsupported: the table uses a feature of Delta for which its log names more than data files.
        InputError: the log has a gap.
    """
    holdings = _holdings(table)
    if not holdings:
        return []
    before = (now - retention).timestamp()
    needed = _needed(table, holdings, before)
    return [
        Unneeded(
            holding=holding,
            files=dict(_old_files(holding, needed, before)),
            given_up=dict(_given_up(holding, before)),
            marks=tuple(_unmarked(holding)),
            unfinished=dict(_unfinished(holding, before)),
            may_be_empty=tuple(_may_be_empty(holding)),
        )
        for holding in holdings
    ]


def _holdings(table: Table) -> list[Holding]:
    mirrored = table.replication
    if mirrored is None:
        if (version := table.version()) < 0:
            return []
        folder = table.path.relative_to(table.domain.root).as_posix()
        return [
            Holding(
                domain=table.domain.name, store=LocalStore(table.domain.root), folder=folder, version=version
            )
        ]
    if not mirrored.exists():
        return []
    mirrored.lead()
    return mirrored.holdings()


def _needed(table: Table, holdings: list[Holding], before: float) -> frozenset[str]:
    newest = table.snapshot()
    if newest is None:
        return frozenset()
    expect(table.name, newest, Access.VACUUM)
    # A replica that is behind still has to receive the files of the versions it lacks.
    oldest = min(_oldest_kept(holdings[0], newest.version, before), *(each.version for each in holdings))
    oldest = max(oldest, _first_readable(holdings[0]))
    base = table.snapshot(oldest) if oldest >= 0 else None
    needed = set() if base is None else set(base.files())
    for version in range(oldest + 1, newest.version + 1):
        needed |= {file.path for file in files_named(_entry(holdings[0], version))}
    return frozenset(needed)


def _oldest_kept(home: Holding, newest: int, before: float) -> int:
    """Return the version that was the newest at a time, by when entries reached this log.

    Times in a log come from the clocks of its leaders. An entry that was copied here arrived after it was
    made, so that at worst more files are kept.
    """
    version = newest
    while version > 0:
        written = home.store.modified(_entry_key(home, version))
        if written is None and version == newest:
            raise _missing(home, version)
        if written is None:
            return version + 1  # Cleaned up behind a checkpoint: no older version can be read.
        if written <= before:
            return version
        version -= 1
    return version


def _first_readable(home: Holding) -> int:
    """Return the first version that can be read: in a truncated log, the version of its first checkpoint.

    Entries before it may be left from a process that was killed while it removed them.
    """
    if home.store.size(_entry_key(home, 0)) is not None:
        return 0
    log = f"{home.folder}/_delta_log/"
    return min(checkpoints(key.removeprefix(log) for key in home.store.list(log)), default=0)


def _entry(home: Holding, version: int) -> bytes:
    found = home.store.get(_entry_key(home, version))
    if found is None:
        raise _missing(home, version)
    return found.content


def _missing(home: Holding, version: int) -> InputError:
    return InputError(
        f"version {version} is missing in {home.folder}",
        fix="find out what removed it; nothing is removed while the log has a gap",
        version=version,
    )


def _entry_key(home: Holding, version: int) -> str:
    return f"{home.folder}/_delta_log/{version:020d}.json"


def _given_up(holding: Holding, before: float) -> Iterator[tuple[str, int]]:
    """Return the files of folders that were marked before a time, with their bytes; each mark comes last."""
    folders = _older_folders(holding)
    for folder, keys in folders.items():
        marked = holding.store.modified(f"{folder}/{MARK}") if f"{folder}/{MARK}" in keys else None
        if marked is None or marked > before:
            continue
        for key in sorted(keys, key=lambda key: key.endswith(MARK)):
            yield key, holding.store.size(key) or 0


def _unmarked(holding: Holding) -> Iterator[str]:
    """Return the keys of marks that are missing."""
    for folder, keys in _older_folders(holding).items():
        if f"{folder}/{MARK}" not in keys:
            yield f"{folder}/{MARK}"


def _older_folders(holding: Holding) -> dict[str, set[str]]:
    """Return the content generations before the replica's, with their files.

    Later generations may be under construction.
    """
    parent, _, current = holding.folder.rpartition("/")
    found: dict[str, set[str]] = {}
    if _is_mirrored(holding):
        for key in holding.store.list(f"{parent}/"):
            name = key.removeprefix(f"{parent}/").partition("/")[0]
            if _GENERATION.fullmatch(name) and name < current:
                found.setdefault(f"{parent}/{name}", set()).add(key)
    return found


def _may_be_empty(holding: Holding) -> Iterator[str]:
    """Return the prefixes of the folders before the replica's. An empty folder is in no listing."""
    parent, _, current = holding.folder.rpartition("/")
    for number in range(FIRST_FOLDER, int(current[1:]) if _is_mirrored(holding) else FIRST_FOLDER):
        yield f"{parent}/{folder_name(number)}/"


def _unfinished(holding: Holding, before: float) -> Iterator[tuple[str, int]]:
    """Return the remains of writes that began before a time, with their bytes.

    Searches the table's folders and, for a mirrored table, the prefixes of `_SHARED`.
    """
    table = holding.folder.rpartition("/")[0] if _is_mirrored(holding) else holding.folder
    for prefix in (f"{table}/", *(_SHARED if _is_mirrored(holding) else ())):
        for key in holding.store.unfinished(prefix):
            modified = holding.store.modified(key)
            if modified is not None and modified <= before:
                yield key, holding.store.size(key) or 0


def _is_mirrored(holding: Holding) -> bool:
    return _GENERATION.fullmatch(holding.folder.rpartition("/")[2]) is not None


def _old_files(holding: Holding, needed: frozenset[str], before: float) -> Iterator[tuple[str, int]]:
    """Return files older than a time that are not needed, with their bytes.

    Hidden files are not data and are skipped, except those of appends.
    """
    prefix = f"{holding.folder}/"
    for key in holding.store.list(prefix):
        path = key.removeprefix(prefix)
        hidden = any(part.startswith(("_", ".")) for part in path.split("/"))
        if path in needed or (hidden and not path.startswith(f"{STAGING}/")):
            continue
        modified, size = holding.store.modified(key), holding.store.size(key)
        if modified is not None and size is not None and modified <= before:
            yield path, size

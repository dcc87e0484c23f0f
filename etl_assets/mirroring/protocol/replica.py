"""The replica of one table in one store: its folder, its log entries, its data files.

Belongs here: the content of a replica, and how it is brought forward. Does not belong here: the rules for
votes (`record.py`), and when to vote (`mirror.py`).

```
tables/<table>/g000001/_delta_log/00000000000000000007.json   the log
tables/<table>/staged/00000000000000000008.<chain>.json       an entry voted for, not yet published
```

A published log entry is never replaced, and never removed unless it is before the base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.chain import extend
from etl_assets.mirroring.protocol.named_files import NamedFile, files_named, files_removed
from etl_assets.mirroring.protocol.record import WHOLE_LOG, Base, Published, State, folder_name
from etl_assets.mirroring.protocol.register import Register
from etl_assets.mirroring.stores.store import Store

_STAGED = re.compile(r"(\d{20})\.[0-9a-f]+\.json")
"""Matches the name of a staged entry: its version, and the chain up to it."""


class ForeignEntry(Exception):
    """A folder has another entry for the version to publish: an unacknowledged tail, or a foreign edit."""


class ReplicaStore:
    """A table's replica in one domain."""

    def __init__(self, store: Store, *, table: str, domain: str) -> None:
        self.store = store
        self.domain = domain
        self.register = Register(store, table=table, domain=domain)
        self._table = table

    def folder(self, number: int) -> str:
        """Return the key of a content generation's folder."""
        return f"tables/{self._table}/{folder_name(number)}"

    def entry_key(self, folder: int, version: int) -> str:
        return f"{self.folder(folder)}/_delta_log/{version:020d}.json"

    def staged_key(self, version: int, chain: str) -> str:
        return f"tables/{self._table}/staged/{version:020d}.{chain}.json"

    def entry(self, folder: int, version: int) -> bytes | None:
        """Return a log entry of a folder, published or not; None if the folder has none of this version."""
        found = self.store.get(self.entry_key(folder, version))
        return None if found is None else found.content

    def stage(self, state: State, entry: bytes) -> None:
        """Store the entry of a state's head durably, under a name that no other content can have."""
        key = self.staged_key(state.version, state.chain)
        try:
            if self.store.create(key, entry):
                return
        except Unanswered:
            if self.store.size(key) is None:
                raise
        # The process that wrote it may have ended before it was durable.
        self.store.persist([key])

    def unstage(self, state: State) -> None:
        """Remove the staged entry of a state that is published here."""
        self.store.delete(self.staged_key(state.version, state.chain))

    def history(self, folder: int, after: Published, upto: State) -> list[bytes] | None:
        """Return the entries after `after` up to a state's head, from this replica.

        The head's entry may be a staged one; the folder may even have another entry in its place.

        Args:
            folder: Number of the folder.
            after: The published part that the entries follow on.
            upto: The state whose history to return.

        Returns:
            The entries, or None if some are missing or their chain is not that of the state.
        """
        entries: list[bytes] = []
        chain = after.chain
        for version in range(after.version + 1, upto.version):
            if (entry := self.entry(folder, version)) is None:
                return None
            entries.append(entry)
            chain = extend(chain, entry)
        if upto.version > after.version:
            head = self._head(folder, chain, upto)
            if head is None:
                return None
            entries.append(head)
            chain = extend(chain, head)
        return entries if chain == upto.chain else None

    def _head(self, folder: int, chain: str, state: State) -> bytes | None:
        head = self.entry(folder, state.version)
        if head is not None and extend(chain, head) == state.chain:
            return head
        staged = self.store.get(self.staged_key(state.version, state.chain))
        return None if staged is None else staged.content

    def publish(self, at: Published, entries: Iterable[bytes]) -> Published:
        """Append entries to the published part of the log, without replacing any file.

        Args:
            at: The published part.
            entries: The entries after it. Their data files must be in the folder already.

        Returns:
            The published part with these entries.

        Raises:
            ForeignEntry: the log has another entry in the place of one of them.
        """
        for entry in entries:
            version = at.version + 1
            if not self._put_if_absent(at.folder, version, entry):
                raise ForeignEntry(f"version {version} in {self.folder(at.folder)}")
            at = replace(at, version=version, chain=extend(at.chain, entry))
        return at

    def _put_if_absent(self, folder: int, version: int, entry: bytes) -> bool:
        """Write an entry if its version has none, and return whether the log now durably holds this entry.

        Never replaces or removes a file.
        """
        key = self.entry_key(folder, version)
        unanswered = Unanswered(
            f"{key} was there and is gone: another program empties {self.store.name}",
            fix="run it again once that has come to an end",
            store=self.store.name,
            key=key,
        )
        try:
            if self.store.create(key, entry):
                return True
        except Unanswered as error:
            unanswered = error
        if (found := self.store.get(key)) is None:
            raise unanswered
        if found.content != entry:
            return False
        # The process that wrote it may have ended before it was durable.
        self.store.persist([key])
        return True

    def fetch(
        self,
        folder: int,
        entries: Sequence[bytes],
        sources: Sequence[tuple[ReplicaStore, int]],
        *,
        live: Sequence[NamedFile] = (),
    ) -> None:
        """Copy the data files of consecutive entries into a folder, each from the first source that has it.

        A file that a later one of the entries removes may be missing everywhere, as it may have been
        vacuumed.

        Args:
            folder: Number of the folder.
            entries: The log entries.
            sources: Replicas that have the files, each with the number of its folder.
            live: Files that the table had before these entries, if the folder lacks them.

        Raises:
            Unanswered: no source that answers has a file in full.
        """
        gone_later: set[str] = set()
        held: list[str] = []
        named = [(files_named(entry), files_removed(entry)) for entry in reversed(entries)]
        for files, removed in [*named, (live, frozenset[str]())]:
            for file in files:
                if self._fetch_file(folder, file, sources):
                    held.append(f"{self.folder(folder)}/{file.path}")
                elif file.path not in gone_later:
                    raise Unanswered(
                        f"no replica that answers has the file {file.path} of the table {self._table} in"
                        " full",
                        fix="bring back a domain that holds it; `etl-assets tables verify` names them",
                        store=self.store.name,
                        key=file.path,
                    )
            gone_later |= removed
        if held:
            self.store.persist(held)

    def _fetch_file(self, folder: int, file: NamedFile, sources: Sequence[tuple[ReplicaStore, int]]) -> bool:
        target = f"{self.folder(folder)}/{file.path}"
        if file.fits(self.store.size(target)):
            return True
        unanswered: Unanswered | None = None
        for replica, their_folder in sources:
            key = f"{replica.folder(their_folder)}/{file.path}"
            try:
                if not file.fits(replica.store.size(key)):
                    continue
                if replica is self and self.store.link(key, target):
                    return True
                chunks = replica.store.read(key)
            except Unanswered as error:
                unanswered = error  # the next source may have it
                continue
            if chunks is not None:
                self.store.put(target, chunks)
                if file.fits(self.store.size(target)):
                    return True
        if unanswered is not None:
            raise unanswered
        return False

    def persist(self, folder: int, version: int, entry: bytes) -> None:
        """Make a commit durable that was written to this replica: its data files and its log entry.

        Raises:
            ReplicaCorrupt: a file of the commit is missing or does not have the size that the commit says.
        """
        for file in files_named(entry):
            if not file.fits(self.store.size(f"{self.folder(folder)}/{file.path}")):
                raise ReplicaCorrupt(
                    f"version {version} of the table {self._table} in {self.domain} names {file.path}, which"
                    " is not there in full",
                    fix="let another domain lead the table, then rebuild this replica",
                    table=self._table,
                    domain=self.domain,
                )
        files = [f"{self.folder(folder)}/{file.path}" for file in files_named(entry)]
        self.store.persist([*files, self.entry_key(folder, version)])

    def sweep(self, published: Published) -> None:
        """Remove the staged entries of published versions.

        They are left over from failed proposals, or from removals that failed. No vote depends on them: a
        vote for a published version depends on the log.
        """
        prefix = f"tables/{self._table}/staged/"
        for key in list(self.store.list(prefix)):
            # Other files belong to the file system or to another program, and stay.
            staged = _STAGED.fullmatch(key.removeprefix(prefix))
            if staged is not None and int(staged[1]) <= published.version:
                self.store.delete(key)

    def broken(
        self,
        published: Published,
        *,
        has_data: bool,
        base: Base = WHOLE_LOG,
        live: Sequence[NamedFile] = (),
    ) -> Iterator[str]:
        """Yield the problems of the published part: wrong or missing entries, missing or cut-off data files.

        Reads the log from its base on, and asks for the size of every file in use. Deletion vectors are not
        checked, as the log does not say when one of them is no longer in use.

        Args:
            published: The part that the replica must hold.
            has_data: Whether it must hold data files.
            base: Where the log begins.
            live: The files in use according to the base's checkpoint.
        """
        chain = base.before
        files = {file.path: file for file in live if file.exact}
        for version in range(base.first, published.version + 1):
            if (entry := self.entry(published.folder, version)) is None:
                yield f"version {version} is missing in {self.folder(published.folder)}"
                return
            chain = extend(chain, entry)
            try:
                removed, named = files_removed(entry), files_named(entry)
            except ReplicaCorrupt:
                folder = self.folder(published.folder)
                yield (
                    f"the log in {folder} is not the one that was published: version {version} cannot be read"
                )
                return
            for path in removed:
                files.pop(path, None)
            files |= {file.path: file for file in named if file.exact}
        if chain != published.chain:
            yield f"the log in {self.folder(published.folder)} is not the one that was published"
        for file in files.values() if has_data else ():
            if not file.fits(self.store.size(f"{self.folder(published.folder)}/{file.path}")):
                yield f"{file.path} is missing in {self.folder(published.folder)}, or not of its size"

"""One table under one store: its folder, its log entries, its data files.

Belongs here: what a replica holds and how it is brought further. Not here: who may vote for what (`record.py`), and when
(`mirror.py`).

```
tables/<table>/g000001/_delta_log/00000000000000000007.json   the log; what is published is never replaced, nor removed from the base on
tables/<table>/staged/00000000000000000008.<chain>.json       an entry that was voted for and is not yet published
```
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.chain import extend
from etl_assets.mirroring.named_files import NamedFile, files_named, files_removed
from etl_assets.mirroring.record import WHOLE_LOG, Base, Published, State, folder_name
from etl_assets.mirroring.register import Register
from etl_assets.mirroring.stores import Store

_STAGED = re.compile(r"(\d{20})\.[0-9a-f]+\.json")
"""A staged entry: its version, and the chain up to it."""


class ForeignEntry(Exception):
    """A folder has another entry under the version to be published: an unacknowledged tail, or somebody's edit."""


class ReplicaStore:
    """A table's replica in one domain."""

    def __init__(self, store: Store, *, table: str, domain: str) -> None:
        self.store = store
        self.domain = domain
        self.register = Register(store, table=table, domain=domain)
        self._table = table

    def folder(self, number: int) -> str:
        """Key of a content generation's folder."""
        return f"tables/{self._table}/{folder_name(number)}"

    def entry_key(self, folder: int, version: int) -> str:
        return f"{self.folder(folder)}/_delta_log/{version:020d}.json"

    def staged_key(self, version: int, chain: str) -> str:
        return f"tables/{self._table}/staged/{version:020d}.{chain}.json"

    def entry(self, folder: int, version: int) -> bytes | None:
        """A log entry of a folder, published or not."""
        found = self.store.get(self.entry_key(folder, version))
        return None if found is None else found.content

    def stage(self, state: State, entry: bytes) -> None:
        """Keep the entry of a state's head durably, under a name that no other content can have."""
        key = self.staged_key(state.version, state.chain)
        try:
            if self.store.create(key, entry):
                return
        except Unanswered:
            if self.store.size(key) is None:
                raise
        # The process that put it there may have ended before it was durable.
        self.store.persist([key])

    def unstage(self, state: State) -> None:
        """Remove the staged entry of a state that is published here."""
        self.store.delete(self.staged_key(state.version, state.chain))

    def history(self, folder: int, after: Published, upto: State) -> list[bytes] | None:
        """The entries after `after` up to a state's head, as this replica has them.

        None: it does not have them all, or they are not that history. The head's own entry may be a staged one, and
        the folder may have another in its place.
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
        """Put entries into the log after what is published, each only if nothing is there; the data must be there.

        Raises:
            ForeignEntry: another entry is in the way.
        """
        for entry in entries:
            version = at.version + 1
            if not self._put_if_absent(at.folder, version, entry):
                raise ForeignEntry(f"version {version} in {self.folder(at.folder)}")
            at = replace(at, version=version, chain=extend(at.chain, entry))
        return at

    def _put_if_absent(self, folder: int, version: int, entry: bytes) -> bool:
        """Whether the log now holds this very entry, durably. Never replaces, never removes."""
        key = self.entry_key(folder, version)
        unanswered = Unanswered(
            f"{key} was there and is gone: somebody empties {self.store.name}",
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
        # The process that put it there may have ended before it was durable.
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
        """Copy the data files of some consecutive entries into a folder, from the first source that has each.

        Files that a later one of the entries takes out again may be gone everywhere, if they were vacuumed.

        Args:
            folder: The folder.
            entries: The entries.
            sources: Replicas that have files, with the folder each has them in.
            live: What the table had before these entries, if the folder does not have it.

        Raises:
            Unanswered: a file cannot be had at present.
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
                        f"no replica that answers has the file {file.path} of the table {self._table} in full",
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
                unanswered = error  # the next one may have it
                continue
            if chunks is not None:
                self.store.put(target, chunks)
                if file.fits(self.store.size(target)):
                    return True
        if unanswered is not None:
            raise unanswered
        return False

    def persist(self, folder: int, version: int, entry: bytes) -> None:
        """Make a commit that Spark wrote here durable.

        Raises:
            ReplicaCorrupt: a file of the commit is not as long as the commit says.
        """
        for file in files_named(entry):
            if not file.fits(self.store.size(f"{self.folder(folder)}/{file.path}")):
                raise ReplicaCorrupt(
                    f"version {version} of the table {self._table} in {self.domain} names {file.path}, which is not "
                    f"there in full",
                    fix="let another domain lead the table, then rebuild this replica",
                    table=self._table,
                    domain=self.domain,
                )
        files = [f"{self.folder(folder)}/{file.path}" for file in files_named(entry)]
        self.store.persist([*files, self.entry_key(folder, version)])

    def sweep(self, published: Published) -> None:
        """Remove staged entries that came to nothing, or whose removal did not: those of published versions.

        No vote rests on them: one for such a version rests on the log.
        """
        prefix = f"tables/{self._table}/staged/"
        for key in list(self.store.list(prefix)):
            # What else lies there is a file system's own, or somebody's.
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
        """What is wrong with the published part: log entries gone or changed, files of the newest version gone or cut.

        Reads the log from its base on and asks for the size of every file in use. Deletion vectors are not looked at: the
        log does not say when one of them is out of use.

        Args:
            published: What is to be there.
            has_data: Whether data files are to be there.
            base: Where the log begins.
            live: What its checkpoint says the table has of files.
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
                yield f"the log in {folder} is not the one that was published: version {version} cannot be read"
                return
            for path in removed:
                files.pop(path, None)
            files |= {file.path: file for file in named if file.exact}
        if chain != published.chain:
            yield f"the log in {self.folder(published.folder)} is not the one that was published"
        for file in files.values() if has_data else ():
            if not file.fits(self.store.size(f"{self.folder(published.folder)}/{file.path}")):
                yield f"{file.path} is missing in {self.folder(published.folder)}, or not of its size"

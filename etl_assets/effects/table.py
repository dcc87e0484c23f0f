"""The table `effects` as the store writes it: one commit per change, decided under the table's lock.

Each commit writes its rows into one new file, together with those of the files it removes: the files with an
older row of its keys, and smaller files. So a key has one row, there are few files however many commits there
were, and a row is rewritten about as often as the number of rows has doubled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.replicated.replication import make_mirrored
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.delta.write.records import commit_rows, read_files
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS
from etl_assets.delta.write.writing import writing
from etl_assets.effects.effect import Effect, forgotten
from etl_assets.errors import CommitConflict

if TYPE_CHECKING:
    from etl_assets.delta.table import Table
    from etl_assets.effects.store import Change

KEEP = 100_000
"""A completed effect is deleted once this many effects of its sink have been completed after it."""
_ATTEMPTS = 5
Name = tuple[str, str]


@dataclass
class Book:
    """The effects at one version, and which file contains which."""

    path: Path
    version: int
    epoch: str = ""
    effects: dict[Name, Effect] = field(default_factory=dict)
    files: dict[str, StoredFile] = field(default_factory=dict)
    names: dict[str, set[Name]] = field(default_factory=dict)
    completed: Counter[str] = field(default_factory=Counter)

    def get(self, sink: str, key: str) -> Effect | None:
        return self.effects.get((sink, key))

    def put(self, file: StoredFile, effects: Iterable[Effect]) -> None:
        """Add a file with its rows."""
        self.files[file.name] = file
        self.names[file.name] = set()
        for effect in effects:
            self.effects[effect.name] = effect
            self.names[file.name].add(effect.name)
            self.completed[effect.sink] += effect.is_completed

    def take(self, file: StoredFile) -> list[Effect]:
        """Remove a file, and return its rows."""
        del self.files[file.name]
        effects = [self.effects.pop(name) for name in self.names.pop(file.name)]
        for effect in effects:
            self.completed[effect.sink] -= effect.is_completed
        return effects

    def outdated(self, sinks: Iterable[str], keep: int) -> set[Name]:
        """Return completed effects to delete. Searches only sinks that are a tenth above the limit."""
        crowded = [sink for sink in sinks if self.completed[sink] > keep + keep // 10]
        return {
            effect.name
            for sink in crowded
            for effect in forgotten((each for each in self.effects.values() if each.sink == sink), keep)
        }

    def to_rewrite(self, names: set[Name], rows: int) -> list[StoredFile]:
        """Return the files to remove in a commit of `rows` rows.

        These are the files with one of the names, and smaller ones.
        """
        hit = [file for file in self.files.values() if not names.isdisjoint(self.names[file.name])]
        rows += sum(file.rows for file in hit)
        for file in sorted(self.files.values(), key=lambda file: file.rows):
            if file in hit:
                continue
            if file.rows > rows:
                break
            hit.append(file)
            rows += file.rows
        return hit


class EffectsTable:
    """The table, for one process."""

    def __init__(
        self, table: Table, *, keep: int = KEEP, wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS
    ) -> None:
        self._table = table
        self._keep = keep
        self._wait_seconds = wait_seconds
        self._book: Book | None = None

    def update(self, change: Change, *, take_lead: bool) -> None:
        """Change effects in one commit; see `store.EffectsLog`."""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with writing(self._table, wait_seconds=self._wait_seconds, driver_pid=None):
                    self._update(change, take_lead=take_lead)
            except CommitConflict:
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def _update(self, change: Change, *, take_lead: bool) -> None:
        book = self._open(take_lead=take_lead)
        if rows := list(change(book)):
            self._book = None  # until the commit is known to have been made
            self._commit(book, rows)
            self._book = book

    def _open(self, *, take_lead: bool) -> Book:
        mirrored = self._table.replication
        if mirrored is None:
            version, path, epoch = self._table.version(), self._table.path, ""
        else:
            make_mirrored(self._table.name, self._table.domain)
            if not take_lead:
                mirrored.mirror.leading()
            lead = mirrored.lead()
            path, version, epoch = mirrored.folder(lead), lead.version, str(lead.epoch)
        if self._book is None or (self._book.path, self._book.version) != (path, version):
            self._book = self._load(path, version)
        self._book.epoch = epoch
        return self._book

    def _load(self, path: Path, version: int) -> Book:
        book = Book(path=path, version=version)
        snapshot = self._table.snapshot(version) if version >= 0 else None
        for file in content_of(snapshot).values() if snapshot is not None else ():
            book.put(file, map(Effect.from_row, read_files(path, [file])))
        return book

    def _commit(self, book: Book, changed: Sequence[Effect]) -> None:
        version = max(book.version, 0) + 1
        new = {effect.name: effect for effect in changed}
        outdated = book.outdated({sink for sink, _ in new}, self._keep)
        removed = book.to_rewrite({*new, *outdated}, len(new))
        staying = [
            effect
            for file in removed
            for effect in book.take(file)
            if effect.name not in new and effect.name not in outdated
        ]
        rows = [effect.as_row(effect.batch_id) for effect in staying]
        rows += [effect.as_row(version) for effect in new.values()]
        added = commit_rows(
            self._table,
            rows,
            base_version=book.version,
            removed=tuple(removed),
            epoch=book.epoch or None,
            facts={"changed": len(new), "forgotten": len(outdated)},
        )
        for file in added:
            book.put(file, map(Effect.from_row, rows))
        book.version = version

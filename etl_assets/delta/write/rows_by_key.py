"""Rows of a small table by key, as the platform's own tables keep them: one commit per change, without Spark.

Each commit writes its rows into one new file, together with those of the files that it removes: the files
with an older row of its keys, and smaller files as long as the new one has few rows. So a key has one row,
and a commit writes few rows that have not changed, however many there are.

Belongs here: which rows are in which file, and the commit. Does not belong here: what a row means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.delta.snapshot_cache import snapshot_in
from etl_assets.delta.write.content import StoredFile, content_of
from etl_assets.delta.write.records import commit_rows, read_files

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

MAX_KEPT_ROWS = 4
"""A file is joined with smaller ones while it has no more rows than this."""
Row = Mapping[str, Any]
Key = tuple[Any, ...]


@dataclass(slots=True, kw_only=True)
class RowsByKey:
    """The rows at one version.

    Attributes:
        key: Names of the columns that identify a row.
        path: The table's folder.
        version: The version; -1 without a table.
        long: Columns of long texts.
        rows: The rows.
    """

    key: tuple[str, ...]
    long: tuple[str, ...] = ()
    path: Path
    version: int
    rows: dict[Key, Row] = field(default_factory=dict)
    _files: dict[str, StoredFile] = field(default_factory=dict)
    _keys: dict[str, frozenset[Key]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path, version: int, key: tuple[str, ...], *, long: tuple[str, ...] = ()) -> RowsByKey:
        """Read a version of the table in a folder.

        Raises:
            OSError: a file cannot be read.
        """
        found = cls(key=key, long=long, path=path, version=version)
        for file in content_of(snapshot_in(path, version)).values() if version >= 0 else ():
            found._add(file, read_files(path, [file]))
        return found

    def commit(self, table: Table, changed: Sequence[Row], *, epoch: str | None) -> None:
        """Commit rows, each in the place of the one with its key. Call it under the table's lock.

        Args:
            table: The table.
            changed: Rows with all columns but `batch_id`, which is added.
            epoch: The fence epoch under which the version is the newest; None with one domain.

        Raises:
            CommitConflict, Fenced, QuorumUnavailable: as for `commit_rows`. These rows are not those of the
                table then: load them again.
        """
        version = max(self.version, 0) + 1
        new = {self._key_of(row): {**row, "batch_id": version} for row in changed}
        removed = self._to_rewrite(new.keys(), len(new))
        staying = [row for file in removed for row in self._take(file)]
        rows = [row for row in staying if self._key_of(row) not in new] + list(new.values())
        added = commit_rows(
            table,
            rows,
            base_version=self.version,
            removed=tuple(removed),
            epoch=epoch,
            facts={"changed": len(new)},
            long=self.long,
        )
        for file in added:
            self._add(file, rows)
        self.version = version

    def _key_of(self, row: Row) -> Key:
        return tuple(row[name] for name in self.key)

    def _add(self, file: StoredFile, rows: Iterable[Row]) -> None:
        found = {self._key_of(row): row for row in rows}
        self.rows |= found
        self._files[file.name], self._keys[file.name] = file, frozenset(found)

    def _take(self, file: StoredFile) -> list[Row]:
        """Remove a file, and return its rows."""
        del self._files[file.name]
        return [self.rows.pop(key) for key in self._keys.pop(file.name)]

    def _to_rewrite(self, keys: Iterable[Key], rows: int) -> list[StoredFile]:
        """Return the files to remove in a commit: those with one of some keys, and some smaller ones."""
        wanted = set(keys)
        hit = [file for file in self._files.values() if not wanted.isdisjoint(self._keys[file.name])]
        rows += sum(file.rows for file in hit)
        for file in sorted(self._files.values(), key=lambda file: file.rows):
            if file in hit:
                continue
            if file.rows > rows or file.rows + rows > MAX_KEPT_ROWS:
                break
            hit.append(file)
            rows += file.rows
        return hit

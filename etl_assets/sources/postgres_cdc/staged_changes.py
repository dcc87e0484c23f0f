"""Changes of one table on their way into staged files: a new file where its columns change.

Belongs here: collecting and writing. Does not belong here: which messages there are (`source.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.sources.postgres_cdc.changed_rows import (
    ChangedRows,
    ChangePlace,
    RowCollector,
    SourceOperation,
    copied_rows,
)
from etl_assets.sources.postgres_cdc.messages import (
    DeleteMessage,
    InsertMessage,
    RelationMessage,
    UpdateMessage,
)
from etl_assets.sources.postgres_cdc.staged import SUFFIX, ChangesFile, expect_whole
from etl_assets.sources.postgres_cdc.type_catalog import read_types
from etl_assets.sources.postgres_cdc.types import PostgresType, ValuePolicies
from etl_assets.sources.ranges import StagedFile

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

_AT_ONCE = 10_000
_BYTES_AT_ONCE = 16 << 20
"""How many changes, or about how many bytes of them, are held: memory is bounded by them and one row."""

_FILE_BYTES = 8 << 20
"""After so many bytes another file begins."""


class StagedChangesWriter:
    """Writes the changes of one range into files of one day.

    Args:
        session: A session that knows the types of columns.
        folder: Folder of the range.
        day: The day that the changes belong to.
        place: What no other range is called.
        keys: Columns that identify a row.
        needs_all_values: Whether an update that lacks values is refused.
    """

    def __init__(
        self,
        session: psycopg.Connection,
        folder: Path,
        *,
        day: dt.date,
        place: str,
        keys: tuple[str, ...],
        needs_all_values: bool = False,
    ) -> None:
        self._needs_all_values = needs_all_values
        self.size = 0
        self.count = 0
        self._session, self._keys, self._day, self._place = session, keys, day, place
        self._folder = folder / day.isoformat()
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files: list[ChangesFile] = []
        self._collector: RowCollector | None = None
        self._types: Mapping[int, PostgresType] = {}
        self._held = 0

    def begin(self, relation: RelationMessage, *, quarantined: str | None = None) -> None:
        """Begin a file for changes of the table as it is from now on.

        Args:
            relation: Its columns.
            quarantined: Why its rows are not taken; None: they are.
        """
        self._flush()
        if self._files:
            self._files[-1].close()
        self._types = read_types(self._session, [each.type_oid for each in relation.columns])
        self._collector = RowCollector(relation, self._keys)
        self._open(quarantined)

    def change(
        self, message: InsertMessage | UpdateMessage | DeleteMessage, place: ChangePlace, size: int
    ) -> None:
        """Add a change of a row; `size` is about how many bytes it has."""
        collector = self._collecting
        match message:
            case UpdateMessage():
                collector.update(message, place)
            case InsertMessage():
                collector.insert(message, place)
            case DeleteMessage():
                collector.delete(message, place)
        self._added(size)

    def rows(self, columns: Sequence[pa.BinaryArray], place: ChangePlace) -> None:
        """Add rows of a copy.

        Args:
            columns: The texts of the table's columns.
            place: The place of the first row; the others follow it.
        """
        self._flush()
        relation = self._collecting.relation
        changed = copied_rows(relation, columns, self._types, ValuePolicies(), place)
        self.size += sum(each.nbytes for each in columns)
        self.count += changed.rows.num_rows
        self._write(changed)

    def truncate(self, place: ChangePlace) -> None:
        """Add that the table was emptied."""
        self._collecting.truncate(place)
        self._added(0)

    def copy_begins(self, place: ChangePlace) -> None:
        """Add that the table is copied again, so that rows from before do not stay."""
        self._collecting.truncate(place, SourceOperation.COPY)
        self._added(0)

    def close(self) -> tuple[StagedFile, ...]:
        """Complete the files, and return those that have changes."""
        self._flush()
        for each in self._files:
            each.close()
        return tuple(
            StagedFile(day=self._day, name=each.path.name, place=f"{self._place}/{each.path.name}")
            for each in self._files
            if each.path.exists()
        )

    @property
    def relation(self) -> RelationMessage:
        """The columns that it began with last."""
        return self._collecting.relation

    @property
    def written(self) -> list[tuple[Path, int]]:
        """The files that have changes, and how many; complete after `close`."""
        return [(each.path, each.rows) for each in self._files if each.rows]

    @property
    def _collecting(self) -> RowCollector:
        assert self._collector is not None  # the server sends a relation before its first change
        return self._collector

    def _added(self, size: int) -> None:
        self.size += size
        self.count += 1
        self._held += size
        if len(self._collecting) >= _AT_ONCE or self._held >= _BYTES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        collector = self._collector
        if collector is None or not len(collector):
            return
        self._write(collector.collected(self._types, ValuePolicies()))
        self._collector = RowCollector(collector.relation, self._keys)
        self._held = 0

    def _write(self, changed: ChangedRows) -> None:
        """Write changes, into another file if the last one is long: files are validated one by one."""
        if self._needs_all_values:
            expect_whole(changed)
        last, lacks_values = self._files[-1], bool(changed.unchanged)
        if last.bytes >= _FILE_BYTES or last.has_unavailable is not lacks_values:
            last.close()
            self._open(last.quarantined, has_unavailable=lacks_values)
        self._files[-1].write(changed)

    def _open(self, quarantined: str | None, *, has_unavailable: bool = False) -> None:
        path = self._folder / f"{len(self._files):06d}{SUFFIX}"
        self._files.append(ChangesFile(path, quarantined=quarantined, has_unavailable=has_unavailable))

"""Rows of a table that are read again, because neither its copy nor the log has all of their values.

A row whose key changes while the table is copied takes long values from the row of the key before, which may
not have been copied at that time, or never is. So it is read as it is now, at a newer place in the log. By
then it may have yet another key, which the log says before that place. So the keys that were read are
remembered until then: where one of them changes, the row is read again, too.

Belongs here: which rows, and reading them. Does not belong here: the copy (`table_copy.py`).
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from etl_assets.delta.write.completed_changes import FORMER_KEY
from etl_assets.pipelines.postgres_cdc_spec import LSN_FIELD, UNAVAILABLE_FIELD
from etl_assets.sources.canonical_rows import canonical_rows
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.rows_by_copy import write_rows
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.table_copy import TableCopy, column_list
from etl_assets.sources.ranges import StagedFile
from etl_assets.sources.sql.postgres_text import quoted

if TYPE_CHECKING:
    import pyarrow as pa

Key = tuple[str, ...]
"""The values of a key, as texts."""
MOST_REMEMBERED = 50
"""Keys that a position remembers. With more, all rows whose keys change are read again for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAgain:
    """Reads rows again.

    Attributes:
        server: The server. Another session of it is used, because its own may hold the snapshot of a copy.
        find_table: Returns the table.
        keys: The columns of its key.
        folder: Folder of the range.
    """

    server: LogServer
    find_table: Callable[[], SourceTable]
    keys: Sequence[str]
    folder: Path

    def add(
        self, begin: LogPosition, end: LogPosition, changes: Sequence[StagedFile], files: list[StagedFile]
    ) -> LogPosition:
        """Add the rows that have to be read again.

        Args:
            begin: Where the range begins.
            end: Where its changes end.
            changes: Staged files with them, in the order of the log.
            files: Gets the staged files with rows.

        Returns:
            The position after the range.
        """
        if not begin.is_copying and begin.lsn > max(begin.again_until_lsn, begin.ahead_until_lsn):
            return replace(end, again_until_lsn=0, again=())
        before = dict(begin.again)
        wanted = moved_rows(
            [self.folder / each.day.isoformat() / each.name for each in changes],
            self.keys,
            until_lsn=None if begin.is_copying else begin.again_until_lsn,
            before=before,
        )
        again = {mark: place for mark, place in before.items() if place > end.lsn}
        if wanted:
            place, found = self._read(list(wanted.values()), changes[0].day)
            files += found
            again |= dict.fromkeys(map(_mark, wanted), place)
            end = replace(end, ahead_until_lsn=max(end.ahead_until_lsn, place))
        if len(again) > MOST_REMEMBERED:
            return replace(end, again_until_lsn=end.ahead_until_lsn, again=())
        return replace(end, again=tuple(sorted(again.items())))

    def _read(self, keys: Sequence[Key], day: dt.date) -> tuple[int, list[StagedFile]]:
        """Read rows as they are now into staged files; return their place in the log too."""
        other = replace(self.server)
        copy = TableCopy(server=other)
        with self.server.asked():
            table = self.find_table()
        try:
            with other.asked():
                place = copy.place()
                writer = StagedChangesWriter(
                    other.session,
                    self.folder / "again",
                    day=day,
                    place=f"again/{lsn_text(place.lsn)}",
                    keys=table.keys,
                )
                writer.begin(table.relation)
                query, values = _query(table, keys)
                write_rows(other.session, query, writer, place, values)
                files = [_moved(each, self.folder) for each in writer.close()]
                copy.release()
        finally:
            other.close()
        return place.lsn, files


def moved_rows(
    paths: Iterable[Path], keys: Sequence[str], *, until_lsn: int | None, before: Mapping[str, int]
) -> dict[str, Key]:
    """Return the keys that rows have after staged changes that changed a key and lack values.

    A row whose key changes twice has the last one.

    Args:
        paths: The staged files, in the order of the log.
        keys: The columns of the key.
        until_lsn: Changes after this place are left out, unless they are of rows that were found or read
            before; None: none is.
        before: Marks of keys that were read before, and the place of each: their changes up to there count.

    Returns:
        The keys, by what they are as JSON.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[str, Key] = {}
    mark = pc.MatchSubstringOptions(f'"{FORMER_KEY}":')
    for path in paths:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            if UNAVAILABLE_FIELD not in stream.schema.names:
                continue
            for batch in stream:
                lacks = batch.column(UNAVAILABLE_FIELD)
                moved = batch.filter(pc.call_function("match_substring", [lacks], mark))
                if not moved.num_rows:
                    continue
                places = moved.column(LSN_FIELD).to_pylist()
                formers = [
                    json.loads(each)[FORMER_KEY] for each in moved.column(UNAVAILABLE_FIELD).to_pylist()
                ]
                texts = zip(*(map(_text, moved.column(name).to_pylist()) for name in keys), strict=True)
                for line, key, former, lsn in zip(_as_json(moved, keys), texts, formers, places, strict=True):
                    was_found = found.pop(former, None) is not None
                    is_early = until_lsn is None or lsn <= until_lsn
                    if is_early or was_found or lsn <= before.get(_mark(former), -1):
                        found[line] = key
    return found


def _mark(key: str) -> str:
    """Return what a position remembers of a key. If two keys have the same, a row is read for nothing."""
    return f"{crc32(key.encode()):x}"


def _as_json(batch: pa.RecordBatch, keys: Iterable[str]) -> list[str]:
    return canonical_rows({name: batch.column(name) for name in keys}).to_pylist()


def _query(table: SourceTable, keys: Sequence[Key]) -> tuple[bytes, Sequence[Any]]:
    names = ", ".join(quoted(key) for key in table.keys)
    wanted = ", ".join(f"k.c{number}::{type_}" for number, type_ in enumerate(table.key_types))
    aliases = ", ".join(f"c{number}" for number in range(len(table.keys)))
    select = f"SELECT {column_list(table)} FROM {table.name} WHERE ({names}) IN (SELECT {wanted} FROM unnest("
    lists = ", ".join("%s::text[]" for _ in table.keys)
    query = f"{_literal(select)}{lists}{_literal(f') AS k({aliases}))')}"
    return query.encode(), [list(each) for each in zip(*keys, strict=True)]


def _literal(text: str) -> str:
    """Return a text of a statement with parameters, in which `%` begins one."""
    return text.replace("%", "%%")


def _moved(file: StagedFile, folder: Path) -> StagedFile:
    """Put a file beside those of the range, under a name that none of them has."""
    day, name = file.day.isoformat(), f"again-{file.name}"
    (folder / "again" / day / file.name).rename(folder / day / name)
    return replace(file, name=name)


def _text(value: Any) -> str:
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)

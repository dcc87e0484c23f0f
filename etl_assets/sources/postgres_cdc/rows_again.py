"""Rows of a table that are read again, because neither its copy nor the log has all of their values.

A row whose key changes while the table is copied takes long values from the row of the key before, which may
not have been copied at that time, or never is. So it is read as it is now, at a newer place in the log. A row
that is gone by then, or has another key again, follows in the log.

Belongs here: which rows, and reading them. Does not belong here: the copy (`table_copy.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from etl_assets.contracts.arrow_calls import call
from etl_assets.delta.write.completed_changes import FORMER_KEY
from etl_assets.pipelines.postgres_cdc_spec import LSN_FIELD, UNAVAILABLE_FIELD
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.table_copy import TableCopy, column_list, copied_columns
from etl_assets.sources.ranges import StagedFile
from etl_assets.sources.sql.postgres_text import quoted

Key = tuple[str, ...]
"""The values of a key, as texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsAgain:
    """Rows that were read again.

    Attributes:
        files: Staged files with them.
        place: Their place in the log.
        rows: How many there are.
    """

    files: Sequence[StagedFile]
    place: int
    rows: int


def moved_rows(paths: Iterable[Path], keys: Sequence[str], *, until_lsn: int | None) -> list[Key]:
    """Return the keys of staged changes that changed a key and lack values.

    Args:
        paths: The staged files.
        keys: The columns of the key.
        until_lsn: Changes after this place are left out; None: none is.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found: dict[Key, None] = {}
    mark = pc.MatchSubstringOptions(f'"{FORMER_KEY}":')
    for path in paths:
        with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
            if UNAVAILABLE_FIELD not in stream.schema.names:
                continue
            for batch in stream:
                is_moved = pc.call_function("match_substring", [batch.column(UNAVAILABLE_FIELD)], mark)
                if until_lsn is not None:
                    is_moved = call("and", is_moved, call("less_equal", batch.column(LSN_FIELD), until_lsn))
                moved = batch.filter(is_moved)
                columns = [map(_text, moved.column(name).to_pylist()) for name in keys]
                found |= dict.fromkeys(zip(*columns, strict=True))
    return list(found)


def read_again(
    server: LogServer, table: SourceTable, keys: Sequence[Key], folder: Path, day: dt.date
) -> RowsAgain:
    """Read the rows of some keys as they are now, into staged files.

    Args:
        server: The server. Another session of it is used, because its own may hold the snapshot of a copy.
        table: The table.
        keys: The keys.
        folder: Folder of the range.
        day: The day of the files.
    """
    other = replace(server)
    copy, rows = TableCopy(server=other), 0
    try:
        with other.asked():
            place = copy.place()
            writer = StagedChangesWriter(
                other.session,
                folder / "again",
                day=day,
                place=f"again/{lsn_text(place.lsn)}",
                keys=table.keys,
            )
            writer.begin(table.relation)
            query, values = _query(table, keys)
            for columns in copied_columns(other.session, query, len(table.relation.columns), values):
                writer.rows(columns, replace(place, sequence=rows))
                rows += len(columns[0])
            files = [_moved(each, folder) for each in writer.close()]
            copy.release()
    finally:
        other.close()
    return RowsAgain(files=files, place=place.lsn, rows=rows)


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

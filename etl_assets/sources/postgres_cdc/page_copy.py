"""The rows on some pages of a table, read by several sessions under one snapshot.

Each session reads a part of the pages by COPY into Arrow, and writes files of its own. Nothing is sorted, and
no session waits for another.

Belongs here: sessions and files. Does not belong here: which pages are read (`heap_pages.py`), and the
snapshot (`table_copy.py`).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from etl_assets.sources.postgres_cdc.changed_rows import ChangePlace
from etl_assets.sources.postgres_cdc.heap_pages import PageRange, divided, within
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.rows_by_copy import write_rows
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.table_copy import column_list
from etl_assets.sources.ranges import StagedFile

if TYPE_CHECKING:
    import psycopg

_FEWEST_PAGES = 256
"""Pages for which another session is worth its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagesRead:
    """What was read of some pages.

    Attributes:
        files: The files with the rows.
        rows: How many rows.
        numbers: How many numbers of records they have taken.
    """

    files: tuple[StagedFile, ...]
    rows: int
    numbers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCopy:
    """Reads pages of a table.

    Attributes:
        server: The server, whose session holds the snapshot.
        table: The table.
        sessions: How many sessions read at the same time, that one included.
        rows_per_page: The most rows that a page can have; so the numbers of rows need no counting.
        quarantined: Why the rows are not taken; None: they are.
    """

    server: LogServer
    table: SourceTable
    sessions: int
    rows_per_page: int
    quarantined: str | None = None

    def write(
        self, ranges: Sequence[PageRange], folder: Path, *, day: dt.date, place: ChangePlace, name: str
    ) -> PagesRead:
        """Write the rows of some pages.

        Args:
            ranges: The pages.
            folder: Folder of the batch.
            day: The day that the rows belong to.
            place: The place of the first row in the log.
            name: What no other batch is called.
        """
        pages = sum(map(len, ranges))
        parts = divided(ranges, min(self.sessions, -(-pages // _FEWEST_PAGES)))
        if not parts:
            return PagesRead(files=(), rows=0, numbers=0)
        snapshot = self._exported() if len(parts) > 1 else ""
        sizes = [sum(map(len, part)) * self.rows_per_page for part in parts]
        firsts = [place.numbered(each) for each in accumulate(sizes[:-1], initial=place.sequence)]

        def read(number: int) -> tuple[tuple[StagedFile, ...], int]:
            if number == 0:
                return self._read(self.server.session, parts[0], folder, day, firsts[0], name, 0)
            with closing(replace(self.server)) as server, server.asked():
                session = server.session
                session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                session.execute(f"SET TRANSACTION SNAPSHOT '{snapshot}'".encode())
                return self._read(session, parts[number], folder, day, firsts[number], name, number)

        with ThreadPoolExecutor(len(parts), "copy") as pool:
            done = list(pool.map(read, range(len(parts))))
        return PagesRead(
            files=tuple(file for files, _ in done for file in files),
            rows=sum(rows for _, rows in done),
            numbers=sum(sizes),
        )

    def _exported(self) -> str:
        row = self.server.session.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None  # a function has one row
        return row[0]

    def _read(
        self,
        session: psycopg.Connection,
        ranges: Sequence[PageRange],
        folder: Path,
        day: dt.date,
        place: ChangePlace,
        name: str,
        number: int,
    ) -> tuple[tuple[StagedFile, ...], int]:
        """Write the rows of one part, and return its files and how many rows it has."""
        part = folder / f"part-{number}"
        writer = StagedChangesWriter(session, part, day=day, place=f"{name}/{number}", keys=self.table.keys)
        writer.begin(self.table.relation, quarantined=self.quarantined)
        rows = 0
        columns = column_list(self.table)
        for each in ranges:
            query = f"SELECT {columns} FROM ONLY {each.file} WHERE {within(each)}"
            rows += write_rows(session, query.encode(), writer, place.numbered(place.sequence + rows)).number
        # The files of a batch are in one folder.
        target = folder / day.isoformat()
        target.mkdir(parents=True, exist_ok=True)
        files = []
        for file in writer.close():
            moved = f"copy-{number:03d}-{file.name}"
            (part / day.isoformat() / file.name).rename(target / moved)
            files.append(replace(file, name=moved))
        rmtree(part)
        return tuple(files), rows

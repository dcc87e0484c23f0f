"""One batch of a captured table's copy: the next pages of a table, or the next rows by its keys.

Pages are read by several sessions under one snapshot. A batch that another process goes on with has a newer
snapshot: each row has the place of its own one in the log.

Belongs here: which rows are next, and the position after them. Does not belong here: reading them
(`postgres_cdc/page_copy.py`, `table_copy.py`), and when a table is copied (`captured_table.py`).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from pathlib import Path

from etl_assets.sources.captures.followed_columns import FollowedColumns
from etl_assets.sources.captures.table_declaration import stored_types
from etl_assets.sources.postgres_cdc.heap_pages import (
    HeapFiles,
    PagePosition,
    next_pages,
    read_heap_files,
    sampled_rows_per_page,
)
from etl_assets.sources.postgres_cdc.log_position import LogPosition
from etl_assets.sources.postgres_cdc.log_server import LogServer
from etl_assets.sources.postgres_cdc.lsn import lsn_text
from etl_assets.sources.postgres_cdc.page_copy import PageCopy
from etl_assets.sources.postgres_cdc.source_table import SourceTable
from etl_assets.sources.postgres_cdc.staged_changes import StagedChangesWriter
from etl_assets.sources.postgres_cdc.table_copy import TableCopy, files_were_replaced
from etl_assets.sources.postgres_cdc.type_catalog import read_types
from etl_assets.sources.ranges import ReadRange, StagedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedRows:
    """Reads batches of one table's copy.

    Attributes:
        server: The server, whose session holds the snapshot.
        copy: The snapshot, and rows by keys.
        sessions: How many sessions read a batch at the same time.
        followed: Decides about columns that have changed since the last batch.
    """

    server: LogServer
    copy: TableCopy
    sessions: int
    followed: FollowedColumns

    def write(
        self, table: SourceTable, begin: LogPosition, wanted: ReadRange, folder: Path
    ) -> tuple[LogPosition, list[StagedFile]]:
        """Write the next rows into staged files, and return the position after them.

        Raises:
            SourceUnavailable: the table's files were replaced meanwhile. Nothing was read.
            SourceSchemaChanged: its columns are others than before, and not followed. Nothing was read.
        """
        day = dt.date.fromisoformat(wanted.details["day"])
        heap = self._heap(table, begin)
        columns, session = table.relation.columns, self.server.session
        stored = stored_types(columns, read_types(session, [each.type_oid for each in columns]))
        why = self.followed.quarantined(begin.columns, columns, stored, 0)
        # 1. Place the rows directly before the first commit that their snapshot does not have.
        place = self.copy.place(table)
        number = begin.rows if place.lsn == begin.snapshot else 0
        name = f"copy/{lsn_text(place.lsn)}/{number}"
        writer = StagedChangesWriter(
            session,
            folder,
            day=day,
            place=name,
            keys=table.keys,
        )
        writer.begin(table.relation, quarantined=why)
        if begin.empties:
            writer.copy_begins(place.numbered(number))
            number += 1
        limit = self.copy.limit(table, wanted.details["max_records"], wanted.details["max_bytes"])
        after = replace(begin, snapshot=place.lsn, empties=False)
        if why is None:
            after = replace(after, columns=columns, columns_lsn=place.lsn)
        # 2. Write the next rows, and remember where they end.
        if heap is None:
            rows, key = self.copy.write(writer, table, begin.after, limit, place.numbered(number))
            files = list(writer.close())
            after = replace(after, after=key, rows=number + rows, copied=begin.copied + rows)
            return self._completed(after) if rows < limit else after, files
        files = list(writer.close())
        self._expect_same(heap, table)
        at = _resumed(begin.pages, heap)
        ranges, _ = next_pages(at, heap, 1)
        most = max(1, int(limit / sampled_rows_per_page(session, ranges)))
        ranges, pages = next_pages(at, heap, most)
        done = PageCopy(
            server=self.server,
            table=table,
            sessions=self.sessions,
            rows_per_page=heap.rows_per_page,
            quarantined=why,
        ).write(ranges, folder, day=day, place=place.numbered(number), name=name)
        copied = done.rows + (begin.copied if at == begin.pages else 0)
        after = replace(after, pages=pages, rows=number + done.numbers, copied=copied)
        return self._completed(after) if pages is None else after, [*files, *done.files]

    def _heap(self, table: SourceTable, begin: LogPosition) -> HeapFiles | None:
        """Return the table's files if it is copied by pages; a copy by keys goes on by keys.

        A row that moves to another page while the copy is interrupted comes by the log, with all its values.
        """
        if begin.after is not None or not table.sends_whole_rows:
            return None
        return read_heap_files(self.server.session, table.oid)

    def _expect_same(self, heap: HeapFiles, table: SourceTable) -> None:
        """Expect that the files are those from before the snapshot, which does not see rows of newer ones."""
        found = read_heap_files(self.server.session, table.oid)
        if found is None or found.identity != heap.identity:
            self.copy.release()
            raise files_were_replaced(table, self.server.name)

    def _completed(self, after: LogPosition) -> LogPosition:
        self.copy.release()
        return LogPosition(
            system=after.system,
            lsn=after.lsn,
            again_until_lsn=after.snapshot,
            ahead_until_lsn=max(after.snapshot, after.ahead_until_lsn),
            again=after.again,
            copy_number=after.copy_number,
            copied=after.copied,
            columns=after.columns,
            columns_lsn=after.columns_lsn,
        )


def _resumed(pages: PagePosition | None, heap: HeapFiles) -> PagePosition:
    """Return where a copy by pages goes on: at the beginning, if the rows are in other files by now."""
    if pages is None or pages.identity != heap.identity:
        return PagePosition(identity=heap.identity)
    return pages

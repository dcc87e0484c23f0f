"""The pages of a table's files, and which of them one batch of a copy reads: pure decisions, and one query.

A page keeps its rows until they change, and a change is in the log. So a copy can go on after a page with a
newer snapshot: a row that has moved to a page before it was changed, and comes by the log with all values. It
begins again where that does not hold: the files are others (VACUUM FULL, a new partition).

Belongs here: pages. Does not belong here: reading rows of them (`page_copy.py`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import psycopg

_BY_RANGES_SINCE = 140_000
"""From this version on the server reads a range of pages without reading the others."""
_FEWEST_BYTES = 28
"""A row has at least a pointer and a header on its page."""
_SAMPLED_PAGES = 16
_FILES = """
SELECT format('%%I.%%I', n.nspname, c.relname), c.oid::text || '/' || pg_relation_filenode(c.oid),
    pg_relation_size(c.oid) / current_setting('block_size')::int8, current_setting('block_size')::int,
    coalesce(c.relkind = 'r' AND a.amname = 'heap' AND NOT c.relhassubclass AND NOT c.relrowsecurity, false)
        AND has_table_privilege(c.oid, 'SELECT')
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_am AS a ON a.oid = c.relam
WHERE c.oid IN (SELECT relid FROM pg_partition_tree(%s) WHERE isleaf)
    OR c.oid = %s AND c.relkind <> 'p'
ORDER BY c.oid
"""

_FILE_NUMBERS = """
WITH RECURSIVE of_table (oid) AS (
    SELECT %s::oid
    UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits AS i JOIN of_table AS t ON i.inhparent = t.oid
)
SELECT string_agg(oid::text || '/' || coalesce(pg_relation_filenode(oid), 0), ',' ORDER BY oid) FROM of_table
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapFile:
    """A file of rows: a table, or a partition.

    Attributes:
        name: Its table, quoted and with its schema.
        pages: How many pages it has.
    """

    name: str
    pages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeapFiles:
    """The files of a table.

    Attributes:
        identity: What no other files have: it changes where rows are written into other files.
        files: The files; one for each partition.
        rows_per_page: The most rows that a page can have.
    """

    identity: str
    files: tuple[HeapFile, ...]
    rows_per_page: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePosition:
    """How far a copy by pages is.

    Attributes:
        identity: The files.
        file: Number of the file that is read next.
        page: Its next page.
        end: The page that ends the copy of this file; 0: it was not begun. Rows that come onto pages after
            it are in the log.
    """

    identity: str
    file: int = 0
    page: int = 0
    end: int = 0

    def as_json(self) -> list[Any]:
        """Return the position as JSON."""
        return [self.identity, self.file, self.page, self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRange:
    """Consecutive pages of a file.

    Attributes:
        file: Its table, quoted and with its schema.
        begin: The first page.
        end: The page after the last one.
    """

    file: str
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin


def read_heap_files(session: psycopg.Connection, oid: int) -> HeapFiles | None:
    """Return the files of a table; None if it cannot be read by ranges of pages."""
    if session.info.server_version < _BY_RANGES_SINCE:
        return None
    rows = session.execute(_FILES.encode(), [oid, oid]).fetchall()
    if not rows or not all(can_be_read for *_, can_be_read in rows):
        return None
    names = ",".join(file for _, file, *_ in rows)
    return HeapFiles(
        identity=hashlib.sha256(names.encode()).hexdigest()[:16],
        files=tuple(HeapFile(name=name, pages=pages) for name, _, pages, *_ in rows),
        rows_per_page=rows[0][3] // _FEWEST_BYTES,
    )


def read_file_numbers(session: psycopg.Connection, oid: int) -> str:
    """Return what changes where the rows of a table, or of tables below it, are written into other files."""
    row = session.execute(_FILE_NUMBERS.encode(), [oid]).fetchone()
    assert row is not None  # an aggregate has one row
    return row[0]


def sampled_rows_per_page(session: psycopg.Connection, ranges: Sequence[PageRange]) -> float:
    """Return how many rows the first of some pages have, at least one."""
    if not ranges:
        return 1.0
    first = ranges[0]
    end = min(first.end, first.begin + _SAMPLED_PAGES)
    query = f"SELECT count(*) FROM ONLY {first.file} WHERE {within(replace(first, end=end))}"
    row = session.execute(query.encode()).fetchone()
    assert row is not None  # an aggregate has one row
    return max(1.0, row[0] / (end - first.begin))


def within(pages: PageRange) -> str:
    """Return the condition that a row is on some pages."""
    return f"ctid >= '({pages.begin},0)'::tid AND ctid < '({pages.end},0)'::tid"


def next_pages(
    position: PagePosition, files: HeapFiles, most: int
) -> tuple[tuple[PageRange, ...], PagePosition | None]:
    """Return the next pages, at most some of them, and the position after them; None: the copy is complete.

    Args:
        position: Where they begin.
        files: The files as they are now.
        most: How many pages, at least one.
    """
    found: list[PageRange] = []
    at, left = position, most
    while at.file < len(files.files):
        file = files.files[at.file]
        end = at.end or file.pages
        if at.page >= end:
            at = PagePosition(identity=at.identity, file=at.file + 1)
            continue
        if not left:
            return tuple(found), at
        until = min(end, at.page + left)
        found.append(PageRange(file=file.name, begin=at.page, end=until))
        left -= until - at.page
        at = replace(at, page=until, end=end)
    return tuple(found), None


def divided(ranges: Sequence[PageRange], parts: int) -> list[tuple[PageRange, ...]]:
    """Divide pages into parts of about the same size, at most some; none is empty."""
    total = sum(map(len, ranges))
    share = -(-total // max(1, parts))
    found: list[tuple[PageRange, ...]] = []
    part: list[PageRange] = []
    room = share
    for each in ranges:
        rest = each
        while len(rest):
            cut = min(rest.end, rest.begin + room)
            part.append(replace(rest, end=cut))
            room -= cut - rest.begin
            rest = replace(rest, begin=cut)
            if not room:
                found.append(tuple(part))
                part, room = [], share
    return [*found, tuple(part)] if part else found

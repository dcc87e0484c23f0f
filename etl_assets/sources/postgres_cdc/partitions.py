"""The partitions of a table, and whether rows came or went with them.

A partition that is attached brings its rows, and one that is detached, dropped or truncated by itself takes
them away: PostgreSQL's log of the whole table has none of that. So its partitions are compared with those of
before. One that was created as a partition began without rows, and what it has come to hold is in the log.

Belongs here: asking the catalog, and comparing. Does not belong here: copying a table again (`discovery.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_PARTITIONS = """
SELECT concat_ws('/', c.oid, i.xmin, pg_relation_filenode(c.oid)), EXISTS (
    SELECT FROM pg_catalog.pg_attribute AS s JOIN pg_catalog.pg_attribute AS a USING (attrelid)
    WHERE s.attrelid = c.oid AND s.attnum = -1 AND a.attnum > 0
        AND s.xmin = i.xmin AND a.xmin = s.xmin AND a.cmin = s.cmin
)
FROM pg_catalog.pg_partition_tree(to_regclass(%s)) AS t JOIN pg_catalog.pg_class AS c ON c.oid = t.relid
JOIN pg_catalog.pg_inherits AS i ON i.inhrelid = t.relid
WHERE t.level > 0 ORDER BY c.oid
"""
"""`ATTACH PARTITION` writes the columns of a table again, also in the transaction that has created it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partitions:
    """The partitions of a table, and those of its partitions; none of a table without.

    Attributes:
        marks: What each is known by: it changes where the partition is another one, is attached again, or has
            other files.
        created: Marks of those that were created as partitions, and so without rows.
    """

    marks: tuple[str, ...] = ()
    created: frozenset[str] = frozenset()

    def moved_rows(self, before: Collection[str]) -> bool:
        """Return whether rows may have come or gone with partitions since there were others.

        Args:
            before: Marks of the partitions then.
        """
        came, went = set(self.marks) - set(before), set(before) - set(self.marks)
        return bool(went or came - self.created)


def read_partitions(session: psycopg.Connection, table: str) -> Partitions:
    """Return the partitions of a table, by its quoted name."""
    found = session.execute(_PARTITIONS, [table]).fetchall()
    return Partitions(
        marks=tuple(mark for mark, _ in found),
        created=frozenset(mark for mark, is_created in found if is_created),
    )

"""How a publication comes to have a table, and whether it may have lacked it or some changes meanwhile.

The log has no changes of the time in which the table was not published, or some operations or rows of it were
left out, and nothing in the log says so. So what the catalog has is compared with what it had before. A
publication that was dropped is another one (`LogServer.publication_oid`).

Belongs here: asking the catalog, and comparing. Does not belong here: copying a table again (`discovery.py`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_OPTIONS = "options/"
_MEMBERSHIP = """
WITH publication AS (SELECT oid, xmin, puballtables FROM pg_catalog.pg_publication WHERE pubname = %(name)s)
SELECT concat('options/', oid, '/', xmin) FROM publication
UNION ALL SELECT concat('all/', oid) FROM publication WHERE puballtables
UNION ALL SELECT concat('table/', r.oid)
    FROM pg_catalog.pg_publication_rel AS r JOIN publication AS p ON p.oid = r.prpubid
    WHERE r.prrelid = to_regclass(%(table)s)
{more}
ORDER BY 1
"""
_SCHEMAS = """
UNION ALL SELECT concat('schema/', n.oid)
    FROM pg_catalog.pg_publication_namespace AS n JOIN publication AS p ON p.oid = n.pnpubid
    JOIN pg_catalog.pg_class AS c ON c.relnamespace = n.pnnspid WHERE c.oid = to_regclass(%(table)s)
"""
_SCHEMAS_SINCE = 150_000
"""From this version on a publication can have all tables of a schema."""


def read_membership(session: psycopg.Connection, publication: str, table: str) -> tuple[str, ...]:
    """Return the marks of a table's membership, by its quoted name.

    Each of them changes where the table is dropped from the publication and added again, also by another
    condition on its rows, and where `ALTER PUBLICATION ... SET` changes which operations are published.
    """
    more = _SCHEMAS if session.info.server_version >= _SCHEMAS_SINCE else ""
    asked = {"name": publication, "table": table}
    return tuple(mark for (mark,) in session.execute(_MEMBERSHIP.format(more=more).encode(), asked))


def may_lack_changes(before: Collection[str], now: Collection[str]) -> bool:
    """Return whether the publication may have lacked changes of a table between two readings of its marks.

    A table that is published in several ways was published all the time if one of them stayed.
    """
    stayed = set(before) & set(now)
    are_options_same = any(mark.startswith(_OPTIONS) for mark in stayed)
    return not are_options_same or len(stayed) < 2


def membership_lost(publication: str, table: str) -> str:
    """Return why the log cannot be read on after that."""
    return f"the publication {publication} may have left out changes of {table} for a time"

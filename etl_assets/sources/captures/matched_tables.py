"""The tables of a server that a capture matches, and what identifies their rows.

Belongs here: asking the catalog. Does not belong here: taking tables up (`discovery.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from etl_assets.pipelines.capture_spec import CaptureSpec

if TYPE_CHECKING:
    import psycopg

_TABLES = """
SELECT n.nspname, c.relname, c.oid::int8 FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence = 'p'
    AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
ORDER BY 1, 2
"""
_KEYS = """
SELECT array_agg(a.attname::text ORDER BY array_position(i.indkey::int2[], a.attnum))
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL
    AND i.indnkeyatts = i.indnatts
GROUP BY i.indexrelid, i.indisprimary, i.indisreplident HAVING bool_and(a.attnotnull)
ORDER BY i.indisreplident DESC, i.indisprimary DESC, i.indexrelid LIMIT 1
"""
_MARKED = """
SELECT coalesce(obj_description(oid, 'pg_publication') = %s, false)
FROM pg_catalog.pg_publication WHERE pubname = %s
"""


def find_matched(session: psycopg.Connection, capture: CaptureSpec) -> dict[str, int]:
    """Return the OIDs of the matched tables, by schema and name."""
    found = {f"{schema}.{name}": oid for schema, name, oid in session.execute(_TABLES)}
    return {name: oid for name, oid in found.items() if capture.matches(name)}


def find_keys(session: psycopg.Connection, oid: int) -> tuple[str, ...]:
    """Return the columns that identify a row of a table; none if there are no such columns."""
    row = session.execute(_KEYS, [oid]).fetchone()
    return () if row is None else tuple(row[0])


def keyless(session: psycopg.Connection, tables: Mapping[str, int]) -> frozenset[str]:
    """Return the names of the tables without columns that identify a row."""
    return frozenset(name for name, oid in tables.items() if not find_keys(session, oid))


def publication_mark(capture: CaptureSpec) -> str:
    """Return the comment on a publication that the capture has made."""
    return f"made by the capture {capture.name}"


def is_made_here(session: psycopg.Connection, capture: CaptureSpec) -> bool:
    """Return whether the capture has made its publication, and so adds new tables to it."""
    row = session.execute(_MARKED, [publication_mark(capture), capture.publication]).fetchone()
    return row is not None and row[0]

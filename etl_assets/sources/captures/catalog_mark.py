"""A mark of a server's catalog, which changes with each statement that changes tables or publications.

Each row of the catalog has the number of the transaction that wrote it. One query sums them up, so that a
discovery can tell that nothing was changed without describing each table.

Belongs here: the query. Does not belong here: what a discovery makes of tables (`discovery.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psycopg

_MARK = """
WITH tables AS MATERIALIZED (
    SELECT oid, xmin FROM pg_catalog.pg_class
    WHERE relkind IN ('r', 'p') AND relpersistence <> 't' AND oid >= 16384
)
SELECT count(*)::text || '/'
    || coalesce(sum(hashtextextended(kind || ':' || id || ':' || written, 0)::numeric), 0)::text
FROM (
    SELECT 'class', oid::text, xmin::text FROM tables
    UNION ALL SELECT 'attribute', attrelid || '.' || attnum, a.xmin::text
        FROM pg_catalog.pg_attribute AS a JOIN tables AS t ON t.oid = a.attrelid
    UNION ALL SELECT 'index', indexrelid::text, i.xmin::text
        FROM pg_catalog.pg_index AS i JOIN tables AS t ON t.oid = i.indrelid
    UNION ALL SELECT 'inherits', inhrelid || '.' || inhparent, xmin::text FROM pg_catalog.pg_inherits
    UNION ALL SELECT 'type', oid::text, xmin::text FROM pg_catalog.pg_type WHERE typtype IN ('d', 'e', 'r')
    UNION ALL SELECT 'namespace', oid::text, xmin::text FROM pg_catalog.pg_namespace
        WHERE left(nspname, 3) <> 'pg_'
    UNION ALL SELECT 'publication', oid::text, xmin::text FROM pg_catalog.pg_publication
    UNION ALL SELECT 'published', oid::text, xmin::text FROM pg_catalog.pg_publication_rel
    {more}
) AS rows (kind, id, written)
"""
_SCHEMAS = "UNION ALL SELECT 'schema', oid::text, xmin::text FROM pg_catalog.pg_publication_namespace"
_SCHEMAS_SINCE = 150_000
"""From this version on a publication can have all tables of a schema."""


def read_catalog_mark(session: psycopg.Connection) -> str:
    """Return the mark."""
    more = _SCHEMAS if session.info.server_version >= _SCHEMAS_SINCE else ""
    row = session.execute(_MARK.format(more=more).encode()).fetchone()
    assert row is not None  # an aggregate has one row
    return row[0]

"""Asking a server for its types.

Belongs here: the one query. Does not belong here: what the types become (`types.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from etl_assets.sources.postgres_cdc.types import BUILT_IN_TYPES, PostgresType

if TYPE_CHECKING:
    import psycopg

_TYPES = """
SELECT t.oid::int8, t.typname, coalesce(e.oid, 0)::int8, t.typdelim::text, t.typbasetype::int8, t.typtypmod
FROM pg_catalog.pg_type AS t LEFT JOIN pg_catalog.pg_type AS e ON e.typarray = t.oid
WHERE t.oid = ANY(%s::int8[]::oid[])
"""


def read_types(session: psycopg.Connection, oids: Iterable[int]) -> Mapping[int, PostgresType]:
    """Return the types of OIDs, and those that they are made of. Those that the server lacks are left out."""
    found = dict(BUILT_IN_TYPES)
    wanted = set(oids) - set(found)
    while wanted:
        asked = wanted
        wanted = set()
        for oid, name, element, delimiter, base, modifier in session.execute(_TYPES, [sorted(asked)]):
            found[oid] = PostgresType(
                oid=oid,
                name=name,
                element=element,
                delimiter=delimiter,
                base=base,
                base_modifier=modifier,
            )
            wanted |= {element, base} - {0} - set(found)
        wanted -= asked
    return found

"""The columns that tables had, by places in the log.

Belongs here: which relation message describes a change. Does not belong here: what a table of the platform
makes of a changed schema.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from etl_assets.sources.postgres_cdc.messages import RelationMessage


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """The columns of a table from a place in the log on, until the next version."""

    since_lsn: int
    relation: RelationMessage


class RelationCache:
    """Relation messages of one stream, as versions of each table.

    The server sends a table's relation before its first change on a connection, and again when the table has
    changed. So what a restarted stream says from an earlier place replaces what was heard after that place.
    """

    def __init__(self) -> None:
        self._versions: dict[int, list[SchemaVersion]] = {}

    def remember(self, relation: RelationMessage, lsn: int) -> bool:
        """Take a relation message that was sent at a place in the log.

        Returns:
            Whether the table has other columns, another identity or another name than before. True for a
            table that was not known.
        """
        versions = self._versions.setdefault(relation.oid, [])
        while versions and versions[-1].since_lsn > lsn:
            versions.pop()
        if versions and _same(versions[-1].relation, relation):
            return False
        versions.append(SchemaVersion(lsn, relation))
        return True

    def current(self, oid: int) -> RelationMessage | None:
        """Return a table's newest relation, None if none was sent."""
        versions = self._versions.get(oid)
        return versions[-1].relation if versions else None

    def at(self, oid: int, lsn: int) -> RelationMessage | None:
        """Return the relation that held at a place in the log, None if none is known."""
        versions = self._versions.get(oid, [])
        number = bisect_right(versions, lsn, key=lambda each: each.since_lsn)
        return versions[number - 1].relation if number else None

    def versions(self, oid: int) -> tuple[SchemaVersion, ...]:
        """Return all versions of a table that are known, oldest first."""
        return tuple(self._versions.get(oid, ()))


def _same(one: RelationMessage, other: RelationMessage) -> bool:
    """Return whether two messages say the same, in whatever transaction they were sent."""
    return (one.schema, one.name, one.replica_identity, one.columns) == (
        other.schema,
        other.name,
        other.replica_identity,
        other.columns,
    )

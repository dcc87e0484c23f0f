"""Delta's table features, and which of the platform's own ways to write support each of them.

Every way to write a table asks here first. Where Delta's writer can do the same (an append, an upsert, a
compaction), it gets the table. The other ways refuse the table: the error names the features and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from etl_assets.errors import FeatureUnsupported

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot


class Access(StrEnum):
    """An access to a table without Delta's writer; the value completes "cannot be ..."."""

    APPEND = "appended to"
    COMPACT = "compacted"
    REPLACE = "rewritten"
    ROWS = "written without Spark"
    UNDO = "restored or reprocessed"
    RESTORE = "restored"
    RECORD = "given the key of its asset"
    VACUUM = "vacuumed"
    INDEX = "indexed"


FEATURES_OF_VERSION: Mapping[int, tuple[str, ...]] = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
"""Features that each version of Delta's writer protocol added, before features had names of their own."""
NAMED_FEATURES = 7
"""The writer version that has names for features."""
_MAPS_COLUMNS = 2
_NEWEST_READER = 3

_KEPT = frozenset({"inCommitTimestamp", "vacuumProtocolCheck"})
"""Features that every write here supports."""
_IN_ENTRIES = frozenset({"domainMetadata", "checkpointProtection", "allowColumnDefaults"})
"""Features that an entry of removed and added files does not affect, if no checkpoint here follows it."""
_OF_CONTENT = frozenset(
    {
        "appendOnly",
        "invariants",
        "checkConstraints",
        "changeDataFeed",
        "generatedColumns",
        "identityColumns",
        "rowTracking",
        "clustering",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "variantType",
        "variantType-preview",
    }
)
"""Features of rows and of the statements about files.

They do not change the names of data files or of the columns in them.
"""
_KNOWN: Mapping[Access, frozenset[str]] = {
    Access.APPEND: _KEPT | {"appendOnly"},
    Access.COMPACT: _KEPT | {"appendOnly"},
    Access.REPLACE: _KEPT,
    Access.ROWS: _KEPT,
    Access.UNDO: _KEPT | _IN_ENTRIES,
    # A table without contract, which the platform itself gives these features.
    Access.RESTORE: _KEPT | _IN_ENTRIES | {"timestampNtz", "typeWidening", "typeWidening-preview"},
    # An entry of properties only.
    Access.RECORD: _KEPT | _IN_ENTRIES | _OF_CONTENT | {"columnMapping", "deletionVectors"},
    # The files of a change feed are in a hidden folder, which is left alone.
    Access.VACUUM: _KEPT | _IN_ENTRIES | _OF_CONTENT | {"columnMapping"},
    # The index may name a day too many, so rows that a deletion vector hides do no harm.
    Access.INDEX: _KEPT | _IN_ENTRIES | _OF_CONTENT | {"deletionVectors", "v2Checkpoint"},
}
_REMEDIES = {
    "appendOnly": "ALTER TABLE … SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
    "invariants": "ALTER TABLE … DROP FEATURE invariants",
    "checkConstraints": "ALTER TABLE … DROP CONSTRAINT, for each",
    "changeDataFeed": "ALTER TABLE … SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'false')",
    "deletionVectors": "ALTER TABLE … SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false'), REORG"
    " TABLE … APPLY (PURGE) and ALTER TABLE … DROP FEATURE deletionVectors",
    "rowTracking": "ALTER TABLE … SET TBLPROPERTIES ('delta.enableRowTracking' = 'false') and ALTER TABLE …"
    " DROP FEATURE rowTracking",
    "clustering": "ALTER TABLE … CLUSTER BY NONE and ALTER TABLE … DROP FEATURE clustering",
}


def allows(snapshot: Snapshot, access: Access) -> bool:
    """Return whether a write of the platform's own supports every feature that the table uses."""
    return not _in_the_way(snapshot, access)


def expect(table: str, snapshot: Snapshot, access: Access) -> None:
    """Refuse an access that the table's features do not allow.

    Raises:
        FeatureUnsupported: the table uses a feature that this way to write does not know; nothing was
            written.
    """
    features = _in_the_way(snapshot, access)
    if not features:
        return
    fixes = "; ".join(_REMEDIES.get(each, f"ALTER TABLE … DROP FEATURE {each}") for each in features)
    or_spark = ", or use Delta's own RESTORE" if access in (Access.UNDO, Access.RESTORE) else ""
    or_spark = ", or use Delta's own VACUUM" if access is Access.VACUUM else or_spark
    raise FeatureUnsupported(
        f"the table {table} at version {snapshot.version} cannot be {access}: it uses {', '.join(features)},"
        " which a program other than the platform gave it",
        fix=f"take it out with Spark: {fixes}{or_spark}",
        table=table,
        version=snapshot.version,
        features=features,
        access=str(access),
    )


def _in_the_way(snapshot: Snapshot, access: Access) -> tuple[str, ...]:
    """Return the features that a version uses and the write does not know.

    A feature that is supported and switched off is not in use. One without a switch is in use if it is
    supported.
    """
    unknown = sorted(_supported(snapshot) - _KNOWN[access])
    return tuple(name for name in unknown if name not in _SWITCHES or _SWITCHES[name](snapshot))


def _supported(snapshot: Snapshot) -> set[str]:
    reader, writer = snapshot.protocol_versions
    supported = set(snapshot.named_features)
    if writer < NAMED_FEATURES:
        supported |= {
            name for version, names in FEATURES_OF_VERSION.items() if version <= writer for name in names
        }
    if reader == _MAPS_COLUMNS:
        supported.add("columnMapping")
    if writer > NAMED_FEATURES or reader > _NEWEST_READER:
        supported.add(f"protocol version {reader}/{writer}")
    return supported


def _property(name: str, *off: str | None) -> Callable[[Snapshot], bool]:
    return lambda snapshot: snapshot.properties.get(name) not in off


def _of_a_column(key: str) -> Callable[[Snapshot], bool]:
    def has(field: Mapping[str, Any]) -> bool:
        return any(name.startswith(key) for name in field.get("metadata", {}))

    return lambda snapshot: any(map(has, snapshot.fields()))


_SWITCHES: Mapping[str, Callable[[Snapshot], bool]] = {
    "appendOnly": _property("delta.appendOnly", None, "false"),
    "changeDataFeed": _property("delta.enableChangeDataFeed", None, "false"),
    "columnMapping": _property("delta.columnMapping.mode", None, "none"),
    "checkConstraints": lambda snapshot: any(
        name.startswith("delta.constraints.") for name in snapshot.properties
    ),
    "invariants": _of_a_column("delta.invariants"),
    "generatedColumns": _of_a_column("delta.generationExpression"),
    "identityColumns": _of_a_column("delta.identity."),
}

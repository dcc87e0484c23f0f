"""Delta features that each reader supports. A table to which a Spark user added another feature is refused.

Tables as the platform creates them have none of these features: every reader can read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from etl_assets.errors import FeatureUnsupported

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from etl_assets.query.opened_table import OpenedTable

_MAPS_COLUMNS = 2
"""Delta's reader protocol version that has column mapping; the next version lists its features."""
_NEWEST = 3


class Reader(StrEnum):
    """A reader of tables without Spark; the value completes "cannot be read by ..."."""

    SQL = "SQL"
    POLARS = "Polars"
    PYARROW = "a pyarrow dataset"


_KNOWN: Mapping[Reader, frozenset[str]] = {
    Reader.SQL: frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}),
    Reader.POLARS: frozenset({"deletionVectors", "timestampNtz"}),
    # deltalake does not refuse a table with column mapping; the dataset then has null in all such columns.
    Reader.PYARROW: frozenset({"timestampNtz"}),
}
"""As `etl_assets_tests/spark/test_open_table.py` finds them for deltalake 1.6 and Polars 2.1."""


def expect_readable(table: OpenedTable, reader: Reader) -> None:
    """Refuse to read a table if the reader would return wrong rows or none.

    Raises:
        FeatureUnsupported: the table uses features that the reader does not support.
    """
    features = _features(table.delta())
    unknown = tuple(sorted(features - _KNOWN[reader]))
    if not unknown:
        return
    others = [each for each, known in _KNOWN.items() if known.issuperset(features)]
    raise FeatureUnsupported(
        f"the table {table.name} at version {table.version} cannot be read by {reader}: it uses"
        f" {', '.join(unknown)}, which a program other than the platform gave it",
        fix=f"read it by {' or '.join([*others, 'Spark'])}, or take it out with Spark: "
        + "; ".join(f"ALTER TABLE … DROP FEATURE {each}" for each in unknown),
        table=table.name,
        version=table.version,
        features=unknown,
    )


def _features(table: DeltaTable) -> set[str]:
    """Return the features that a version demands of readers. Column mapping that is off demands nothing."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version == _MAPS_COLUMNS:
        features.add("columnMapping")
    if protocol.min_reader_version > _NEWEST:
        features.add(f"protocol version {protocol.min_reader_version}")
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") == "none":
        features.discard("columnMapping")
    return features

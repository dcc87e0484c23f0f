"""Which features of Delta each reader knows. A table that a Spark user gave another one is refused by its name.

Tables as the platform makes them have none of these features: every reader reads them.
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
"""The version of Delta's protocol for readers that has column mapping; the next one names its features."""
_NEWEST = 3


class Reader(StrEnum):
    """What reads a table without Spark; the value completes "cannot be read by ..."."""

    SQL = "SQL"
    POLARS = "Polars"
    PYARROW = "a pyarrow dataset"


_KNOWN: Mapping[Reader, frozenset[str]] = {
    Reader.SQL: frozenset({"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint"}),
    Reader.POLARS: frozenset({"deletionVectors", "timestampNtz"}),
    # It is not refused by deltalake for its columns having other names in the files, and has null in all of them.
    Reader.PYARROW: frozenset({"timestampNtz"}),
}
"""As `etl_assets_tests/spark/test_open_table.py` finds them for deltalake 1.6 and Polars 2.1."""


def expect_readable(table: OpenedTable, reader: Reader) -> None:
    """Refuse to read a table of which a reader would get wrong rows or none.

    Raises:
        FeatureUnsupported: the table has features that the reader does not know.
    """
    features = _features(table.delta())
    unknown = tuple(sorted(features - _KNOWN[reader]))
    if not unknown:
        return
    others = [each for each, known in _KNOWN.items() if known.issuperset(features)]
    raise FeatureUnsupported(
        f"the table {table.name} at version {table.version} cannot be read by {reader}: it uses {', '.join(unknown)}, which a"
        " program other than the platform gave it",
        fix=f"read it by {' or '.join([*others, 'Spark'])}, or take it out with Spark: "
        + "; ".join(f"ALTER TABLE … DROP FEATURE {each}" for each in unknown),
        table=table.name,
        version=table.version,
        features=unknown,
    )


def _features(table: DeltaTable) -> set[str]:
    """Features that a version asks its readers for. Column mapping that is switched off asks for nothing."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version == _MAPS_COLUMNS:
        features.add("columnMapping")
    if protocol.min_reader_version > _NEWEST:
        features.add(f"protocol version {protocol.min_reader_version}")
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") == "none":
        features.discard("columnMapping")
    return features

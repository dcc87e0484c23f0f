"""What a table of a user's asset says of itself: its asset, and how rows are written to it.

Kept as table properties, which every writer of Delta leaves as they are. Belongs here: the properties, and
the commit that sets them. Does not belong here: which tables there are (`placement/undeclared_tables.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from etl_assets.delta.log.entries import read_metadata
from etl_assets.delta.log.gate import Access, allows
from etl_assets.delta.log.lasting_cursors import lasting_cursors
from etl_assets.delta.log.new_entry import NewEntry
from etl_assets.delta.write.write_version import (
    DEFAULT_LOCK_WAIT_SECONDS,
    Place,
    commit_metadata,
    moved_on,
    put_entry,
    write_version,
)
from etl_assets.delta.write.writing import writing
from etl_assets.errors import ContractError

if TYPE_CHECKING:
    from etl_assets.delta.table import Snapshot, Table

ASSET_KEY = "etl_assets.asset_key"
WRITE_SPEC = "etl_assets.write_spec"
APPEND_IDS = "append/"
"""What the transaction ids of a run's appends begin with."""
_OF_PIPELINES = frozenset({"batch_id", "_batch_id"})
"""Columns of which a table has statistics if a pipeline made it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetRecord:
    """The asset of a table.

    Attributes:
        asset: The asset's key, its parts with `/` between them.
        write_spec: The asset's metadata that says how its rows are written (`WriteSpec.to_metadata`).
    """

    asset: str
    write_spec: Mapping[str, Any] = field(default_factory=dict)

    def as_properties(self) -> dict[str, str]:
        """Return the record as table properties."""
        spec = json.dumps(dict(self.write_spec), sort_keys=True, separators=(",", ":"))
        return {ASSET_KEY: self.asset, WRITE_SPEC: spec}


def record_in(snapshot: Snapshot) -> AssetRecord | None:
    """Return what a table says of its asset; None if it says nothing, as before its first write by this
    release.
    """
    asset = snapshot.properties.get(ASSET_KEY)
    if asset is None:
        return None
    try:
        spec = json.loads(snapshot.properties.get(WRITE_SPEC, "{}"))
    except ValueError:
        spec = {}
    return AssetRecord(asset=asset, write_spec=spec if isinstance(spec, dict) else {})


def is_of_a_pipeline(snapshot: Snapshot) -> bool:
    """Return whether a table without contract was made by a pipeline, which is not declared any more or is
    broken.
    """
    listed = snapshot.statistics_columns() or ()
    return record_in(snapshot) is None and not _OF_PIPELINES.isdisjoint(listed)


def expect_same_asset(table: Table, asset: str) -> None:
    """Refuse to write a table that is another asset's: `a/b` and `a.b` have one table.

    Raises:
        ContractError: the table says that it is another asset's.
    """
    if (snapshot := table.snapshot()) is None:
        return
    if is_of_a_pipeline(snapshot):
        raise ContractError(
            f"the asset {asset} cannot write the table {table.name}: a pipeline made it",
            fix="give the asset another key",
            table=table.name,
            asset=asset,
        )
    known = record_in(snapshot)
    if known is not None and known.asset != asset:
        raise ContractError(
            f"the table {table.name} is that of the asset {known.asset}, and the asset {asset} would write"
            " it, too",
            fix=f"give one of them another key; if {known.asset} was renamed to {asset}, run once with Spark:"
            f" ALTER TABLE delta.`<folder>` SET TBLPROPERTIES ('{ASSET_KEY}' = '{asset}')",
            table=table.name,
            asset=asset,
        )


def put_record(
    table: Table,
    record: AssetRecord,
    *,
    base_version: int,
    wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS,
) -> int:
    """Commit what a table says of its asset, unless it says so already. No row changes, and no Spark is
    needed.

    Returns:
        The version to write on: the base, or the one after it.

    Raises:
        CommitConflict: the table has moved past `base_version`; nothing was written.
    """
    snapshot = table.snapshot(base_version)
    assert snapshot is not None  # the caller has created the table
    if record.as_properties().items() <= snapshot.properties.items() or not allows(snapshot, Access.RECORD):
        return base_version
    known = read_metadata(table.path, base_version)
    if known is None:
        return base_version  # A log that only Spark can read. The table is found all the same.
    metadata = {**known, "configuration": {**known.get("configuration", {}), **record.as_properties()}}
    with writing(table, wait_seconds=wait_seconds, driver_pid=None):
        if (current := table.version()) != base_version:
            raise moved_on(table, current=current, base=base_version)
        put = partial(_put, table, snapshot, metadata)
        return write_version(None, table, base_version + 1, put).version


def _put(table: Table, snapshot: Snapshot, metadata: Mapping[str, Any], place: Place, writer: str) -> None:
    entry = NewEntry(
        operation="SET TBLPROPERTIES",
        base_version=snapshot.version,
        metrics={},
        transactions=lasting_cursors(table, snapshot.version, {}),
        user_metadata=commit_metadata(place, writer, {}, last=True),
        changes_rows=False,
        metadata=metadata,
    )
    put_entry(table, place, snapshot, entry)

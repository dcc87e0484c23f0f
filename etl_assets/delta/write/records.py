"""Commits of a few rows without Spark: the platform's internal tables are written in milliseconds.

A commit removes files and adds one for each Delta partition, in one computed log entry. It goes through
`commit.write_version` like every other commit: it is verified and durable, and with several domains
acknowledged under the leader's epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.arrow_types import arrow_schema
from etl_assets.delta.log.checkpoint import checkpoint_in_place
from etl_assets.delta.log.gate import Access, expect
from etl_assets.delta.log.new_entry import FirstEntry, NewEntry
from etl_assets.delta.log.partition_values import as_text
from etl_assets.delta.read.data_files import whole_file
from etl_assets.delta.read.times import with_utc_times
from etl_assets.delta.replicated.replication import TABLE_PROPERTIES
from etl_assets.delta.snapshot_cache import snapshot_in
from etl_assets.delta.write.content import KeptRows, StoredFile
from etl_assets.delta.write.write_version import Place, commit_metadata, write_version
from etl_assets.errors import Fenced

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.table import Table

CHECKPOINT_EVERY = 20
"""Versions after which a table with one domain gets a checkpoint.

Replicas of a mirrored table get theirs from `replicas/reconcile.py`.
"""
_LOG_RETENTION = {"delta.logRetentionDuration": "interval 7 days"}
"""For a table with one domain: it may have thousands of commits a day, and no operator restores it."""
Rows = Sequence[Mapping[str, Any]]
_committed: dict[Path, tuple[int, bool]] = {}
"""By folder, the version this process committed last, and whether entries there carry their commit's time."""


def commit_rows(
    table: Table,
    rows: Rows,
    *,
    base_version: int,
    removed: tuple[StoredFile, ...] = (),
    epoch: str | None = None,
    facts: Mapping[str, Any] = MappingProxyType({}),
    long: tuple[str, ...] = (),
) -> tuple[StoredFile, ...]:
    """Commit rows, and the removal of files, as the version after the base. Call it under the table's lock.

    Args:
        table: A table with a contract. If the base is -1, the table is created and the rows become version 1.
        rows: Rows with every column of the contract.
        base_version: The table's version that this was planned on.
        removed: Files to remove.
        epoch: The fence epoch that this was planned under; None for any.
        facts: Metrics to keep with the commit.
        long: Columns of long texts.

    Returns:
        The files that hold the rows: one for each Delta partition.

    Raises:
        CommitConflict: the table has moved past its base. Plan again.
        FeatureUnsupported: the table uses a feature of Delta that this does not know; nothing was written.
        Fenced, QuorumUnavailable: it could not be acknowledged.
    """
    if base_version < 0:
        write_version(None, table, 0, partial(_create, table))
        base_version = 0
    added: list[StoredFile] = []
    written: list[tuple[Path, bool]] = []

    def execute(place: Place, writer: str) -> None:
        if epoch is not None and place.epoch != epoch:
            raise Fenced(
                f"the table {table.name} is led under epoch {place.epoch} now, not {epoch}",
                fix="nothing: plan again",
                table=table.name,
                epoch=epoch,
                by=place.epoch,
            )
        stamped = _stamped(table, place.path, base_version)
        added.extend(kept.write(place.path) for kept in _by_partition(_contract(table), rows, long))
        entry = NewEntry(
            operation="WRITE",
            base_version=base_version,
            metrics={
                "numFiles": len(added),
                "numOutputRows": len(rows),
                "numRemovedFiles": len(removed),
            },
            removed=removed,
            added=tuple(added),
            user_metadata=commit_metadata(place, writer, facts),
        )
        # An existing entry is another program's; the verification of the commit reports it.
        entry.put(place.path, stamped=stamped)
        written.append((place.path, stamped))

    write_version(None, table, base_version + 1, execute)
    for folder, stamped in written:
        _committed[folder] = base_version + 1, stamped
    if table.replication is None and (base_version + 1) % CHECKPOINT_EVERY == 0:
        checkpoint_in_place(table.path, base_version + 1)
    return tuple(added)


def _stamped(table: Table, folder: Path, base_version: int) -> bool:
    """Return whether entries of the table carry the time of their commit, after asking the gate.

    After a commit of this process, which does not change that, the log is not read for it again.
    """
    version, stamped = _committed.get(folder, (-1, False))
    if version == base_version:
        return stamped
    # Read the folder that is written: asking for the table's newest version would query the voters once more.
    base = snapshot_in(folder, base_version)
    expect(table.name, base, Access.ROWS)
    return base.has_commit_timestamps


def read_files(folder: Path, files: Iterable[StoredFile]) -> Iterator[dict[str, Any]]:
    """Read the rows of files, without the Delta partition columns.

    Raises:
        OSError: a file cannot be read; `EBADMSG` means that it is not a whole Parquet file.
    """
    import pyarrow.parquet as pq

    for each in files:
        path = folder / each.path
        with whole_file(path), pq.ParquetFile(path, coerce_int96_timestamp_unit="us") as file:
            rows = with_utc_times(file.read(), file)
        yield from rows.to_pylist()


def _by_partition(contract: TableContract, rows: Rows, long: tuple[str, ...]) -> Iterator[KeptRows]:
    import pyarrow as pa

    parts: dict[tuple[str | None, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        parts.setdefault(tuple(as_text(row[name]) for name in contract.delta_partition), []).append(row)
    schema = arrow_schema(contract, without=contract.delta_partition)
    for values, some in parts.items():
        yield KeptRows(
            partition=dict(zip(contract.delta_partition, values, strict=True)),
            rows=pa.Table.from_pylist([dict(row) for row in some], schema=schema),
            long=long,
        )


def _create(table: Table, place: Place, writer: str) -> None:
    """Create the table, empty, as version 0."""
    properties = _LOG_RETENTION if table.replication is None else TABLE_PROPERTIES
    FirstEntry(
        contract=_contract(table),
        properties=properties,
        user_metadata=commit_metadata(place, writer, {}),
    ).put(place.path)


def _contract(table: Table) -> TableContract:
    if table.contract is None:
        raise TypeError(f"the table {table.name} has no contract")
    return table.contract

"""Log entries that are computed instead of written by Spark: those of a commit, and a table's first.

A commit's entry has removed and added files, transaction ids and metadata.

Belongs here: the content of an entry, and putting it in place. Does not belong here: the choice of files
(`append.py`, `rewrite.py`, `replacement.py`), and what makes the entry count (`commit.py`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.entries import commit_notes, entry_path
from etl_assets.delta.log.statistics import as_json
from etl_assets.delta.write.content import StoredFile
from etl_assets.mirroring.stores.local_store import LocalStore

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract

_PROTOCOL: Mapping[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
_STAMPED_PROTOCOL: Mapping[str, Any] = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", "invariants", "inCommitTimestamp"],
}
"""The protocol that Delta gives a table whose entries carry the time of their commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """A log entry to be written.

    Attributes:
        operation: Delta's name for the operation.
        base_version: The version it follows.
        metrics: Metrics of the operation.
        removed: Files to remove.
        added: Files to add or restore.
        transactions: Transaction ids to set, also to lower versions: the last one in the log counts.
        user_metadata: The platform's metadata for the commit.
        changes_rows: Whether the table has other rows afterwards, or the same rows in other files.
        metadata: New metadata of the table: its columns, Delta partition and properties, the first two only
            of a table without rows. None: as before.
    """

    operation: str
    base_version: int
    metrics: Mapping[str, int]
    user_metadata: Mapping[str, Any]
    removed: tuple[StoredFile, ...] = ()
    added: tuple[StoredFile, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    changes_rows: bool = True
    metadata: Mapping[str, Any] | None = None

    def as_bytes(self, *, at: int, in_commit_timestamp: int | None) -> bytes:
        """Return the entry as Delta writes it: one action per line, the commit's own first.

        Args:
            at: Time of the commit in milliseconds.
            in_commit_timestamp: The time of the commit in milliseconds for a table whose entries carry it,
                None otherwise.
        """
        data_change = {"dataChange": self.changes_rows}
        lines = [
            {"commitInfo": self._commit_info(at, in_commit_timestamp)},
            *([] if self.metadata is None else [{"metaData": self.metadata}]),
            *(
                {"txn": {"appId": app_id, "version": version, "lastUpdated": at}}
                for app_id, version in self.transactions.items()
            ),
            *({"remove": _remove(file, at) | data_change} for file in self.removed),
            *({"add": _add(file) | data_change} for file in self.added),
        ]
        return as_lines(lines)

    def put(self, table_path: Path, *, stamped: bool) -> bool:
        """Put the entry into a table's log as a whole and durably, unless that version has one.

        Args:
            table_path: Folder of the table.
            stamped: Whether the table's entries carry the time of their commit.

        Returns:
            Whether it was put. If not, another program's entry is in its place.
        """
        at = time.time_ns() // 1_000_000
        stamp = None
        if stamped:
            before = next(commit_notes(table_path, self.base_version), None)
            last = None if before is None else before.in_commit_timestamp
            stamp = max(at, (last or 0) + 1)
        return _put(table_path, self.base_version + 1, self.as_bytes(at=at, in_commit_timestamp=stamp))

    def _commit_info(self, at: int, in_commit_timestamp: int | None) -> dict[str, Any]:
        return {
            **commit_info(self.operation, at, self.user_metadata, stamp=in_commit_timestamp),
            "readVersion": self.base_version,
            "isBlindAppend": False,
            "operationMetrics": {name: str(value) for name, value in self.metrics.items()},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstEntry:
    """The first entry of a table without rows.

    Attributes:
        contract: Its columns, its Delta partition and its description.
        properties: Table properties. Their values must be valid for Delta: they are not checked here.
        user_metadata: The platform's metadata for the commit.
    """

    contract: TableContract
    properties: Mapping[str, str]
    user_metadata: Mapping[str, Any]

    def put(self, table_path: Path) -> bool:
        """Put the entry as a whole and durably, if the table has none. Returns whether it was put."""
        now = time.time_ns() // 1_000_000
        stamped = self.properties.get("delta.enableInCommitTimestamps") == "true"
        info = {
            **commit_info("CREATE TABLE", now, self.user_metadata, stamp=now if stamped else None),
            "isBlindAppend": True,
            "operationMetrics": {},
        }
        metadata = metadata_of(self.contract, self.properties, table_id=str(uuid.uuid4()), created_at=now)
        protocol = _STAMPED_PROTOCOL if stamped else _PROTOCOL
        table_path.mkdir(parents=True, exist_ok=True)
        lines = as_lines([{"commitInfo": info}, {"metaData": metadata}, {"protocol": protocol}])
        return _put(table_path, 0, lines)


def metadata_of(
    contract: TableContract, properties: Mapping[str, str], *, table_id: str, created_at: int
) -> dict[str, Any]:
    """Return the metadata of a table as the log has it.

    Args:
        contract: The table's columns, Delta partition and description.
        properties: Table properties.
        table_id: The table's id.
        created_at: When the table was created, in milliseconds.
    """
    return {
        "id": table_id,
        "description": contract.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": struct_type(contract).json(),
        "partitionColumns": list(contract.delta_partition),
        "configuration": dict(properties),
        "createdTime": created_at,
    }


def _put(table_path: Path, version: int, content: bytes) -> bool:
    path = entry_path(table_path, version)
    # A checksum that Hadoop left of a torn commit would make Spark refuse the entry.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return LocalStore(table_path).create(path.relative_to(table_path).as_posix(), content)


def as_lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Return actions as Delta writes them: one per line."""
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()


def commit_info(
    operation: str, at: int, user_metadata: Mapping[str, Any], *, stamp: int | None
) -> dict[str, Any]:
    """Return the first line of a computed entry.

    `stamp` is the commit's time in milliseconds, for a table whose entries carry it.
    """
    return {
        **({} if stamp is None else {"inCommitTimestamp": stamp}),
        "timestamp": at,
        "operation": operation,
        "operationParameters": {},
        "isolationLevel": "Serializable",
        "userMetadata": json.dumps(user_metadata, separators=(",", ":")),
        "engineInfo": "etl-assets",
        "txnId": str(uuid.uuid4()),
    }


def _add(file: StoredFile) -> dict[str, Any]:
    return {
        "path": file.name,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": file.modified,
        "stats": as_json(file.statistics),
    }


def _remove(file: StoredFile, at: int) -> dict[str, Any]:
    return {
        "path": file.name,
        "deletionTimestamp": at,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "stats": as_json({"numRecords": file.rows}),
    }


def missing_files(folder: Path, files: Iterable[StoredFile]) -> list[str]:
    """Return the paths of the files that are missing or incomplete."""
    return [file.path for file in files if not file.is_whole(folder)]

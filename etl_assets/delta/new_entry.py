"""A log entry that is computed instead of being written by Spark: files out, files in, transaction ids, notes; or a table's first.

Belongs here: what an entry says, and putting it in place. Does not belong here: which files it names (`append.py`,
`rewrite.py`, `replacement.py`), and what makes it count (`commit.py`).
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
from etl_assets.delta.content import StoredFile
from etl_assets.delta.log import commit_notes, entry_path
from etl_assets.delta.statistics import as_json
from etl_assets.mirroring.local_store import LocalStore

if TYPE_CHECKING:
    from etl_assets.contracts.columns import TableContract

_PROTOCOL: Mapping[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
_STAMPED_PROTOCOL: Mapping[str, Any] = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["appendOnly", "invariants", "inCommitTimestamp"],
}
"""Of a table whose entries carry the time of their commit: what Delta gives it, and nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewEntry:
    """What the entry says.

    Attributes:
        operation: Delta's name of what was done.
        base_version: The version it follows.
        metrics: Figures of the operation.
        removed: Files that go.
        added: Files that come, or come back.
        transactions: Transaction ids that are set, also to lower versions: the last one in the log counts.
        user_metadata: What the platform notes with the commit.
        changes_rows: Whether the table has other rows afterwards, or the same in other files.
    """

    operation: str
    base_version: int
    metrics: Mapping[str, int]
    user_metadata: Mapping[str, Any]
    removed: tuple[StoredFile, ...] = ()
    added: tuple[StoredFile, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)
    changes_rows: bool = True

    def as_bytes(self, *, at: int, in_commit_timestamp: int | None) -> bytes:
        """The entry as Delta writes it: an action a line, the commit's own first.

        Args:
            at: Time of the commit in milliseconds.
            in_commit_timestamp: The same, of a table whose entries carry it.
        """
        data_change = {"dataChange": self.changes_rows}
        lines = [
            {"commitInfo": self._commit_info(at, in_commit_timestamp)},
            *(
                {"txn": {"appId": app_id, "version": version, "lastUpdated": at}}
                for app_id, version in self.transactions.items()
            ),
            *({"remove": _remove(file, at) | data_change} for file in self.removed),
            *({"add": _add(file) | data_change} for file in self.added),
        ]
        return as_lines(lines)

    def put(self, table_path: Path, *, stamped: bool) -> bool:
        """Put the entry into a table's log as a whole and durably, if there is none of that version.

        Args:
            table_path: Folder of the table.
            stamped: Its entries carry the time of their commit.

        Returns:
            Whether it was put. Where it was not, there is one of another program.
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
    """What the first entry of a table without rows says.

    Attributes:
        contract: Its columns, its Delta partition and what it is.
        properties: Table properties. Their values must be such as Delta takes: nobody checks them here.
        user_metadata: What the platform notes with the commit.
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
        metadata = {
            "id": str(uuid.uuid4()),
            "description": self.contract.description,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": struct_type(self.contract).json(),
            "partitionColumns": list(self.contract.delta_partition),
            "configuration": dict(self.properties),
            "createdTime": now,
        }
        protocol = _STAMPED_PROTOCOL if stamped else _PROTOCOL
        table_path.mkdir(parents=True, exist_ok=True)
        lines = as_lines([{"commitInfo": info}, {"metaData": metadata}, {"protocol": protocol}])
        return _put(table_path, 0, lines)


def _put(table_path: Path, version: int, content: bytes) -> bool:
    path = entry_path(table_path, version)
    # A checksum that Hadoop left of a torn commit would make Spark refuse the entry.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return LocalStore(table_path).create(path.relative_to(table_path).as_posix(), content)


def as_lines(actions: Iterable[Mapping[str, Any]]) -> bytes:
    """Actions as Delta writes them: one a line."""
    return "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions).encode()


def commit_info(
    operation: str, at: int, user_metadata: Mapping[str, Any], *, stamp: int | None
) -> dict[str, Any]:
    """What the first line of every computed entry says; `stamp` is the time of the commit, of a table whose entries carry it."""
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
    """Those of the files that are not there in full."""
    return [file.path for file in files if not file.is_whole(folder)]

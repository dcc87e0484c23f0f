"""A log entry that is computed instead of being written by Spark: files out, files in, transaction ids, notes.

Belongs here: what an entry says, and putting it in place. Does not belong here: which files it names (`append.py`,
`replacement.py`), and what makes it count (`commit.py`).
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.delta.content import StoredFile
from etl_assets.delta.log import commit_notes, entry_path
from etl_assets.mirroring.local_store import LocalStore


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
    """

    operation: str
    base_version: int
    metrics: Mapping[str, int]
    user_metadata: Mapping[str, Any]
    removed: tuple[StoredFile, ...] = ()
    added: tuple[StoredFile, ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)

    def as_bytes(self, *, at: int, in_commit_timestamp: int | None) -> bytes:
        """The entry as Delta writes it: an action a line, the commit's own first.

        Args:
            at: Time of the commit in milliseconds.
            in_commit_timestamp: The same, of a table whose entries carry it.
        """
        lines = [
            {"commitInfo": self._commit_info(at, in_commit_timestamp)},
            *(
                {"txn": {"appId": app_id, "version": version, "lastUpdated": at}}
                for app_id, version in self.transactions.items()
            ),
            *({"remove": _remove(file, at)} for file in self.removed),
            *({"add": _add(file)} for file in self.added),
        ]
        return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()

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
        path = entry_path(table_path, self.base_version + 1)
        # A checksum that Hadoop left of a torn commit would make Spark refuse the entry.
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
        content = self.as_bytes(at=at, in_commit_timestamp=stamp)
        return LocalStore(table_path).create(path.relative_to(table_path).as_posix(), content)

    def _commit_info(self, at: int, in_commit_timestamp: int | None) -> dict[str, Any]:
        stamp = {} if in_commit_timestamp is None else {"inCommitTimestamp": in_commit_timestamp}
        return {
            **stamp,
            "timestamp": at,
            "operation": self.operation,
            "operationParameters": {},
            "readVersion": self.base_version,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {name: str(value) for name, value in self.metrics.items()},
            "userMetadata": json.dumps(self.user_metadata, separators=(",", ":")),
            "engineInfo": "etl-assets",
            "txnId": str(uuid.uuid4()),
        }


def _add(file: StoredFile) -> dict[str, Any]:
    return {
        "path": file.name,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "modificationTime": file.modified,
        "dataChange": True,
        "stats": json.dumps(file.statistics, separators=(",", ":")),
    }


def _remove(file: StoredFile, at: int) -> dict[str, Any]:
    return {
        "path": file.name,
        "deletionTimestamp": at,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition),
        "size": file.size,
        "stats": json.dumps({"numRecords": file.rows}),
    }


def missing_files(folder: Path, files: Iterable[StoredFile]) -> list[str]:
    """Those of the files that are not there in full."""
    return [file.path for file in files if not file.is_whole(folder)]

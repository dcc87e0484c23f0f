"""The log entry of an undo: files out, files in, cursors set back. Computed, so that no Spark is needed.

Spark's RESTORE leaves transaction ids as they are, and cursors are transaction ids: the next run would find its days
done. One entry says both. See docs/decisions/0015-undo.md.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets.delta.content import StoredFile
from etl_assets.delta.log import entry_path
from etl_assets.mirroring.local_store import LocalStore


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoEntry:
    """What the entry says.

    Attributes:
        base_version: The version it follows.
        at: Time of the commit in milliseconds.
        in_commit_timestamp: The same, of a table whose entries carry it.
        removed: Files that go.
        added: Files that come, or come back.
        transactions: Transaction ids that are set, also to lower versions: the last one in the log counts.
        user_metadata: What the platform notes with the commit.
    """

    base_version: int
    at: int
    in_commit_timestamp: int | None
    removed: tuple[StoredFile, ...]
    added: tuple[StoredFile, ...]
    transactions: Mapping[str, int]
    user_metadata: Mapping[str, Any]

    def as_bytes(self) -> bytes:
        """The entry as Delta writes it: an action a line, the commit's own first."""
        lines = [
            {"commitInfo": self._commit_info()},
            *({"txn": self._transaction(*each)} for each in self.transactions.items()),
            *({"remove": self._remove(file)} for file in self.removed),
            *({"add": _add(file)} for file in self.added),
        ]
        return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()

    def _commit_info(self) -> dict[str, Any]:
        timestamp = (
            {} if self.in_commit_timestamp is None else {"inCommitTimestamp": self.in_commit_timestamp}
        )
        return {
            **timestamp,
            "timestamp": self.at,
            "operation": "RESTORE",
            "operationParameters": {},
            "readVersion": self.base_version,
            "isolationLevel": "Serializable",
            "isBlindAppend": False,
            "operationMetrics": {
                "numRemovedFiles": str(len(self.removed)),
                "numRestoredFiles": str(len(self.added)),
            },
            "userMetadata": json.dumps(self.user_metadata, separators=(",", ":")),
            "engineInfo": "etl-assets",
            "txnId": str(uuid.uuid4()),
        }

    def _transaction(self, app_id: str, version: int) -> dict[str, Any]:
        return {"appId": app_id, "version": version, "lastUpdated": self.at}

    def _remove(self, file: StoredFile) -> dict[str, Any]:
        return {
            "path": file.name,
            "deletionTimestamp": self.at,
            "dataChange": True,
            "extendedFileMetadata": True,
            "partitionValues": dict(file.partition),
            "size": file.size,
            "stats": json.dumps({"numRecords": file.rows}),
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


def put_entry(table_path: Path, version: int, content: bytes) -> bool:
    """Write a log entry as a whole and durably, if there is none of that version; whether it was written."""
    path = entry_path(table_path, version)
    # A checksum that Hadoop left of a torn commit would make Spark refuse the entry.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    return LocalStore(table_path).create(path.relative_to(table_path).as_posix(), content)


def missing_files(folder: Path, files: Iterable[StoredFile]) -> list[str]:
    """Those of the files that are not there in full."""
    return [file.path for file in files if not file.is_whole(folder)]

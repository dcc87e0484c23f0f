"""The entry that closes the log of a table with one domain before it is mirrored: properties and protocol.

Belongs here: the content of that entry. Does not belong here: when it is put, and what happens to the log
(`mirroring/protocol/first_copy.py`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from etl_assets.delta.log.gate import FEATURES_OF_VERSION, NAMED_FEATURES
from etl_assets.delta.log.new_entry import as_lines, commit_info
from etl_assets.errors import ReplicaCorrupt
from etl_assets.mirroring.protocol.first_copy import CLOSES

_IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"


def closing_entry(
    properties: Mapping[str, str], version: int, checkpoint: bytes | None, entries: Sequence[bytes]
) -> bytes:
    """Return the entry that follows some entries and gives their table properties; its rows stay as they are.

    Args:
        properties: Table properties.
        version: The version that the entry becomes.
        checkpoint: The checkpoint that the entries follow on; None if they begin with the table's first
            entry.
        entries: At least one entry.

    Raises:
        ReplicaCorrupt: Delta cannot read the entries.
    """
    try:
        standing, at = _standing(checkpoint, entries)
        protocol, metadata = standing["protocol"], standing["metaData"]
        configuration = {**(metadata.get("configuration") or {}), **properties}
        at = max(at + 1, time.time_ns() // 1_000_000)
        if (metadata.get("configuration") or {}).get(_IN_COMMIT_TIMESTAMPS) != "true":
            # Without these a reader would look in older entries for a time that they do not carry.
            configuration |= {
                "delta.inCommitTimestampEnablementVersion": str(version),
                "delta.inCommitTimestampEnablementTimestamp": str(at),
            }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReplicaCorrupt(
            f"the log of a table that is to be mirrored cannot be read ({error})",
            fix="look for a program that writes into the table's folder; restore the log from a backup",
        ) from error
    info = {
        **commit_info("SET TBLPROPERTIES", at, {CLOSES: True}, stamp=at),
        "operationParameters": {"properties": json.dumps(dict(properties), separators=(",", ":"))},
        "readVersion": version - 1,
        "isBlindAppend": True,
        "operationMetrics": {},
    }
    return as_lines(
        (
            {"commitInfo": info},
            {"protocol": _with_commit_timestamps(protocol)},
            {"metaData": {**metadata, "configuration": configuration}},
        )
    )


def _standing(checkpoint: bytes | None, entries: Sequence[bytes]) -> tuple[dict[str, Any], int]:
    """Return the current protocol and metadata, and the newest time in any entry, in milliseconds."""
    found = {} if checkpoint is None else _in_checkpoint(checkpoint)
    newest = 0
    for entry in entries:
        for line in entry.splitlines():
            action = json.loads(line)
            found |= {kind: action[kind] for kind in ("protocol", "metaData") if action.get(kind)}
            info = action.get("commitInfo") or {}
            newest = max(newest, info.get("timestamp") or 0, info.get("inCommitTimestamp") or 0)
    return found, newest


def _in_checkpoint(checkpoint: bytes) -> dict[str, Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(pa.BufferReader(checkpoint))
        rows = file.read(columns=["protocol", "metaData"]).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(str(error)) from error
    found = {kind: row[kind] for row in rows for kind in ("protocol", "metaData") if row.get(kind)}
    metadata = found["metaData"]
    # Arrow has no JSON objects of unknown keys: a map is read as pairs.
    metadata["configuration"] = dict(metadata.get("configuration") or ())
    metadata["format"] = {**metadata["format"], "options": dict(metadata["format"].get("options") or ())}
    return {
        kind: {name: value for name, value in said.items() if value is not None}
        for kind, said in found.items()
    }


def _with_commit_timestamps(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Return the protocol with the feature that entries carry the time of their commit."""
    version = protocol["minWriterVersion"]
    named = protocol.get("writerFeatures") or ()
    old = [
        feature for since, features in FEATURES_OF_VERSION.items() if since <= version for feature in features
    ]
    features = dict.fromkeys((*(named if version >= NAMED_FEATURES else old), "inCommitTimestamp"))
    return {**protocol, "minWriterVersion": NAMED_FEATURES, "writerFeatures": list(features)}

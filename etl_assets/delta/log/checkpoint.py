"""Checkpoints, made by delta-rs: in a table's own folder, or from a mirrored table's entries apart from it.

Belongs here: computing a checkpoint's content from entries. Does not belong here: for which version of a
mirrored table, and where to put it (`mirroring/protocol/checkpoints.py`).
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from etl_assets.delta.log.durability import sync_files
from etl_assets.delta.log.entries import checkpoint_path, entry_path, last_checkpoint_path
from etl_assets.delta.scratch import scratch_folder
from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.protocol.chain import GENESIS, extend_all
from etl_assets.mirroring.protocol.checkpoints import Checkpoint
from etl_assets.mirroring.protocol.named_files import NamedFile, files_added

logger = logging.getLogger("etl_assets")


def make_checkpoint(base: Checkpoint | None, entries: Sequence[bytes]) -> Checkpoint:
    """Make the checkpoint of the last of some log entries.

    Args:
        base: The checkpoint that the entries follow on; None if they begin with the table's first entry.
        entries: At least one entry.

    Raises:
        ReplicaCorrupt: delta-rs cannot read these entries.
        Unanswered: this machine has no room for it.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    before, chain = (-1, GENESIS) if base is None else (base.version, base.chain)
    version = before + len(entries)
    try:
        # A folder with nothing else in it: other files of the table's log, above all a tail, cannot get in.
        with scratch_folder("checkpoint") as log:
            entry_path(log, 0).parent.mkdir()
            if base is not None:
                checkpoint_path(log, before).write_bytes(base.content)
            for number, entry in enumerate(entries, start=before + 1):
                entry_path(log, number).write_bytes(entry)
            DeltaTable(str(log), version=version).create_checkpoint()
            return Checkpoint(
                version=version,
                chain=extend_all(chain, entries),
                content=checkpoint_path(log, version).read_bytes(),
                hint=json.loads(last_checkpoint_path(log).read_bytes()),
            )
    except DeltaError as error:
        raise ReplicaCorrupt(
            f"no checkpoint of version {version} can be made: {error}",
            fix="look for a program that writes into the table's folder; `etl-assets tables verify` names"
            " what is wrong",
        ) from error
    except OSError as error:
        place = tempfile.gettempdir()
        raise Unanswered(
            f"no checkpoint of version {version} can be made in {place} ({error.strerror or error})",
            fix="see that the folder is writable for this user and not full",
            store=place,
            key="",
        ) from error


def checkpoint_in_place(table_path: Path, version: int) -> None:
    """Write the checkpoint that Delta's writer would write for a table of one domain, and remove old entries.

    The commit has been made: without a checkpoint the table is read by its log until the next one. Errors are
    logged.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(str(table_path), version=version)
        table.create_checkpoint()
        # Before entries are removed because of it.
        sync_files(table_path, [checkpoint_path(table_path, version), last_checkpoint_path(table_path)])
    except (DeltaError, OSError) as error:
        logger.warning(
            "%s has no checkpoint of version %d: %s; see that the folder is writable for this user and not"
            " full",
            table_path,
            version,
            error,
        )
        return
    try:
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        logger.warning(
            "older log entries of %s were not removed: %s; see that they are this user's", table_path, error
        )


def live_files(checkpoint: bytes) -> tuple[NamedFile, ...]:
    """Return the data files that a table has at a checkpoint, given the checkpoint's content.

    Raises:
        ReplicaCorrupt: the content is not a checkpoint.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # `read_table` would take such a name for that of a column.
        file = pq.ParquetFile(pa.BufferReader(checkpoint))
        added = file.read(columns=["add.path", "add.size", "add.deletionVector"]).column("add").to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ReplicaCorrupt(
            f"a checkpoint cannot be read: {error}",
            fix="look for a program that writes into the table's folder; `etl-assets tables verify` names"
            " what is wrong",
        ) from error
    return tuple(file for add in added if add is not None for file in files_added(add))


def says_the_same(one: bytes, other: bytes) -> bool:
    """Return whether every reader of the table sees the same with either of two checkpoints.

    False if one of them cannot be read.

    Their bytes may differ in compression and in the order of rows and keys. All statements about files,
    transaction ids, domains, properties and the protocol must be equal. Rows are read by the files, skipped
    by statistics and planned on by cursors. So an extra statement in one of them (statistics in columns of
    their own, a sidecar) is a difference too: some readers believe it. Removed files are ignored, because
    they expire by the clock, except one that removes a file in use.
    """
    import pyarrow as pa

    try:
        return _statements(one) == _statements(other)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return False


def sums_up(checkpoint: bytes, base: Checkpoint | None, entries: Sequence[bytes]) -> bool:
    """Return whether a checkpoint agrees with the log entries that it should sum up.

    Args:
        checkpoint: Its content.
        base: The checkpoint that the entries follow on; None if they begin with the table's first entry.
        entries: At least one entry.

    Raises:
        ReplicaCorrupt: delta-rs cannot read these entries.
        Unanswered: this machine has no room to make another checkpoint.
    """
    return says_the_same(checkpoint, make_checkpoint(base, entries).content)


def _statements(checkpoint: bytes) -> list[tuple[str, str]]:
    """Return a checkpoint's statements, sorted: kinds of actions and their values. A null states nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = pq.ParquetFile(pa.BufferReader(checkpoint)).read().to_pylist(maps_as_pydicts="strict")
    actions = [(kind, action) for row in rows for kind, action in row.items() if action is not None]
    in_use = {_identity(action) for kind, action in actions if kind == "add"}
    return sorted(
        (kind, json.dumps(_comparable(kind, action), sort_keys=True, default=repr))
        for kind, action in actions
        if kind != "remove" or _identity(action) in in_use
    )


def _identity(action: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return Delta's identity of a file: the same path with another deletion vector is another file."""
    vector = action.get("deletionVector") or {}
    return action["path"], vector.get("storageType"), vector.get("pathOrInlineDv"), vector.get("offset")


def _comparable(kind: str, action: Mapping[str, Any]) -> Any:
    said = dict(action)
    if kind == "add" and said.get("stats") is not None:
        said["stats"] = json.loads(said["stats"], parse_float=Decimal)
    if kind == "protocol":
        features = ("readerFeatures", "writerFeatures")
        said |= {name: sorted(said[name]) for name in features if said.get(name) is not None}
    return dict(_without_nulls(said))


def _without_nulls(said: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in said.items():
        if isinstance(value, dict):
            yield name, dict(_without_nulls(value))
        elif value is not None:
            yield name, value

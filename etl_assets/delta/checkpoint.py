"""Checkpoints, made by delta-rs: in a table's own folder, and of a mirrored table from its entries, apart from any folder.

Belongs here: from entries to the content. Does not belong here: of which version of a mirrored table, and where it goes
(`mirroring/checkpoints.py`).
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from etl_assets.delta.durability import sync_files
from etl_assets.delta.log import checkpoint_path, entry_path, last_checkpoint_path
from etl_assets.delta.scratch import scratch_folder
from etl_assets.errors import ReplicaCorrupt, Unanswered
from etl_assets.mirroring.chain import GENESIS, extend_all
from etl_assets.mirroring.checkpoints import Checkpoint
from etl_assets.mirroring.named_files import NamedFile, files_added

logger = logging.getLogger("etl_assets")


def make_checkpoint(base: Checkpoint | None, entries: Sequence[bytes]) -> Checkpoint:
    """The checkpoint of the last of some log entries.

    Args:
        base: The checkpoint that the entries follow on; None: they are all there are.
        entries: At least one.

    Raises:
        ReplicaCorrupt: delta-rs cannot read these entries.
        Unanswered: this machine has no room to make it in.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    before, chain = (-1, GENESIS) if base is None else (base.version, base.chain)
    version = before + len(entries)
    try:
        # A folder that holds nothing else: what else lies in the table's log, above all a tail, cannot get in.
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
            fix="look for a program that writes into the table's folder; `etl-assets tables verify` names what is wrong",
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
    """Give a table of one domain the checkpoint that Delta's writer would have given it; entries that are old enough go.

    The commit has been made: one that gets none now is read by its log until the next one.
    """
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        table = DeltaTable(str(table_path), version=version)
        table.create_checkpoint()
        # Before anything goes on the strength of it.
        sync_files(table_path, [checkpoint_path(table_path, version), last_checkpoint_path(table_path)])
    except (DeltaError, OSError) as error:
        logger.warning(
            "%s has no checkpoint of version %d: %s; see that the folder is writable for this user and not full",
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
    """The data files that a table has at a checkpoint, given its content.

    Raises:
        ReplicaCorrupt: it is no checkpoint.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not `read_table`, which takes such a name for that of a column.
        file = pq.ParquetFile(pa.BufferReader(checkpoint))
        added = file.read(columns=["add.path", "add.size", "add.deletionVector"]).column("add").to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ReplicaCorrupt(
            f"a checkpoint cannot be read: {error}",
            fix="look for a program that writes into the table's folder; `etl-assets tables verify` names what is wrong",
        ) from error
    return tuple(file for add in added if add is not None for file in files_added(add))


def says_the_same(one: bytes, other: bytes) -> bool:
    """Whether two checkpoints have whoever opens the table see the same; False if one cannot be read.

    Their bytes may differ in how they are compressed and in the order of rows and keys. Everything else that is said of files,
    transaction ids, domains, properties and protocol has to be equal: rows are read by the one, left out by statistics and
    planned on by cursors. So what one says and the other does not (statistics in columns of their own, a sidecar) is a
    difference too: there are readers that believe it. Removed files are left aside, which go after a while by the clock; one
    that takes out a file in use is not.
    """
    import pyarrow as pa

    try:
        return _statements(one) == _statements(other)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError):
        return False


def sums_up(checkpoint: bytes, base: Checkpoint | None, entries: Sequence[bytes]) -> bool:
    """Whether a checkpoint says what some log entries say.

    Args:
        checkpoint: Its content.
        base: The checkpoint that the entries follow on; None: they are all there are.
        entries: At least one.

    Raises:
        ReplicaCorrupt: delta-rs cannot read these entries.
        Unanswered: this machine has no room to make another one in.
    """
    return says_the_same(checkpoint, make_checkpoint(base, entries).content)


def _statements(checkpoint: bytes) -> list[tuple[str, str]]:
    """What a checkpoint says, in an order of its own: kinds of actions and their values. What is null is not said."""
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
    """What Delta knows a file by: one with another deletion vector is another one."""
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

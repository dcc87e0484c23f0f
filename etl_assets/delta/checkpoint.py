"""Checkpoints, made by delta-rs: in a table's own folder, and of a mirrored table from its entries, apart from any folder.

Belongs here: from entries to the content. Does not belong here: of which version of a mirrored table, and where it goes
(`mirroring/checkpoints.py`).
"""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path

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
        table.cleanup_metadata()
    except (DeltaError, OSError) as error:
        logger.warning("%s has no checkpoint of version %d: %s", table_path, version, error)


def live_files(checkpoint: bytes) -> tuple[NamedFile, ...]:
    """The data files that a table has at a checkpoint, given its content.

    Raises:
        ReplicaCorrupt: it is no checkpoint.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # Not `read_table`, which takes such a name for that of a column.
        file = pq.ParquetFile(BytesIO(checkpoint))
        added = file.read(columns=["add.path", "add.size", "add.deletionVector"]).column("add").to_pylist()
    except (pa.ArrowException, OSError, KeyError) as error:
        raise ReplicaCorrupt(
            f"a checkpoint cannot be read: {error}",
            fix="look for a program that writes into the table's folder; `etl-assets tables verify` names what is wrong",
        ) from error
    return tuple(file for add in added if add is not None for file in files_added(add))

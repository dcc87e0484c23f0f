"""The platform's last commit to a table, kept beside its log to notice a program that wrote over it later.

On a local file system Delta looks for the next version and renames over it. A program that ignores the lock
and has looked already replaces an entry that was verified, durable and reported. The log does not show that.
So the entry is kept, and the next commit compares. Otherwise the offsets of the lost rows would be assigned
again.

Mirrored tables do not need this: the voters know each entry by its hash.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.log.entries import entry_path
from etl_assets.errors import CommitOverwritten

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

logger = logging.getLogger("etl_assets")

FOLDER = "_own_commit"
"""Folder of a table with the last own entry. Delta ignores it because of its underscore."""


def expect_last_commit(table: Table, base_version: int) -> None:
    """Refuse to build on a log that has lost the last own commit. Call it under the table's lock.

    A commit that was put back as a later version counts as present. A log that ends before it, because it was
    set back to a backup, passes. So does a log whose old entries were cleaned up, where it cannot be known.

    Raises:
        CommitOverwritten: another program replaced it; nothing was written.
    """
    kept = max(_entries(table.path), default=None)
    if kept is None or (version := int(kept.stem)) > base_version:
        return
    content = kept.read_bytes()
    try:
        for each in range(version, base_version + 1):
            if entry_path(table.path, each).read_bytes() == content:
                return
    except FileNotFoundError:
        return
    raise CommitOverwritten(
        f"version {version} of the table {table.name} was acknowledged and is not in its log any more:"
        " another program wrote its own over it",
        fix=_fix(table.path, kept, content, base_version + 1),
        table=table.name,
        version=version,
        kept=str(kept),
    )


def keep_last_commit(table_path: Path, version: int, content: bytes) -> None:
    """Keep the entry of a commit that counts, in place of the previous one.

    The commit counts even if this fails.

    Written without fsync: after a power loss, or on a full disk, the previous entry may be there, which is as
    valid.
    """
    target = table_path / FOLDER / entry_path(table_path, version).name
    temporary = target.with_suffix(".new")
    try:
        target.parent.mkdir(exist_ok=True)
        temporary.write_bytes(content)
        temporary.replace(target)
        for older in _entries(table_path):
            if older != target:
                older.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("the entry of version %d was not kept in %s: %s", version, target.parent, error)
        with suppress(OSError):
            temporary.unlink()


def _entries(table_path: Path) -> list[Path]:
    return [path for path in (table_path / FOLDER).glob("*.json") if path.stem.isdigit()]


def _fix(table_path: Path, kept: Path, content: bytes, next_version: int) -> str:
    actions = [json.loads(line) for line in content.splitlines()]
    if any("remove" in action or "metaData" in action for action in actions):
        return (
            "stop the program that writes the table past its lock, and take the platform back to the backup;"
            f" what was lost is in {kept}"
        )
    return (
        f"stop the program that writes the table past its lock; put the commit back with `cp -n {kept}"
        f" {entry_path(table_path, next_version)}`; then `etl-assets reprocess` for the days since"
    )

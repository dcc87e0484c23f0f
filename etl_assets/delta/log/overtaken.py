"""The error of a commit that another writer overtook, decided by the entry that is in its place in the log.

Belongs here: distinguishing another leader, a platform that now has several domains, and a program that
ignores the lock. Does not belong here: when to check (`commit.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.delta.log.entries import commit_notes
from etl_assets.errors import CommitUnverified, DomainUnavailable, EtlAssetsError, Fenced
from etl_assets.mirroring.protocol.first_copy import CLOSES
from etl_assets.mirroring.protocol.register import REGISTERS

if TYPE_CHECKING:
    from pathlib import Path

    from etl_assets.delta.log.entries import LogEntry
    from etl_assets.delta.table import Table


def expect_one_domain(table: Table, folder: Path, base_version: int) -> None:
    """Refuse a commit of a process that works with one domain to a table that has become mirrored.

    Call it under the table's lock. The register shows it, and in a table with a log so does the entry that
    closes it. If that entry comes after this check, it takes the version of the commit.

    Raises:
        DomainUnavailable: the table is mirrored; nothing was written.
    """
    if (table.domain.root / REGISTERS / f"{table.name}.json").exists():
        raise _mirrored_by_now(table)
    base = next(commit_notes(folder, base_version), None)
    if base is not None and CLOSES in base.user_metadata:
        raise _mirrored_by_now(table)


def not_ours(table: Table, epoch: str | None, entry: LogEntry) -> EtlAssetsError:
    """Return the error of a commit that has an entry of another writer in its place.

    Args:
        table: The table.
        epoch: The fence epoch of the commit; None with one domain.
        entry: The entry in its place.
    """
    theirs = entry.user_metadata.get("epoch")
    if epoch is not None and theirs is not None and theirs != epoch:
        return Fenced(
            f"{table.domain.name} does not lead the table {table.name}: version {entry.version} was made"
            f" under epoch {theirs}",
            fix="run the step again: it finds the new leader; what was not acknowledged is done again there",
            table=table.name,
            epoch=epoch,
            by=theirs,
        )
    if epoch is None and CLOSES in entry.user_metadata:
        return _mirrored_by_now(table)
    return CommitUnverified(
        f"version {entry.version} of the table {table.name} is not the one this run wrote",
        fix="another program writes this table past its lock: stop it, then run the batch again",
        table=table.name,
        version=entry.version,
    )


def _mirrored_by_now(table: Table) -> DomainUnavailable:
    return DomainUnavailable(
        f"the table {table.name} is mirrored over several failure domains by now, and this process works with"
        f" one ({table.domain.name}): its commit would count nowhere, and was not made",
        fix="end this process and start it again: it then works with the failure domains of the platform"
        " file; if that names one domain, name the others again",
        table=table.name,
        domain=table.domain.name,
    )

"""A Delta table under a failure domain's root: where it is, and which version may be read.

Its log is read without Spark (`snapshot.py`). Spark is needed for rows only (`read/rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.delta.log.entries import entry_identity, latest_version
from etl_assets.delta.read.range_predicate import Within
from etl_assets.delta.read.rows import After, read_rows
from etl_assets.delta.replicated.replication import Replication, replication
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.snapshot_cache import snapshot_in
from etl_assets.placement.domains import FailureDomain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.contracts.columns import TableContract
    from etl_assets.delta.run_token import RunToken


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedVersion:
    """One version of a table and the replica to read it from: the newest acknowledged one when it was pinned.

    Attributes:
        domain: Failure domain of the replica.
        path: Folder of the replica.
        version: The version. The folder's log may have newer versions that are not acknowledged.
    """

    domain: str
    path: Path
    version: int


@dataclass(frozen=True, slots=True)
class VersionIdentity:
    """Tells a version of a table in one replica from every other one.

    Attributes:
        path: Folder of the replica.
        version: The version, -1 for none.
        entry: What tells the version's entry from that of a table that was created again.
    """

    path: Path
    version: int
    entry: tuple[int, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table's replica in one failure domain.

    `contract` is None for tables of users' own assets: their columns are those of the frames written to them.
    `run` is the token of the run that commits to it by this value; None for work of no run.
    """

    name: str
    domain: FailureDomain
    contract: TableContract | None = None
    run: RunToken | None = None

    @property
    def replication(self) -> Replication | None:
        """Replication of the table over several domains; None with one domain."""
        return replication(self.name, self.domain) if self.domain.sites else None

    @property
    def path(self) -> Path:
        """Folder of the replica. For a mirrored table: the folder that the last read of its version found."""
        if (mirrored := self.replication) is None or (bound := mirrored.bound()) is None:
            return self.domain.table_path(self.name)
        return Path(bound.uri) / bound.folder

    @property
    def lock_path(self) -> Path:
        """File of the writer lock."""
        return self.domain.lock_path(self.name)

    def version(self) -> int:
        """Return the newest version, -1 if the table does not exist.

        The newest acknowledged version, if the table is mirrored.

        Raises:
            QuorumUnavailable: too few domains answer to know the version.
        """
        if (mirrored := self.replication) is None:
            return latest_version(self.path)
        bound = mirrored.bind()
        return -1 if bound is None else bound.version

    def identity(self) -> VersionIdentity | None:
        """Return what tells the newest version from others, None if its entry is cleaned up at this moment.

        Raises:
            QuorumUnavailable: too few domains answer to know the version.
        """
        version, path = self.version(), self.path
        if version < 0:
            return VersionIdentity(path, version, None)
        entry = entry_identity(path, version)
        return None if entry is None else VersionIdentity(path, version, entry)

    def pin(self) -> PinnedVersion | None:
        """Return the newest version and the replica to read it from, or None if the table does not exist.

        Raises:
            QuorumUnavailable: too few domains answer to know the version.
        """
        if (mirrored := self.replication) is None:
            version = latest_version(self.path)
            pinned = PinnedVersion(domain=self.domain.name, path=self.path, version=version)
            return None if version < 0 else pinned
        if (bound := mirrored.bind()) is None or bound.version < 0:
            return None
        return PinnedVersion(domain=bound.domain, path=Path(bound.uri) / bound.folder, version=bound.version)

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """Return the log as of a version (default: the newest), or None if the table does not exist."""
        newest = self.version()
        if newest < 0:
            return None
        return snapshot_in(self.path, newest if version is None else version)

    def read(
        self, spark: SparkSession, version: int, after: After | None = None, within: Within | None = None
    ) -> DataFrame:
        """Return the rows of one version as a frame.

        `after` keeps the rows of some days above a batch id; `within` keeps the rows in some ranges. See
        `rows.read_rows`.
        """
        return read_rows(spark, self, version, after, within)

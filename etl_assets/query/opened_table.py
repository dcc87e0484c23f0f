"""One acknowledged version of a table, for other libraries to read exactly that version."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets import environment
from etl_assets.delta.log.log_places import whole_version
from etl_assets.delta.snapshot_cache import snapshot_in
from etl_assets.errors import NotFound, RuntimeMissing, StorageFailed
from etl_assets.query.readers import Reader, expect_readable
from etl_assets.settings import load_installation
from etl_assets.steps.step import platform_table

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow.dataset
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.placement.domains import FailureDomain


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedTable:
    """One version of a table: the newest acknowledged one at the time it was opened, or the last whole one.

    Every method reads this version, whatever is committed meanwhile. `tables vacuum` keeps its files for 7
    days; open the table again for newer rows.

    Attributes:
        name: Name of the table.
        uri: Folder to open the table by.
        version: Version to open it at. The log in the folder may have newer ones that are not acknowledged.
        domain: Failure domain of the replica in that folder.
    """

    name: str
    uri: str
    version: int
    domain: str

    def as_json(self) -> dict[str, Any]:
        """Return the table as a JSON object."""
        return {"name": self.name, "uri": self.uri, "version": self.version, "domain": self.domain}

    def delta(self) -> DeltaTable:
        """Open the table with delta-rs. For reading only: no program but the platform writes its tables.

        Raises:
            StorageFailed: the log cannot be read.
        """
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            return DeltaTable(self.uri, version=self.version)
        except (DeltaError, OSError) as error:
            raise StorageFailed(
                f"the log of {self.name} in {self.uri} cannot be read at version {self.version}:"
                f" {' '.join(str(error).split())}",
                fix="open the table again, if it was moved or repaired meanwhile; `etl-assets tables verify`"
                " names what is wrong with a mirrored table",
                table=self.name,
                domain=self.domain,
            ) from error

    def dataset(self) -> pyarrow.dataset.Dataset:
        """Return the rows as a pyarrow dataset, which reads only the files that a filter needs.

        Raises:
            FeatureUnsupported: the table uses Delta features that pyarrow datasets do not support.
        """
        expect_readable(self, Reader.PYARROW)
        return snapshot_in(Path(self.uri), self.version).dataset()

    def pandas(self, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the rows as a pandas frame, in memory.

        Args:
            columns: Columns to read; all by default.

        Raises:
            QueryRefused: the table has no such column.
            FeatureUnsupported: the table uses Delta features that deltalake does not support.
            RuntimeMissing: pandas is not installed.
        """
        _expect_installed("pandas", "pandas")
        from etl_assets.query.sql import rows_of

        return rows_of(self, columns).to_pandas()

    def polars(self) -> pl.LazyFrame:
        """Return the rows as a lazy Polars frame, which reads what a query needs when it is collected.

        Times before 1677 and after 2262 are wrong in it if Spark's own writer wrote them.

        Raises:
            FeatureUnsupported: the table uses Delta features that Polars does not support.
            RuntimeMissing: Polars is not installed.
        """
        _expect_installed("polars", "Polars")
        expect_readable(self, Reader.POLARS)
        import polars

        return polars.scan_delta(self.uri, version=self.version)

    def spark(self, session: SparkSession) -> DataFrame:
        """Return the rows as a Spark frame.

        Args:
            session: A session with Delta's jars, which sees the folder under the same path.
        """
        return session.read.format("delta").option("versionAsOf", self.version).load(self.uri)


def open_table(name: str, home: str | Path | None = None, *, whole_transactions: bool = False) -> OpenedTable:
    """Open the newest acknowledged version of a table of an installation.

    Args:
        name: A table of the platform.
        home: The installation's home folder; by default that of the environment, as for commands.
        whole_transactions: Instead, open the last version without a part of a transaction whose other parts
            are not there yet.

    Raises:
        NoInstallation: the home folder holds no installation.
        NotFound: the table does not exist, or has not been created yet.
        QuorumUnavailable: too few failure domains answer to determine the acknowledged version.
    """
    environ = None if home is None else {**os.environ, environment.HOME.name: str(home)}
    reader = load_installation(environ).placement().reader()
    return opened_from(reader, name, whole_transactions=whole_transactions)


def opened_from(domain: FailureDomain, name: str, *, whole_transactions: bool = False) -> OpenedTable:
    """Open the newest acknowledged version of a table as a domain sees it, or the last whole one.

    Raises:
        NotFound: the table does not exist, or has not been created yet.
        QuorumUnavailable: too few failure domains answer to determine the acknowledged version.
    """
    pinned = platform_table(name, domain).pin()
    if pinned is None:
        raise NotFound(
            f"the table {name} is not there yet",
            fix="read it once a first run has made it: `etl-assets run`",
            table=name,
        )
    version = whole_version(pinned.path, pinned.version) if whole_transactions else pinned.version
    return OpenedTable(name=name, uri=str(pinned.path), version=version, domain=pinned.domain)


def _expect_installed(module: str, name: str) -> None:
    from importlib.util import find_spec

    if find_spec(module) is None:
        raise RuntimeMissing(
            f"{name} is not installed in this Python environment", fix=f"pip install {module}", package=module
        )

"""A Delta table under a failure domain's root, and what a version of it says without starting Spark.

Reading the log goes through delta-rs: milliseconds, no JVM. Spark is needed only for rows.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from etl_assets.delta.log import latest_version
from etl_assets.delta.replication import Replication, replication
from etl_assets.placement.domains import FailureDomain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from etl_assets.contracts.columns import TableContract


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table's replica in one failure domain.

    `contract` is None for tables of users' own assets: their columns are those of the frames written to them.
    """

    name: str
    domain: FailureDomain
    contract: TableContract | None = None

    @property
    def replication(self) -> Replication | None:
        """How the table is mirrored over several domains; None with one domain."""
        return replication(self.name, self.domain) if self.domain.sites else None

    @property
    def path(self) -> Path:
        """Folder of the replica: of a mirrored table the one that the last look at its version found."""
        if (mirrored := self.replication) is None or (bound := mirrored.bound()) is None:
            return self.domain.table_path(self.name)
        return Path(bound.uri) / bound.folder

    @property
    def lock_path(self) -> Path:
        """File of the writer lock."""
        return self.domain.lock_path(self.name)

    def version(self) -> int:
        """The newest version, -1 when the table does not exist; of a mirrored table the newest acknowledged one.

        Raises:
            QuorumUnavailable: too few domains answer to tell.
        """
        if (mirrored := self.replication) is None:
            return latest_version(self.path)
        bound = mirrored.bind()
        return -1 if bound is None else bound.version

    def snapshot(self, version: int | None = None) -> Snapshot | None:
        """The log as of a version (default: the newest), None when the table does not exist."""
        newest = self.version()
        if newest < 0:
            return None
        from deltalake import DeltaTable

        return Snapshot(DeltaTable(str(self.path), version=newest if version is None else version))

    def read(self, spark: SparkSession, version: int) -> DataFrame:
        """The rows of one version."""
        return spark.read.format("delta").option("versionAsOf", version).load(str(self.path))


class Snapshot:
    """One version of a table's log."""

    def __init__(self, delta_table: Any) -> None:
        self._delta_table = delta_table

    @property
    def version(self) -> int:
        """The version this is."""
        return self._delta_table.version()

    @property
    def table_id(self) -> str:
        """What tells the table from another of the same name."""
        return str(self._delta_table.metadata().id)

    def files_by_day(self) -> Iterator[tuple[str, dt.date]]:
        """Its data files, relative to the table's folder, and the day each is of."""
        for path, day in self._files("path", "partition.partition_date"):
            yield unquote(path), day

    def transaction_version(self, app_id: str) -> int:
        """The highest version committed for a transaction id, -1 for none."""
        found = self._delta_table.transaction_version(app_id)
        return -1 if found is None else found

    def rows_by(self, *columns: str) -> dict[tuple[str, ...], int]:
        """Rows for each combination of Delta partition values, from file statistics."""
        rows: Counter[tuple[str, ...]] = Counter()
        for number, *values in self._files("num_records", *(f"partition.{column}" for column in columns)):
            rows[tuple(map(str, values))] += number or 0
        return dict(rows)

    def partition_columns(self) -> tuple[str, ...]:
        """Names of the Delta partition columns."""
        return tuple(self._delta_table.metadata().partition_columns)

    def row_count(self) -> int:
        """Rows in all, from file statistics."""
        return sum(number or 0 for (number,) in self._files("num_records"))

    def maximum(self, column: str) -> int | None:
        """The highest value of a BIGINT column, from file statistics; None for an empty table."""
        return max((value for (value,) in self._files(f"max.{column}") if value is not None), default=None)

    def newest_batch_by_day(self) -> dict[dt.date, int]:
        """For each day the batch id of its newest row: has anything come since a reader's cursor?"""
        newest: dict[dt.date, int] = {}
        for day, batch in self._files("partition.partition_date", "max.batch_id"):
            if day is not None and batch is not None:
                newest[day] = max(newest.get(day, -1), batch)
        return newest

    def _files(self, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Some columns of the table's file statistics; None where no file has them."""
        statistics = self._delta_table.get_add_actions(flatten=True)
        names = list(statistics.schema.names)
        empty = [None] * statistics.num_rows
        found = (
            statistics.column(names.index(name)).to_pylist() if name in names else empty for name in columns
        )
        return zip(*found, strict=True)

"""The step from warehouse_rows to order_status_view: new rows are folded with the stored ones, by order."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.read.rows import files_with
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.content import content_of
from etl_assets.delta.write.create import base_of
from etl_assets.delta.write.rewrite import Rewrite, Rewritten, can_rewrite, commit_rewrite
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Transaction, Write
from etl_assets.orders.steps.fold_files import FoldFiles
from etl_assets.orders.steps.order_files import EventFile, ViewFile
from etl_assets.orders.tables.order_status_view import ORDER_STATUS_VIEW
from etl_assets.orders.tables.warehouse_rows import WAREHOUSE_ROWS
from etl_assets.orders.transforms.order_status import EVENT_COLUMNS
from etl_assets.steps.changes import read_new_rows
from etl_assets.steps.step import ReadMode, StepContext, StepReport, staging_folder, upsert_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table
    from etl_assets.delta.write.content import StoredFile


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldStatus:
    """The step. The view has no days; its cursor covers the whole of warehouse_rows."""

    context: StepContext
    mode: ReadMode

    def run(self, days: Sequence[dt.date] = ()) -> StepReport:
        """Fold the new rows into the view, in one commit; `days` are ignored."""
        source, table = self.context.table(WAREHOUSE_ROWS.name), self.context.table(ORDER_STATUS_VIEW.name)
        seen = table.version()
        if (new := read_new_rows(source, table, self.mode)) is None:
            return StepReport(table=table.name, version=table.version(), counts={None: Counter()})
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        done = _Fold(
            context=self.context,
            source=source,
            rows=new.snapshot,
            after=new.after,
            table=table,
            base=base,
            transaction=new.transaction,
            cursors=new.cursors,
        ).commit()
        return StepReport(
            table=table.name,
            version=done.version,
            counts={None: upsert_counts(done)},
            commits=int(not done.repeated),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    """One fold.

    Attributes:
        context: The step's context.
        source: warehouse_rows.
        rows: The version of it that is read.
        after: The batch id above which its rows are new.
        table: The view.
        base: The version of the view that the fold is planned on.
        transaction: Identity of the commit.
        cursors: Cursors of the view after the commit.
    """

    context: StepContext
    source: Table
    rows: Snapshot
    after: int
    table: Table
    base: int
    transaction: Transaction | None
    cursors: Mapping[str, int]

    def commit(self) -> Commit:
        """Fold and commit."""
        stands = self.table.snapshot(self.base)
        assert stands is not None  # `base` is a version of the table
        with staging_folder(self.table, self.base + 1) as staging:
            if can_rewrite(self.table, stands):
                return self._rewrite(stands, staging)
            return self._merge(stands, staging)

    def _rewrite(self, stands: Snapshot, staging: Path) -> Commit:
        stored = {str(self.table.path / file.path): file for file in content_of(stands).values()}
        view = [_view_file(path, file) for path, file in stored.items()]

        def write(folder: Path) -> Rewritten:
            counts, replaced = self._files(view, staging).write(folder)
            return Rewritten(
                removed=tuple(stored[file.path] for file in replaced),
                source_rows=counts.read,
                inserted=counts.inserted,
                updated=counts.updated,
            )

        rewrite = Rewrite(
            base_version=self.base, write=write, transaction=self.transaction, cursors=self.cursors
        )
        return commit_rewrite(self.table, rewrite, wait_seconds=self.context.lock_wait_seconds)

    def _merge(self, stands: Snapshot, staging: Path) -> Commit:
        """Merge with Delta, for a view that consists of more than files with the contract's columns."""
        spark, changed = self.context.spark, staging / "changed"
        if stands.is_plain:
            view = [
                _view_file(str(self.table.path / file.path), file) for file in content_of(stands).values()
            ]
        else:
            staged = _staged(self.table.read(spark, self.base), staging / "view")
            view = [ViewFile(path=path, rows=rows) for path, rows in staged.items()]
        counts, _ = self._files(view, staging, changed_only=True).write(changed)
        done = commit(
            self.table,
            Write(
                rows=spark.read.schema(struct_type(ORDER_STATUS_VIEW)).parquet(str(changed)),
                base_version=self.base,
                transaction=self.transaction,
                upsert=UpsertSpec(merge_key=ORDER_STATUS_VIEW.merge_key),
                replace=True,
                cursors=self.cursors,
                deterministic=True,
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        return done if done.repeated else replace(done, source_rows=counts.read)

    def _files(self, view: Sequence[ViewFile], staging: Path, *, changed_only: bool = False) -> FoldFiles:
        if self.rows.is_plain:
            wanted = set(files_with(self.rows, self.after))
            found = (
                (str(self.source.path / path), rows)
                for path, rows in self.rows.rows_by_file()
                if path in wanted
            )
            rows = {path: _row_count(path, told) for path, told in found}
            events = [EventFile(path=path, after=self.after) for path in rows]
        else:
            news = self.source.read(self.context.spark, self.rows.version, after=self.after)
            rows = _staged(news.select(*EVENT_COLUMNS), staging / "events")
            events = [EventFile(path=path) for path in rows]
        return FoldFiles(
            session=self.context.session,
            events=events,
            events_at_most=sum(rows.values()),
            view=view,
            changed_only=changed_only,
        )


def _view_file(path: str, file: StoredFile) -> ViewFile:
    lowest, highest = (
        file.statistics.get(bounds, {}).get("order_id") for bounds in ("minValues", "maxValues")
    )
    return ViewFile(
        path=path,
        rows=_row_count(path, file.statistics.get("numRecords")),
        lowest=lowest,
        highest=highest,
    )


def _row_count(path: str, told: int | None) -> int:
    """Return the number of rows of a data file: from the log (`told`), or from its footer."""
    import pyarrow.parquet as pq

    return pq.read_metadata(path).num_rows if told is None else told


def _staged(rows: DataFrame, folder: Path) -> dict[str, int]:
    """Write rows as Parquet files, and return the number of rows of each file."""
    rows.write.parquet(str(folder))
    return {str(file): _row_count(str(file), None) for file in sorted(folder.glob("*.parquet"))}

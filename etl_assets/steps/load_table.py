"""The step from the records of a declared pipeline to its table: typed, transformed, one row per key.

Records that have no value a column requires, or break a rule, become exceptions. The source table has one
cursor for all its days.

The step reads records once: it stages every row as Parquet before each transform that sees all rows (`sql`,
`python`) or that several transforms take, and at the end. What was rejected on the way is in the staged files
too. Rejects are committed before the rows.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.log.cursor import read_cursors
from etl_assets.delta.log.log_places import facts_after, notes_of, place_of
from etl_assets.delta.session import frame_of
from etl_assets.delta.write.append import can_append
from etl_assets.delta.write.changes import ChangeColumns
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.contract_columns import fit_to_contract
from etl_assets.delta.write.create import base_of
from etl_assets.delta.write.write import Transaction, Write
from etl_assets.delta.write.write_spec import WriteMode
from etl_assets.errors import RowsRefused
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.pipelines.declared import OFFSET, DeclaredTables
from etl_assets.pipelines.log_changes import log_of
from etl_assets.pipelines.postgres_cdc_spec import PostgresCdcSource
from etl_assets.steps.apply_changes import Tombstones
from etl_assets.steps.changes import read_new_rows
from etl_assets.steps.declared_table import expect_declared
from etl_assets.steps.load_rejects import commit_rejects
from etl_assets.steps.plain_commit import PlainCommit
from etl_assets.steps.plain_stage import PlainRows, plain_stage, record_columns
from etl_assets.steps.rows_to_merge import MergedBySpark, range_of_keys, upsert_of
from etl_assets.steps.staged_load import FILTERED, StagedLoad, stage_rows, staged_here
from etl_assets.steps.step import (
    DELETED,
    IGNORED,
    INSERTED,
    READ,
    REFUSED,
    UPDATED,
    ReadMode,
    StepContext,
    StepReport,
    staging_folder,
)
from etl_assets.steps.unmet_expectations import warnings_of
from etl_assets.transforms.branches import apply_all, count_records
from etl_assets.transforms.change_kinds import partial_records
from etl_assets.transforms.declared_transforms import LEFT_OUT, DeclaredTransforms
from etl_assets.transforms.lacking_values import lacking_records
from etl_assets.transforms.table_rows import judged_rows
from etl_assets.transforms.typed_records import typed_records

if TYPE_CHECKING:
    import numpy as np
    from pyspark.sql import DataFrame

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTable:
    """The step of one pipeline.

    Attributes:
        context: The step's context.
        mode: Which records are read.
        tables: The pipeline's tables.
        has_all_columns: Whether this process knows all columns that the records may have by now. It would
            leave values out otherwise, so it loads nothing then.
        keeps_rejects: Whether records without a row become exceptions. Not if another table of the same
            records has them.
    """

    context: StepContext
    mode: ReadMode
    tables: DeclaredTables
    has_all_columns: Callable[[], bool] = lambda: True
    keeps_rejects: bool = True

    def run(self, days: Sequence[dt.date] = ()) -> StepReport:
        """Make the rows of the new records, in one commit; `days` are ignored.

        Raises:
            ContractError, SchemaMismatch: a transform does not fit the columns, or the stored table cannot
                get the declared columns. Nothing was written.
            ExpectationFailed: rows do not meet an expectation whose violation fails the run. Nothing was
                written.
            RowsRefused: transforms made several rows of one record, for a table without keys. Nothing was
                written.
            CommitConflict: another run wrote the table at the same time. Nothing is lost by a repetition.
        """
        source = self.context.table(self.tables.source.name)
        table = self.context.table(self.tables.table.name)
        if (mirrored := table.replication) is not None and read_new_rows(source, table, self.mode):
            mirrored.lead()  # completes the commit of a killed run, which this load would run into
        # Before the version of the source; see `Tombstones.seen`.
        contract = self.tables.tombstones
        tombstones_seen = -1 if contract is None else self.context.table(contract.name).version()
        seen = table.version()
        known = read_cursors(table, source.name, [None])[None]
        new = read_new_rows(source, table, self.mode)
        # Records with other columns come after these are noted, so what is asked now holds for this version.
        if new is None or not self.has_all_columns():
            return StepReport(table=table.name, version=table.version(), counts={None: Counter()})
        base = base_of(table, seen, wait_seconds=self.context.lock_wait_seconds)
        expect_declared(table, base)
        tombstones = None
        if contract is not None:
            columns = ChangeColumns(keys=self.tables.table.merge_key, order=self.tables.order)
            tombstones = Tombstones(
                context=self.context,
                contract=contract,
                seen=tombstones_seen,
                columns=columns,
                is_whole=new.after < 0,
                is_first=known < 0,
            )
            tombstones.expect_unchanged()
        with staging_folder(table, base + 1) as folder:
            place = None
            if log_of(self.tables.spec.source) is not None:
                place = place_of(source.path, new.snapshot.version, after=new.after)
            return _Load(
                context=self.context,
                tables=self.tables,
                source=source,
                snapshot=new.snapshot,
                after=new.after,
                table=table,
                base=base,
                transaction=new.transaction,
                cursors=new.cursors,
                folder=folder,
                tombstones=tombstones,
                facts=facts_after(table.path, base, place),
                keeps_rejects=self.keeps_rejects,
            ).run()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Load:
    """One load.

    Attributes:
        context: The step's context.
        tables: The pipeline's tables.
        source: The table of records.
        snapshot: The version of it that is read.
        after: The batch id above which its records are new.
        table: The pipeline's table.
        base: The version of it that the load is planned on.
        transaction: Identity of the commit.
        cursors: Cursors of the table after the commit.
        folder: Folder for staged rows.
        tombstones: The table's tombstones; None if it does not apply changes.
        facts: What the commit of the rows says of its place in a log.
        keeps_rejects: As for `LoadTable`.
    """

    context: StepContext
    tables: DeclaredTables
    source: Table
    snapshot: Snapshot
    after: int
    table: Table
    base: int
    transaction: Transaction | None
    cursors: Mapping[str, int]
    folder: Path
    tombstones: Tombstones | None
    facts: Mapping[str, Any]
    keeps_rejects: bool

    def run(self) -> StepReport:
        """Stage, then commit the rejects, then the rows."""
        # 1. Stage every row, with its reason to be rejected. Nothing is written if an expectation fails.
        stages, read_from = self._stage()
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        last = stages[-1]
        self._expect_one_row_per_record(last)
        # 2. Give the table its declared columns.
        base = self.base
        if last.plain is None:
            base = fit_to_contract(
                self.context.spark,
                self.table,
                base_version=base,
                rows_go=self._is_emptied(last),
                wait_seconds=self.context.lock_wait_seconds,
            )
        # 3. Commit the rejects before the rows, so that no record is lost by a kill in between.
        if self.keeps_rejects and any(stage.figures[REFUSED] for stage in stages):
            records = self.source.read(self.context.spark, self.snapshot.version, self.after)
            commit_rejects(self.context, self.tables, _by_spark(stages), records, self.folder)
        # 4. Commit the rows.
        done, truncated = self._commit_rows(last, base)
        refused, filtered = self._records_without_rows(stages, read_from)
        if not self.keeps_rejects:
            refused, filtered = 0, refused + filtered
        counts = Counter(
            {
                READ: stages[0].figures[READ],
                REFUSED: refused,
                FILTERED: filtered,
                INSERTED: done.inserted,
                UPDATED: done.updated,
                IGNORED: last.figures["rows"] - done.inserted - done.updated,
            }
        )
        if self.tombstones is not None:
            counts[DELETED] = done.deleted
            counts[IGNORED] -= done.deleted - truncated + last.figures["truncates"]
        counts[Outcome.REJECTED.value] = counts[REFUSED]
        return StepReport(
            table=self.table.name,
            version=done.version,
            counts={None: counts},
            commits=int(not done.repeated),
            notes=(
                *(
                    warnings_of(self.tables.spec, [stage.figures for stage in stages])
                    if self.keeps_rejects
                    else ()
                ),
                *notes_of(self.table.name, self.facts),
            ),
        )

    def _is_emptied(self, staged: StagedLoad) -> bool:
        """Return whether the changes remove all rows that the table has.

        Only PostgreSQL's log has truncates in their order: elsewhere one may be late, and older than rows.
        """
        in_order = isinstance(self.tables.spec.source, PostgresCdcSource)
        return in_order and bool(staged.figures.get("truncates", 0))

    def _stage(self) -> tuple[list[StagedLoad], tuple[frozenset[int], ...]]:
        """Return the stages, and for each those whose rows its rows are made from."""
        if (plain := self._stage_plain()) is None:
            return self._stage_by_spark(None)
        # There are no transforms, so Spark has one stage.
        others = self._stage_by_spark(plain.others)[0][0] if len(plain.others) else None
        return [staged_here(plain, others, self.tables, self.base + 1)], (frozenset(),)

    def _stage_plain(self) -> PlainRows | None:
        """Stage the plain records; None if Spark takes all of them."""
        base = self.table.snapshot(self.base)
        assert base is not None  # `base` is a version of the table
        # A table that gets other columns has another version before its rows.
        if not can_append(self.table, base, struct_type(self.tables.table)):
            return None
        folder = self.folder / "plain"
        stage = plain_stage(self.tables, batch_id=self.base + 1, after=self.after, folder=folder)
        return None if stage is None else stage.run(self.source, self.snapshot)

    def _stage_by_spark(
        self, offsets: np.ndarray | None
    ) -> tuple[list[StagedLoad], tuple[frozenset[int], ...]]:
        """Stage the rows of records by Spark: of those with some offsets, or of all."""
        from pyspark.sql import functions as F

        spark, spec = self.context.spark, self.tables.spec
        transforms = DeclaredTransforms(spark=spark, tables=self.tables, read_table=self._read_table)
        columns = record_columns(self.tables)
        records = self.source.read(spark, self.snapshot.version, self.after)
        if offsets is not None:
            wanted = frame_of(spark, [(int(each),) for each in offsets], "offset BIGINT")
            records = records.join(F.broadcast(wanted), "offset", "left_semi")
        partial = [*partial_records(spec.table), *lacking_records(self.tables)]
        rows = typed_records(records, columns, partial=partial).withColumn(LEFT_OUT, F.lit(False))
        stages: list[StagedLoad] = []
        with transforms.views():

            def stage(rows: DataFrame, *, is_last: bool = False) -> DataFrame:
                folder = self.folder / f"rows_{len(stages)}"
                staged = stage_rows(spark, self.tables, rows, folder, is_last=is_last)
                stages.append(staged)
                assert staged.rows is not None  # Spark has staged them
                return staged.rows.frame

            applied = apply_all(transforms, rows, stage)
            stage(judged_rows(applied.rows, self.tables), is_last=True)
        return stages, applied.read_from

    def _records_without_rows(
        self, stages: Sequence[StagedLoad], read_from: Sequence[frozenset[int]]
    ) -> tuple[int, int]:
        """Return the numbers of rejected and of filtered records."""
        refused, filtered = (sum(stage.figures[name] for stage in stages) for name in (REFUSED, FILTERED))
        if self.tables.may_repeat_records and refused + filtered:
            return count_records(_by_spark(stages), read_from)
        return refused, filtered

    def _expect_one_row_per_record(self, last: StagedLoad) -> None:
        if self.tables.spec.table.write_mode is not WriteMode.APPEND or not self.tables.may_repeat_records:
            return
        rows = last.going_on(self.context.spark, self.tables)
        if not rows.groupBy(OFFSET).count().where("count > 1").isEmpty():
            raise RowsRefused(
                f"the transforms of {self.tables.spec.name} make several rows of one record, and"
                f" {self.table.name} has no keys to tell them apart",
                fix="give the table keys, and `write_mode` upsert or insert",
                table=self.table.name,
                column=OFFSET,
            )

    def _commit_rows(self, last: StagedLoad, base: int) -> tuple[Commit, int]:
        """Commit the rows, and return how many stored rows truncates remove among those that are deleted."""
        snapshot = self.table.snapshot(base)
        assert snapshot is not None  # `base` is a version of the table
        within = range_of_keys(self.tables, last)
        if last.plain is not None:
            here = PlainCommit(
                context=self.context,
                tables=self.tables,
                table=self.table,
                base=snapshot,
                transaction=self.transaction,
                cursors=self.cursors,
                tombstones=self.tombstones,
                facts=self.facts,
                upsert=upsert_of(self.tables),
                folder=self.folder,
            )
            if (found := here.run(last.plain, within)) is not None:
                return found
        by_spark = MergedBySpark(
            spark=self.context.spark, tables=self.tables, table=self.table, tombstones=self.tombstones
        )
        rows, truncated = by_spark.rows(last, snapshot)
        done = commit(
            self.table,
            Write(
                rows=rows,
                base_version=base,
                transaction=self.transaction,
                upsert=upsert_of(self.tables),
                cursors=self.cursors,
                facts=self.facts,
                deterministic=True,
                known_within=within,
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        return done, truncated

    def _read_table(self, name: str) -> DataFrame:
        """Return the newest rows of another table, none if it does not exist yet."""
        table = self.context.table(name)
        assert table.contract is not None
        version = table.version()
        if version < 0:
            return frame_of(self.context.spark, [], struct_type(table.contract))
        return table.read(self.context.spark, version)


def _by_spark(stages: Sequence[StagedLoad]) -> list[DataFrame]:
    return [stage.rows.frame for stage in stages if stage.rows is not None]

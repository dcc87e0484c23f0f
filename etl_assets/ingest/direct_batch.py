"""One range of a source straight into the pipeline's table, without a table of records.

A range has rows or changes as columns, and lines of JSON: those that were not plain, rows without a key, and
replayed dead letters. Lines are judged as records are, by the same code. All of them become one commit, with
the positions after the range. Tombstones of a log's changes are committed before it, as for records.

Belongs here: staging both kinds together, and the order of the commits. Does not belong here: staging columns
(`direct_columns.py`), judging lines (`direct_lines.py`), and the commit of staged rows
(`steps/plain_commit.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.write.append import can_append
from etl_assets.delta.write.changes import ChangeColumns
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.contract_columns import fit_to_contract
from etl_assets.delta.write.write import Transaction, Write
from etl_assets.errors import CommitConflict
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.direct_changes import TypedChanges
from etl_assets.ingest.direct_columns import ColumnsStage, StagedColumns, has_columns
from etl_assets.ingest.direct_lines import DirectLines, FoundLines, Judged
from etl_assets.ingest.direct_rejects import commit_direct_rejects
from etl_assets.ingest.pending_plan import FILES
from etl_assets.pipelines.declared import OFFSET
from etl_assets.pipelines.log_changes import log_of
from etl_assets.sources.landing import verify
from etl_assets.sources.ledger import FILES as FILES_READ
from etl_assets.sources.positions import transactions_of
from etl_assets.sources.postgres_cdc.staged import begins_with_truncate
from etl_assets.sources.sql.staged import ROWS
from etl_assets.steps.apply_changes import Tombstones
from etl_assets.steps.declared_table import DIRECT, expect_direct
from etl_assets.steps.plain_commit import PlainCommit
from etl_assets.steps.plain_stage import PlainRows, plain_records
from etl_assets.steps.rows_to_merge import MergedBySpark, range_of_keys, upsert_of
from etl_assets.steps.staged_load import StagedLoad, staged_here
from etl_assets.steps.step import (
    DELETED,
    IGNORED,
    INSERTED,
    READ,
    REFUSED,
    UPDATED,
    StepContext,
    StepReport,
)

if TYPE_CHECKING:
    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table
    from etl_assets.ingest.records import Records
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.sources.batch_plan import BatchPlan
    from etl_assets.sources.landing import Folders
    from etl_assets.sources.source_files import InputFile


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectBatch:
    """A planned batch, ready to be written to the pipeline's table.

    Attributes:
        context: The step's context.
        tables: The pipeline's tables.
        table: The pipeline's table.
        stage: Name of the stage in rejects.
        folders: Folders of the plan's files.
        records: What records must be.
        plan: The files, and the version they become unless columns change first.
        staging: Folder for temporary files.
    """

    context: StepContext
    tables: DeclaredTables
    table: Table
    stage: str
    folders: tuple[Folders, ...]
    records: Records
    plan: BatchPlan
    staging: Path

    def write(self) -> StepReport:
        """Stage the rows, then commit the rejects, then the rows with the positions.

        Raises:
            SourceChanged: a file changed while it was read; nothing was written.
            ContractError: the stored table cannot get the declared columns, or was loaded from records.
            CommitConflict: another run has written the table meanwhile. Nothing is lost by a repetition.
        """
        # 1. Give the table its declared columns.
        base = self._base()
        tombstones = self._tombstones(base)
        # 2. Stage the rows, and judge the lines.
        staged = self._stage_columns(base.version + 1, _next_offset(base))
        lines = DirectLines(
            context=self.context,
            tables=self.tables,
            records=self.records,
            batch_id=base.version + 1,
            staging=self.staging,
        )
        found = [
            FoundLines(file, lines.lines_of(file), staged.offsets if file.file.name == ROWS else None)
            for file in self._files(columns=False)
        ]
        judged = lines.judge([*staged.lines, *found], staged.next_offset)
        verify(self.folders, self.plan.files)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        load = staged_here(
            PlainRows.together([staged.rows, judged.plain]), judged.by_spark, self.tables, base.version + 1
        )
        # 3. Commit the rejects before the rows, so that no record is lost by a kill in between.
        commit_direct_rejects(
            self.context, self.tables, judged, stage=self.stage, plan=self.plan, folder=self.staging
        )
        # 4. Commit the rows. Only this commit makes the batch count.
        done, truncated = self._commit_rows(load, base, tombstones, judged.next_offset)
        return self._report(done, truncated, load, staged.rows, judged)

    def _base(self) -> Snapshot:
        """Return the version to plan on, with the declared columns."""
        version = self.plan.batch_id - 1
        snapshot = self.table.snapshot(version)
        assert snapshot is not None  # the step has created the table
        expect_direct(self.table, snapshot)
        if not can_append(self.table, snapshot, struct_type(self.tables.table)):
            version = fit_to_contract(
                self.context.spark,
                self.table,
                base_version=version,
                rows_go=any(map(begins_with_truncate, self._staged_columns())),
                wait_seconds=self.context.lock_wait_seconds,
            )
            snapshot = self.table.snapshot(version)
            assert snapshot is not None  # it was just committed
        return snapshot

    def _staged_columns(self) -> Iterator[str]:
        """Yield the paths of the files with changes as columns."""
        if log_of(self.tables.spec.source) is not None:
            yield from (each.path for each in self._files(columns=True))

    def _files(self, *, columns: bool) -> list[InputFile]:
        by_source = {folders.source: folders for folders in self.folders}
        return [
            by_source[file.source].input_file(file)
            for file in self.plan.files
            if has_columns(file) is columns
        ]

    def _stage_columns(self, batch_id: int, first: int) -> StagedColumns:
        """Stage rows and changes that came as columns."""
        changes = None
        if log_of(self.tables.spec.source) is not None:
            records = plain_records(self.tables)
            assert records is not None  # the declaration is refused otherwise
            most = self.tables.spec.source.max_record_bytes
            changes = TypedChanges(records=records, max_record_bytes=most)
        return ColumnsStage(
            tables=self.tables,
            changes=changes,
            held_bytes=self.records.held_bytes,
            batch_id=batch_id,
            folder=self.staging,
        ).run(self._files(columns=True), first)

    def _tombstones(self, base: Snapshot) -> Tombstones | None:
        """Return the table's tombstones; None if it does not apply changes."""
        if (contract := self.tables.tombstones) is None:
            return None
        is_first = base.transaction_version(DIRECT) < 0
        return Tombstones(
            context=self.context,
            contract=contract,
            seen=self.context.table(contract.name).version(),
            columns=ChangeColumns(keys=self.tables.table.merge_key, order=self.tables.order),
            # What was left by another table of this name is of no use.
            is_whole=is_first,
            is_first=is_first,
        )

    def _commit_rows(
        self, load: StagedLoad, base: Snapshot, tombstones: Tombstones | None, next_offset: int
    ) -> tuple[Commit, int]:
        """Commit the rows, and return how many stored rows truncates remove among those that are deleted."""
        assert load.plain is not None  # everything is staged here
        transaction = Transaction(app_id=FILES, version=self.plan.batch_id)
        positions = {} if self.plan.wanted is None else transactions_of(self.plan.wanted.end)
        transactions = {**positions, DIRECT: next_offset}
        facts = {FILES_READ: self.plan.marks, **self.plan.facts_of_range(self.table.path)}
        within = range_of_keys(self.tables, load)
        done = None
        # A table that got a column has it after those of the platform, and Delta's writer puts that in order.
        if can_append(self.table, base, struct_type(self.tables.table)):
            here = PlainCommit(
                context=self.context,
                tables=self.tables,
                table=self.table,
                base=base,
                transaction=transaction,
                cursors={},
                transactions=transactions,
                facts=facts,
                tombstones=tombstones,
                upsert=upsert_of(self.tables),
                folder=self.staging,
            )
            done = here.run(load.plain, within)
        if done is not None:
            found, truncated = done
        else:
            by_spark = MergedBySpark(
                spark=self.context.spark, tables=self.tables, table=self.table, tombstones=tombstones
            )
            rows, truncated = by_spark.rows(load, base)
            write = Write(
                rows=rows,
                base_version=base.version,
                transaction=transaction,
                transactions=transactions,
                facts=facts,
                upsert=upsert_of(self.tables),
                deterministic=True,
                known_within=within,
            )
            found = commit(self.table, write, wait_seconds=self.context.lock_wait_seconds)
        if found.repeated:
            raise CommitConflict(
                f"another run committed batch {self.plan.batch_id} of {self.table.name}",
                fix="run again: rows that it has not read are planned again",
                table=self.table.name,
            )
        return found, truncated

    def _report(
        self, done: Commit, truncated: int, load: StagedLoad, rows: PlainRows, judged: Judged
    ) -> StepReport:
        refused = len(judged.rejected)
        counts = Counter(
            {
                READ: rows.rows + judged.lines,
                REFUSED: refused,
                Outcome.REJECTED.value: refused,
                INSERTED: done.inserted,
                UPDATED: done.updated,
                IGNORED: load.figures["rows"] - done.inserted - done.updated,
            }
        )
        if self.tables.tombstones is not None:
            counts[DELETED] = done.deleted
            counts[IGNORED] -= done.deleted - truncated + load.figures["truncates"]
        return StepReport(table=self.table.name, version=done.version, counts={None: counts}, commits=1)


def _next_offset(snapshot: Snapshot) -> int:
    """Return the first offset that no row of the table has or ever had."""
    newest = snapshot.maximum(OFFSET)
    return max(0 if newest is None else newest + 1, snapshot.transaction_version(DIRECT))

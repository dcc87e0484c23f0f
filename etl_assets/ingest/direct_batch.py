"""One range of a source straight into the pipeline's table, without a table of records.

A range has rows as columns, and lines of JSON: rows that were not plain, rows without a key, and replayed
dead letters. Lines are judged as records are, by the same code. All of them become one commit, with the
positions after the range.

Belongs here: staging both kinds together, and the order of the commits. Does not belong here: which rows are
plain (`sources/sql/typed_rows.py`), judging lines (`direct_lines.py`), and the commit of staged rows
(`steps/plain_commit.py`).
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from etl_assets.contracts.reasons import Outcome
from etl_assets.contracts.spark_types import struct_type
from etl_assets.delta.write.append import can_append
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.contract_columns import fit_to_contract
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Transaction, Write
from etl_assets.errors import CommitConflict
from etl_assets.failpoints import Failpoint, failpoint
from etl_assets.ingest.direct_lines import DirectLines, Judged
from etl_assets.ingest.direct_rejects import commit_direct_rejects
from etl_assets.ingest.pending_plan import FILES
from etl_assets.pipelines.declared import OFFSET
from etl_assets.sources.landing import verify
from etl_assets.sources.ledger import FILES as FILES_READ
from etl_assets.sources.positions import transactions_of
from etl_assets.sources.sql.staged import COLUMNS
from etl_assets.sources.sql.typed_rows import IS_PLAIN
from etl_assets.steps.declared_table import DIRECT, expect_direct
from etl_assets.steps.plain_commit import PlainCommit
from etl_assets.steps.plain_stage import ROWS_PER_FILE, PlainRows, StagedRowsWriter
from etl_assets.steps.rows_to_merge import frame_to_merge, range_of_keys, upsert_of
from etl_assets.steps.staged_load import StagedLoad, staged_here
from etl_assets.steps.step import IGNORED, INSERTED, READ, REFUSED, UPDATED, StepContext, StepReport

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from etl_assets.delta.snapshot import Snapshot
    from etl_assets.delta.table import Table
    from etl_assets.ingest.records import Records
    from etl_assets.pipelines.declared import DeclaredTables
    from etl_assets.sources.batch_plan import BatchPlan
    from etl_assets.sources.landing import Folders
    from etl_assets.sources.source_files import InputFile

_ROWS_PER_THREAD = 100_000
"""Fewer rows are staged by one thread."""


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
        first = _next_offset(base)
        # 2. Stage the rows, and judge the lines.
        rows, others, next_offset = self._stage_columns(base.version + 1, first)
        lines = DirectLines(
            context=self.context,
            tables=self.tables,
            records=self.records,
            batch_id=base.version + 1,
            staging=self.staging,
        )
        judged = lines.judge(self._files(columns=False), others, next_offset)
        verify(self.folders, self.plan.files)
        failpoint(Failpoint.STAGE_AFTER_WRITE, table=self.table.name)
        load = staged_here(
            PlainRows.together([rows, judged.plain]), judged.by_spark, self.tables, base.version + 1
        )
        # 3. Commit the rejects before the rows, so that no record is lost by a kill in between.
        commit_direct_rejects(
            self.context, self.tables, judged, stage=self.stage, plan=self.plan, folder=self.staging
        )
        # 4. Commit the rows. Only this commit makes the batch count.
        done = self._commit_rows(load, base, judged.next_offset)
        return self._report(done, load, rows, judged)

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
                wait_seconds=self.context.lock_wait_seconds,
            )
            snapshot = self.table.snapshot(version)
            assert snapshot is not None  # it was just committed
        return snapshot

    def _files(self, *, columns: bool) -> list[InputFile]:
        by_source = {folders.source: folders for folders in self.folders}
        return [
            by_source[file.source].input_file(file)
            for file in self.plan.files
            if (file.name == COLUMNS) is columns
        ]

    def _stage_columns(self, batch_id: int, first: int) -> tuple[PlainRows, np.ndarray, int]:
        """Stage rows that came as columns.

        Returns:
            The plain rows, the offsets of the others, and the next offset.
        """
        import numpy as np
        import pyarrow as pa

        staged, others = [], [np.empty(0, dtype=np.int64)]
        for number, file in enumerate(self._files(columns=True)):
            with pa.memory_map(file.path) as mapped, pa.ipc.open_file(mapped) as reader:
                rows = reader.read_all()
                tasks = []
                for begin, size in _parts(rows.num_rows):
                    path = self.staging / f"rows-{number}-{len(tasks):05}.zstd.parquet"
                    tasks.append((rows.slice(begin, size), first + begin, path, batch_id))
                with ThreadPoolExecutor(os.cpu_count()) as threads:
                    done = list(threads.map(lambda task: self._stage_part(*task), tasks))
                first += rows.num_rows
                staged += [each for each, _ in done]
                others += [each for _, each in done]
        return PlainRows.together(staged), np.concatenate(others), first

    def _stage_part(
        self, rows: pa.Table, first: int, path: Path, batch_id: int
    ) -> tuple[PlainRows, np.ndarray]:
        import numpy as np
        import pyarrow as pa

        is_plain = rows.column(IS_PLAIN).to_numpy()
        offsets = np.arange(first, first + rows.num_rows, dtype=np.int64)
        rows = rows.drop_columns([IS_PLAIN]).append_column(OFFSET, pa.array(offsets))
        others = offsets[~is_plain]
        if len(others):
            rows = rows.filter(pa.array(is_plain))
        with StagedRowsWriter(tables=self.tables, batch_id=batch_id, path=path) as writer:
            if rows.num_rows:
                writer.write(rows)
        return writer.staged, others

    def _commit_rows(self, load: StagedLoad, base: Snapshot, next_offset: int) -> Commit:
        assert load.plain is not None  # everything is staged here
        transaction = Transaction(app_id=FILES, version=self.plan.batch_id)
        positions = {} if self.plan.wanted is None else transactions_of(self.plan.wanted.end)
        transactions = {**positions, DIRECT: next_offset}
        facts = {FILES_READ: self.plan.marks, **self.plan.facts_of_range(self.table.path)}
        within = range_of_keys(self.tables, load)
        done = PlainCommit(
            context=self.context,
            tables=self.tables,
            table=self.table,
            base=base,
            transaction=transaction,
            cursors={},
            transactions=transactions,
            facts=facts,
            tombstones=None,
            upsert=self._upsert(),
            folder=self.staging,
        ).run(load.plain, within)
        if done is not None:
            found = done[0]
        else:
            write = Write(
                rows=frame_to_merge(self.context.spark, self.tables, load, base),
                base_version=base.version,
                transaction=transaction,
                transactions=transactions,
                facts=facts,
                upsert=self._upsert(),
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
        return found

    def _upsert(self) -> UpsertSpec:
        return replace(upsert_of(self.tables), deleted_by=None)

    def _report(self, done: Commit, load: StagedLoad, rows: PlainRows, judged: Judged) -> StepReport:
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
        return StepReport(table=self.table.name, version=done.version, counts={None: counts}, commits=1)


def _next_offset(snapshot: Snapshot) -> int:
    """Return the first offset that no row of the table has or ever had."""
    newest = snapshot.maximum(OFFSET)
    return max(0 if newest is None else newest + 1, snapshot.transaction_version(DIRECT))


def _parts(rows: int) -> list[tuple[int, int]]:
    """Return where to cut rows into files: the first row and the number of each."""
    number = max(1, -(-rows // ROWS_PER_FILE), min(os.cpu_count() or 1, rows // _ROWS_PER_THREAD))
    size = max(1, -(-rows // number))
    return [(begin, min(size, rows - begin)) for begin in range(0, rows, size)]

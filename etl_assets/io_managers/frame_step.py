"""A returned frame as a step: a write to the asset's table by its spec, for any of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from etl_assets.contracts.sql_text import identifier
from etl_assets.delta.asset_record import AssetRecord, put_record
from etl_assets.delta.read.partition_filter import PartitionFilter
from etl_assets.delta.session import frame_of, scoped_settings
from etl_assets.delta.snapshot import Snapshot
from etl_assets.delta.table import Table
from etl_assets.delta.write.checked_rows import CheckedRows
from etl_assets.delta.write.commit import Commit, commit
from etl_assets.delta.write.create import create_like
from etl_assets.delta.write.frame_columns import check_fits, check_frame, columns_of
from etl_assets.delta.write.schema_changes import change_columns, columns_after
from etl_assets.delta.write.write import ALL_ROWS, Transaction, Write
from etl_assets.delta.write.write_spec import WriteMode, WriteSpec
from etl_assets.delta.write.write_version import DEFAULT_LOCK_WAIT_SECONDS, moved_on
from etl_assets.errors import CommitConflict, ContractError, TableBusy
from etl_assets.io_managers.append_ids import append_of, left_to_append
from etl_assets.io_managers.applied_changes import AppliedChanges, staged_changes, with_deletes
from etl_assets.steps.step import INSERTED, REMOVED, StepReport, logger, upsert_counts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MOST_CONFLICTS = 50
"""Number of conflicts to accept before giving up; each means that another run has committed."""
_EXCLUDED_RULES = "spark.sql.optimizer.excludedRules"
_COMPUTES_LITERALS = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
"""Where rows are literals of the query, this rule computes all of them before any are filtered out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameStep:
    """Write of a frame's rows to a table.

    Attributes:
        rows: The returned frame; evaluated once for each commit.
        table: The asset's table; created from the frame's columns if it does not exist.
        spec: How the rows are written.
        all_keys: All partition keys of the frame's rows; empty for an unpartitioned asset.
        partitions: Values of the spec's `delta_partition` for each key, if there is such a column.
        run_id: Identity of the run and its repetitions: rows of one run are appended once.
        record: What the table is to say of its asset; None: nothing.
    """

    rows: DataFrame
    table: Table
    spec: WriteSpec
    all_keys: tuple[str, ...]
    partitions: Mapping[str, PartitionFilter] = field(default_factory=dict)
    run_id: str = ""
    record: AssetRecord | None = None
    lock_wait_seconds: float = DEFAULT_LOCK_WAIT_SECONDS

    def run(self, keys: Sequence[str]) -> StepReport:
        """Write the rows of some partitions in one commit. An append skips what the run has appended before.

        If another run commits first, the write is planned again. A write evaluates its rows only once it has
        its turn.
        """
        for _ in range(_MOST_CONFLICTS):
            try:
                return self._run_once(keys)
            except CommitConflict:
                logger.info(
                    "another run has written %s meanwhile; the write is planned again", self.table.name
                )
        return self._run_once(keys)

    def _run_once(self, keys: Sequence[str]) -> StepReport:
        if self.spec.write_mode is not WriteMode.APPEND:
            return self._run(keys)
        left = left_to_append(self.run_id, keys, self.table.snapshot())
        if not left:
            return self._repeated(keys)
        reports = [self._run(part, append_of(self.run_id, part)) for part in left]
        appended = {key for part in left for key in part}
        if before := [key for key in keys if key not in appended]:
            reports.append(self._repeated(before))
        return sum(reports[1:], reports[0])

    def _repeated(self, keys: Sequence[str]) -> StepReport:
        """Report partitions whose rows an earlier attempt of this run has appended."""
        rows = f"the rows of {_few(keys)}" if keys else "its rows"
        note = f"this run ({self.run_id}) had appended {rows} before; they were not added again"
        counts: dict[str | None, Counter[str]] = {key: Counter({INSERTED: 0}) for key in keys or (None,)}
        return StepReport(table=self.table.name, version=self.table.version(), counts=counts, notes=(note,))

    def _run(self, keys: Sequence[str], transaction: Transaction | None = None) -> StepReport:
        with nullcontext() if self._is_whole(keys) else self._rows_one_by_one():
            return self._write(keys, transaction)

    def _write(self, keys: Sequence[str], transaction: Transaction | None) -> StepReport:
        # 1. Check the frame's columns, before anything is written.
        spark = self.rows.sparkSession
        like = self._stored_rows if self.spec.columns is None else frame_of(spark, [], self.spec.columns)
        self._check_columns(like)
        checked = CheckedRows(
            rows=self._as_changes(self._rows_of(keys)),
            spec=self.spec,
            table=self.table.name,
            partitions=self._values_of(self.all_keys),
            run=_few(self.all_keys),
        )
        # 2. Create the table if it does not exist, and change its columns as the frame needs.
        partition, wait_seconds = self.spec.delta_partition, self.lock_wait_seconds
        base = create_like(spark, self.table, like, delta_partition=partition, wait_seconds=wait_seconds)
        self._check_columns(like)  # against the table that another run may have created meanwhile
        base = self._change_columns(base)
        # 3. Plan the write on that version. An append that another attempt has made in part is planned again.
        if transaction is not None and self._has_part(keys, base):
            raise moved_on(self.table, current=base, base=base - 1)
        rows = self._as_stored(checked.kept())
        write = Write(
            rows=rows,
            base_version=base,
            transaction=transaction,
            upsert=self.spec.upsert,
            replaces=self._replaced(keys),
            lies_in=self._values_of(keys),
        )
        if self.spec.write_mode is WriteMode.APPLY_CHANGES:
            return self._apply(write, rows, checked, keys)
        # 4. Commit. An error that a bad row caused becomes the refusal that names the row's fault.
        try:
            done = commit(self.table, write, wait_seconds=wait_seconds)
        except Exception as error:
            if (refusal := checked.refusal_in(error)) is not None:
                raise refusal from error
            raise
        self._put_record(done.version)
        if done.repeated:
            return self._repeated(keys)
        return StepReport(
            table=self.table.name, version=done.version, counts=self._counts(done, keys, base), commits=1
        )

    @property
    def _stored_rows(self) -> DataFrame:
        """The frame without the columns that are not stored."""
        return self.rows.drop(*self.spec.except_column_list)

    def _as_changes(self, rows: DataFrame) -> DataFrame:
        if self.spec.write_mode is not WriteMode.APPLY_CHANGES:
            return rows.drop(*self.spec.except_column_list)
        return with_deletes(rows, self.spec, table=self.table.name)

    def _apply(self, write: Write, rows: DataFrame, checked: CheckedRows, keys: Sequence[str]) -> StepReport:
        """Stage the rows, keep the tombstones of deletes, then merge the changes that are not late."""
        try:
            with staged_changes(rows, self.table, write.base_version) as staged:
                changes = AppliedChanges(
                    staged=staged, table=self.table, spec=self.spec, wait_seconds=self.lock_wait_seconds
                )
                write = replace(write, rows=changes.rows_to_merge(), deterministic=True)
                done = commit(self.table, write, wait_seconds=self.lock_wait_seconds)
                # Late changes are not among the rows of the merge.
                done = replace(done, source_rows=changes.count)
        except Exception as error:
            if (refusal := checked.refusal_in(error)) is not None:
                raise refusal from error
            raise
        self._put_record(done.version)
        counts = self._counts(done, keys, write.base_version)
        return StepReport(table=self.table.name, version=done.version, counts=counts, commits=1)

    def _put_record(self, version: int) -> None:
        """Let the table say whose it is, after its rows are stored. If another writer is faster, it does
        so.
        """
        if self.record is None:
            return
        with suppress(CommitConflict, TableBusy):
            put_record(self.table, self.record, base_version=version, wait_seconds=self.lock_wait_seconds)

    def _has_part(self, keys: Sequence[str], base: int) -> bool:
        """Return whether another attempt of this run has meanwhile appended some of the partitions, not all.

        If it has appended all of them, the commit detects that.
        """
        return left_to_append(self.run_id, keys, self.table.snapshot(base)) not in ([], [keys])

    def _as_stored(self, rows: DataFrame) -> DataFrame:
        """Cast the rows to the table's types. A merge casts by itself."""
        from pyspark.sql import functions as F

        stored = self.table.snapshot()
        if self.spec.write_mode.by_key or stored is None:
            return rows
        columns = columns_of(stored)
        return rows.select(
            *(F.col(identifier(field.name)).cast(field.dataType).alias(field.name) for field in columns)
        )

    def _replaced(self, keys: Sequence[str]) -> str | None:
        """Return the condition on the rows to replace; None for other write modes."""
        if self.spec.write_mode is not WriteMode.REPLACE:
            return None
        values = self._values_of(keys)
        if values is None or self.spec.delta_partition is None:
            return ALL_ROWS
        return values.condition(identifier(self.spec.delta_partition))

    def _check_columns(self, like: DataFrame) -> None:
        """Reject columns that the table lacks, or would lack if it were created like `like`."""
        schema, stored = self._stored_rows.schema, self.table.snapshot()
        check_frame(self.spec, schema, table=self.table.name, is_new=stored is None)
        columns = like.schema if stored is None else columns_of(stored)
        check_fits(schema, self._columns_after(columns, stored), self.table)

    def _columns_after(self, columns: StructType, stored: Snapshot | None) -> StructType:
        layout = (self.spec.delta_partition,) if stored is None else stored.partition_columns()
        laid_out_by = [name for name in layout if name is not None]
        return columns_after(
            self._stored_rows.schema, columns, self.spec.schema_changes, laid_out_by=laid_out_by
        )

    def _change_columns(self, base: int) -> int:
        """Add or widen columns of the table as the frame needs and may; return the version to write on."""
        stored = self.table.snapshot(base)
        assert stored is not None  # the caller has created it
        columns = columns_of(stored)
        after = self._columns_after(columns, stored)
        if after == columns:
            return base
        return change_columns(
            self.rows.sparkSession,
            self.table,
            after,
            base_version=base,
            widens=after.fields[: len(columns.fields)] != columns.fields,
            wait_seconds=self.lock_wait_seconds,
        )

    def _values_of(self, keys: Sequence[str]) -> PartitionFilter | None:
        """Return the `delta_partition` values of some partitions; None if unknown or unrestricted."""
        if self.spec.delta_partition is None or not keys:
            return None
        return PartitionFilter.union(self.partitions[key] for key in keys)

    def _is_whole(self, keys: Sequence[str]) -> bool:
        return set(keys) == set(self.all_keys)

    def _rows_one_by_one(self) -> AbstractContextManager[None]:
        """Make queries filter rows before computing them: a bad row then fails only its partition."""
        spark = self.rows.sparkSession
        others = spark.conf.get(_EXCLUDED_RULES, None)
        return scoped_settings(spark, {_EXCLUDED_RULES: ",".join(filter(None, (others, _COMPUTES_LITERALS)))})

    def _rows_of(self, keys: Sequence[str]) -> DataFrame:
        """Return all rows except those of the run's other partitions.

        Rows of no partition stay in: they must be refused, not dropped.
        """
        if self._is_whole(keys):
            return self.rows
        others = self._values_of([key for key in self.all_keys if key not in keys])
        if others is None or self.spec.delta_partition is None:
            raise ContractError(
                f"the rows of {self.table.name} cannot be told apart by partition, so that the good ones"
                " cannot be committed without the bad ones",
                fix="name the column of the asset's partition in the spec's `delta_partition`",
                table=self.table.name,
            )
        return self.rows.where(
            f"NOT coalesce({others.condition(identifier(self.spec.delta_partition))}, FALSE)"
        )

    def _counts(self, done: Commit, keys: Sequence[str], base: int) -> dict[str | None, Counter[str]]:
        """Return the metrics of the whole commit, and of each partition as far as the log has them."""
        if self.spec.write_mode is WriteMode.REPLACE:
            return self._counts_of_replacement(done, keys, base)
        counts: dict[str | None, Counter[str]] = {key: Counter() for key in keys}
        totals = upsert_counts(done)
        if len(keys) == 1:
            counts[keys[0]] = totals
            return counts
        # If a partition lost rows, rows have moved between partitions. The insertions by partition are then
        # unknown, and only totals are reported.
        before, after = (self._rows_by_key(keys, version) for version in (base, done.version))
        more = {key: after[key] - before.get(key, 0) for key in after}
        if sum(more.values()) == totals[INSERTED] and all(rows >= 0 for rows in more.values()):
            for key, rows in more.items():
                counts[key][INSERTED] = rows
            totals[INSERTED] = 0
        counts[None] = +totals
        return counts

    def _counts_of_replacement(
        self, done: Commit, keys: Sequence[str], base: int
    ) -> dict[str | None, Counter[str]]:
        """Return the rows inserted and removed; by partition if the table's layout separates them."""
        totals = upsert_counts(done)
        before, after = (self._rows_by_key(keys, version) for version in (base, done.version))
        if len(keys) > 1 and after:
            return {key: Counter({INSERTED: after[key], REMOVED: before.get(key, 0)}) for key in keys}
        was, now = (
            snapshot.row_count() for snapshot in map(self.table.snapshot, (base, done.version)) if snapshot
        )
        totals[REMOVED] = was + totals[INSERTED] - now
        return {(keys[0] if len(keys) == 1 else None): totals}

    def stored_rows(self, keys: Sequence[str]) -> dict[str, int]:
        """Return the table's number of rows by partition; partitions with an unknown number are left out."""
        return self._rows_by_key(keys, None)

    def _rows_by_key(self, keys: Sequence[str], version: int | None) -> dict[str, int]:
        snapshot = self.table.snapshot(version)
        if snapshot is None or self.spec.delta_partition is None:
            return {}
        return rows_by_key(snapshot, self.spec.delta_partition, {key: self.partitions[key] for key in keys})


def rows_by_key(snapshot: Snapshot, column: str, partitions: Mapping[str, PartitionFilter]) -> dict[str, int]:
    """Return the rows of each partition key from file statistics.

    Empty if the table's layout is not by the column.
    """
    if column not in snapshot.partition_columns():
        return {}
    stored = snapshot.rows_by_value(column)
    return {
        key: sum(rows for value, rows in stored.items() if values.holds(value))
        for key, values in partitions.items()
    }


def _few(keys: Sequence[str]) -> str:
    return ", ".join(keys) if len(keys) <= 3 else f"{len(keys)} from {keys[0]} to {keys[-1]}"

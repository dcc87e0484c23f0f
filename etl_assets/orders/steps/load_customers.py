"""The step from the customer reference file to the table customers: an upsert by customer id."""

from __future__ import annotations

import datetime as dt
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etl_assets.contracts.envelope import CutLine
from etl_assets.contracts.spark_types import check_schema
from etl_assets.delta.log.entries import recent_user_metadata
from etl_assets.delta.log.lasting_cursors import REMEMBERED_COMMITS
from etl_assets.delta.write.commit import commit
from etl_assets.delta.write.create import ensure_table
from etl_assets.delta.write.upsert import UpsertSpec
from etl_assets.delta.write.write import Write
from etl_assets.errors import SourceUnreadable
from etl_assets.orders.tables.customers import CUSTOMERS
from etl_assets.sources.lines import Block, read_lines
from etl_assets.steps.step import StepContext, StepReport, upsert_counts

if TYPE_CHECKING:
    from etl_assets.delta.table import Table

FILE = "file"
"""Fact of a commit: size in bytes and modification time in nanoseconds of the file it read."""

COLUMNS = ("customer_id", "customer_region")
_MAX_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadCustomers:
    """The step. `file` is a CSV file whose header has `customer_id` and `customer_region`."""

    context: StepContext
    file: Path

    def run(self, days: Sequence[dt.date] = ()) -> StepReport:
        """Upsert the file's customers; a missing file leaves the table as it is. `days` are ignored.

        Raises:
            SourceUnreadable: the file cannot be read, lacks a column or has a line too long to be held.
        """
        from pyspark.sql import functions as F

        table = self.context.table(CUSTOMERS.name)
        base = table.version()
        counts: dict[dt.date | None, Counter[str]] = {None: Counter()}
        if not self.file.exists():
            note = (
                f"the customer file {self.file} does not exist: regions stay as they are, null where unknown"
            )
            return StepReport(table=table.name, version=base, counts=counts, notes=(note,))
        seen = [self.file.stat().st_size, self.file.stat().st_mtime_ns]
        if file_read_last(table, base) == seen:
            return StepReport(table=table.name, version=base, counts=counts)
        _check_header(_first_line(self.file), self.file)
        spark = self.context.spark
        base = ensure_table(table, wait_seconds=self.context.lock_wait_seconds)
        read = spark.read.option("header", True).option("__globPaths__", "false").csv(str(self.file))
        # Of two rows for one customer, any rule that does not depend on the order of reading will do.
        rows = (
            read.where("trim(customer_id) != ''")
            .groupBy(F.trim("customer_id").alias("customer_id"))
            .agg(F.max(F.nullif(F.trim("customer_region"), F.lit(""))).alias("customer_region"))
        )
        check_schema(CUSTOMERS, rows.schema)
        done = commit(
            table,
            Write(
                rows=rows,
                base_version=base,
                upsert=UpsertSpec(merge_key=CUSTOMERS.merge_key),
                facts={FILE: seen},
            ),
            wait_seconds=self.context.lock_wait_seconds,
        )
        counts[None] = upsert_counts(done)
        return StepReport(
            table=table.name, version=done.version, counts=counts, commits=int(not done.repeated)
        )


def file_read_last(table: Table, version: int) -> Any:
    """Return the fact `FILE` of the last commit that has one; None if none has.

    Compactions come in between, and undos keep the fact.
    """
    notes = recent_user_metadata(table.path, version, REMEMBERED_COMMITS)
    return next((facts[FILE] for note in notes if FILE in (facts := note.get("facts") or {})), None)


def _first_line(file: Path) -> str:
    """Return the first line of a file. Checks that no line is too long for Spark, which holds whole lines."""
    header, before = b"", 0
    try:
        for _, lines in read_lines(Block(path=str(file), start=0, end=None), _MAX_LINE_BYTES):
            for number, line in enumerate(lines, start=before + 1):
                if isinstance(line, CutLine):
                    raise SourceUnreadable(
                        f"{file}, line {number}: it has {line.size:,} bytes, no line of a customer has so"
                        " many",
                        fix="end every line of the file with a line feed",
                        file=str(file),
                    )
                if number == 1:
                    header = line.partition(b"\r")[0]  # Spark ends lines there too
            before += len(lines)
        return header.decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise SourceUnreadable(
            f"the customer file {file} cannot be read: {error}",
            fix="make it a UTF-8 CSV file that this user may read",
            file=str(file),
        ) from error


def _check_header(line: str, file: Path) -> None:
    header = [name.strip().strip('"') for name in line.strip().split(",")]
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        raise SourceUnreadable(
            f"{file}, line 1: the header lacks {', '.join(missing)}",
            fix=f"give the file a header with {', '.join(COLUMNS)}",
            file=str(file),
        )
